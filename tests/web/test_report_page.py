"""The report as a person uses it: opened, clicked, typed into; what it draws held against SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cb_trace.store import open_profile
from tests.web.browser import Browser, Page
from tests.web.conftest import write_report
from tests.web.profiles import full_profile

SECTIONS = ["step", "modules", "kernels", "worst", "fused", "roofline", "memory", "measured"]


def sql(profile: Path, text: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(text).fetchall()


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-").replace("+", "").removesuffix("%"))


def state(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.ask(
        "Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
    )
    return found


def row(page: Page, path: str) -> list[str]:
    """The cells of a module's row in the tree, opened down to it."""
    page.ask(f"page.tree.reveal(page.report.find({json.dumps(path)}))")
    cells: list[str] = page.ask(
        f"(() => {{ const i = page.report.find({json.dumps(path)});"
        "return [...document.querySelector(`.tree tr[data-i='${i}']`).children]"
        ".map((cell) => cell.textContent); })()"
    )
    return cells


def test_every_section_of_a_full_profile_is_there_and_numbered(page: Page) -> None:
    shown = page.ask("[...document.querySelectorAll('section:not([hidden])')].map((s) => s.id)")
    assert shown == SECTIONS
    assert page.texts("h2 .number") == [str(n + 1) for n in range(len(SECTIONS))]
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")


def test_the_table_holds_the_figures_of_compare(page: Page, profile: Path) -> None:
    figures = sql(
        profile,
        "SELECT path, cost_us, isolated_us, knockout_us FROM compare WHERE deployment = 'eager'",
    )
    heads = [text.rstrip("↓↑") for text in page.texts(".tree thead th")]
    assert len(figures) == 6
    for path, *expected in figures:
        cells = dict(zip(heads, row(page, path), strict=True))
        for head, figure in zip(("Cost µs", "Alone µs", "Knock-out µs"), expected, strict=True):
            if figure is None:
                assert cells[head] == "–"
            else:
                assert number(cells[head]) == pytest.approx(figure, abs=0.5, rel=0.005)


def test_errors_are_printed_as_the_command_prints_them(page: Page) -> None:
    printed = {path: row(page, path)[4] for path in ("h.0", "h.0.attn", "h.0.mlp", "head")}
    assert printed == {"h.0": "+39 %", "h.0.attn": "+100 %", "h.0.mlp": "~0", "head": "skipped"}


def test_boxes_are_as_wide_as_their_figures(page: Page, profile: Path) -> None:
    costs = dict(sql(profile, "SELECT path, cost_us FROM compare WHERE deployment = 'eager'"))
    widths = page.ask(
        "Object.fromEntries([...document.querySelectorAll('.icicle g[data-i]')].map((g) =>"
        "[page.report.path(+g.dataset.i), +g.firstChild.getAttribute('width')]))"
    )
    assert set(widths) == set(costs)
    whole = widths[""] + 1
    for path, width in widths.items():
        assert (width + 1) / whole == pytest.approx(costs[path] / costs[""], abs=0.003)
    y = page.ask(
        "[...document.querySelectorAll('.icicle rect[y]')].map((r) => +r.getAttribute('y'))"
    )
    assert sorted(set(y)) == [0, 28, 56, 84]


def test_colour_says_the_sign_and_hatching_what_was_not_measured(page: Page) -> None:
    fills = page.ask(
        "Object.fromEntries([...document.querySelectorAll('.icicle g[data-i]')].map((g) =>"
        "[page.report.path(+g.dataset.i), g.firstChild.getAttribute('fill')]))"
    )
    assert fills["head"] == "url(#hatch-failed)"
    red, _, blue = (int(c) for c in fills["h.0.attn"][4:-1].split(","))
    assert red > blue + 40  # orange: alone takes more
    noise = [int(c) for c in fills["h.0.mlp"][4:-1].split(",")]
    assert max(noise) - min(noise) < 8  # grey
    assert "+100 %" in page.texts(".icicle .figure")


def test_a_click_selects_and_a_second_one_zooms(page: Page) -> None:
    page.click(".icicle g[data-i='3'] rect")
    assert state(page) == {"m": "h.0.attn"}
    assert page.text(".detail h3").startswith("h.0.attn")
    assert page.ask("document.querySelector('.tree [aria-selected=true]').dataset.i") == "3"
    page.click(".icicle g[data-i='3'] rect")
    assert state(page) == {"m": "h.0.attn", "z": "h.0.attn"}
    assert page.texts(".trail > *") == ["GPT", "h", "0", "attn"]
    page.press("Escape")
    assert state(page)["z"] == "h.0"
    page.press("0")
    assert state(page) == {}


def test_the_waterfall_leads_from_the_step_to_alone(page: Page) -> None:
    page.ask("page.state.set({selected: page.report.find('h.0')})")
    cells = page.texts(".detail .waterfall tbody td.number")
    names = page.texts(".detail .waterfall tbody th")
    assert names == [
        "Cost in the step",
        "launch latency",
        "cache state",
        "idle in the step",
        "Alone",
    ]
    assert cells == ["720", "+250", "−20.0", "−130", "1,000+39 %"]
    assert "contention" in page.text(".detail .waterfall .note")


def test_a_term_within_its_noise_is_no_cause(page: Page) -> None:
    page.ask("page.state.set({selected: page.report.find('h.0.attn')})")
    rows = zip(
        page.texts(".detail .waterfall tbody th"),
        page.texts(".detail .waterfall tbody td.number"),
        strict=True,
    )
    assert dict(list(rows)[1:-1]) == {"launch latency": "+302", "cache state": "~0−6.00 to +2.00"}


def test_kernels_in_the_step_stand_beside_those_alone(page: Page) -> None:
    page.ask("page.state.set({selected: page.report.find('h.0.mlp')})")
    rows = page.ask(
        "[...document.querySelectorAll('#kernels tbody tr')]"
        ".map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    assert rows == [
        ["gemm<float>", "aten::mm", "same", "1", "390", "1", "401", "+11.0"],
        ["fused_add", "–", "only in the step", "0.75", "30.0", "0", "0", "−30.0"],
    ]


def test_fused_kernels_are_a_matrix(page: Page) -> None:
    assert page.texts("#fused thead th") == ["Kernel", "µs", "h.0.attn", "h.0.mlp"]
    assert page.texts("#fused tbody tr > *") == ["fused_add", "40.0", "25 %", "75 %"]


def test_step_work_and_memory_are_those_of_the_views(page: Page, profile: Path) -> None:
    busy = sql(
        profile,
        "SELECT sum(us) FROM step_partition WHERE deployment = 'eager' AND kind = 'idle_host'",
    )
    assert page.texts(".parts dt")[2] == "Idle: waiting for the host"
    assert number(page.texts(".parts dd")[2].split(" ")[0]) == busy[0][0] == 100
    dot = page.text("#roofline circle title")
    assert dot == "h.0.mlp: 100 TFLOP/s at 200 FLOP/byte"
    assert page.texts("#roofline .roof text") == [
        "measured: 800 TFLOP/s, 3.5 TB/s", "datasheet: 1 PFLOP/s, 4 TB/s"
    ]  # fmt: skip
    assert page.texts("#memory tbody tr > *")[:2] == ["h.0.mlp", "forward"]
    assert "3.1 MB" in page.texts("#memory tbody td")
    assert "no duration: 3 events in the context trace" in page.texts("#measured li")


def test_the_deployment_switch_changes_every_figure(page: Page) -> None:
    assert row(page, "h.0.mlp")[1] == "400"
    page.click(".segments label:nth-child(2)")
    assert state(page) == {"d": "graph"}
    assert row(page, "h.0.mlp")[1] == "133"
    page.press("d")
    assert state(page) == {}


def test_search_by_typing(page: Page) -> None:
    page.press("/")
    page.type("mlp|attn")
    assert page.text(".found") == "2 found, 70 % of the step"
    assert page.texts(".tree .hit") == ["attn", "mlp"]
    assert len(page.texts(".tree tbody tr")) == 5  # and what holds them
    page.press("Enter")
    assert state(page)["m"] == "h.0.attn"
    page.press("Escape")
    assert page.text(".found") == ""
    page.press("/")
    page.type("h.(")  # no regular expression: taken as it is
    assert page.text(".found") == "0 found"


def test_the_tree_by_keyboard(page: Page) -> None:
    page.ask("page.tree.focus()")
    page.press("End")
    assert state(page) == {"m": "head"}
    page.press("Home", "ArrowDown", "ArrowDown")
    assert state(page) == {"m": "h.0"}
    page.press("ArrowLeft")
    assert page.ask("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.press("ArrowLeft")
    assert state(page) == {"m": "h"}
    page.press("ArrowDown", "ArrowRight", "ArrowRight")
    assert state(page) == {"m": "h.0.attn"}
    page.press("Enter")
    assert state(page)["z"] == "h.0.attn"
    assert page.ask("document.activeElement.getAttribute('aria-level')") == "4"


def test_sorting_goes_down_up_and_back(page: Page) -> None:
    def order() -> list[str]:
        return [name for name in page.texts(".tree tbody .name") if name in {"attn", "mlp"}]

    assert order() == ["attn", "mlp"]
    page.click(".tree th.cost_us button")
    assert order() == ["mlp", "attn"]
    assert page.ask("document.querySelector('.tree th.cost_us').ariaSort") == "descending"
    page.click(".tree th.cost_us button")
    assert order() == ["attn", "mlp"]
    page.click(".tree th.cost_us button")
    assert state(page) == {}


def test_help_opens_and_closes(page: Page) -> None:
    page.press("?")
    assert page.ask("document.querySelector('dialog').open")
    page.click("dialog button")
    assert not page.ask("document.querySelector('dialog').open")


def test_an_address_leads_back_to_what_was_shown(browser: Browser, report: str) -> None:
    page = browser.open(f"{report}#d=graph&m=h.0.mlp&z=h.0&w=isolated_us&q=mlp&s=error")
    assert page.text(".detail .verdict") == "the graph verdict"
    assert page.ask("document.querySelector('select').value") == "isolated_us"
    assert page.text(".found").startswith("1 found")
    assert page.ask("document.querySelector('.tree th.error').ariaSort") == "descending"
    assert page.complaints() == []
    page.close()


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1300, True)])
def test_narrow_and_dark(browser: Browser, report: str, *, width: int, dark: bool) -> None:
    page = browser.open(report, width=width, dark=dark)
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert page.ask("document.querySelector('.icicle').getBoundingClientRect().width <= innerWidth")
    ground = page.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 22, 26)" if dark else "rgb(255, 255, 255)")
    page.ask("page.state.set({colour: 'share'})")  # the root is all of it: the deepest colour
    inks = page.ask(
        "[...document.querySelectorAll('.icicle text[fill]')].map((one) => "
        "[one.getAttribute('fill'), getComputedStyle(one).fill])"
    )
    assert inks
    as_drawn = {"#000000": "rgb(0, 0, 0)", "#ffffff": "rgb(255, 255, 255)"}
    assert [drawn for _, drawn in inks] == [as_drawn[wanted] for wanted, _ in inks]
    assert page.screenshot().startswith(b"\x89PNG")
    assert page.complaints() == []
    page.close()


HOSTILE = [
    "</script><script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=1">',
    "<!--",
    "'; DROP TABLE run; --",
    "שלום\u202eevil",
    "x" * 10_000,
    "$data\n\\u003c\u2028",
]


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    names = [
        {
            "module_id": 10 + n,
            "run_id": "run-1",
            "path": name,
            "class": name,
            "parent_id": 0,
            "depth": 1,
            "ordinal": 10 + n,
        }
        for n, name in enumerate(HOSTILE)
    ]
    costs = [
        {
            "run_id": "run-1",
            "module_id": 10 + n,
            "phase": "forward",
            "deployment": "eager",
            "kind": "busy",
            "ns": 90_000,
        }
        for n in range(len(HOSTILE))
    ]
    verdicts = [
        {
            "run_id": "run-1",
            "module_id": 10,
            "phase": "forward",
            "deployment": "eager",
            "text": HOSTILE[0],
        }
    ]
    profile = full_profile(
        tmp_path / "hostile.duckdb", module=names, partition=costs, verdict=verdicts
    )
    page = browser.open(write_report(profile))
    assert page.ask("typeof window.hacked") == "undefined"
    shown = page.texts(".tree th .name")
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[3]):
        assert name in shown
    assert "שלום\\u202eevil" in shown
    assert any(len(name) == 1000 and "…" in name for name in shown)
    for n in range(len(HOSTILE)):
        page.ask(f"page.state.set({{selected: page.report.size - 1 - {n}}})")
    assert page.ask("document.querySelectorAll('img, script:not([type]), iframe').length") == 1
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    page.close()
