"""The page of two profiles as a person uses it; what it draws held against the two profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cb_trace.reporters.comparison import Selection
from cb_trace.reporters.difference import read_difference
from cb_trace.store import open_profile
from tests.reporters.pairs import write_pair
from tests.reporters.profiles import RUN
from tests.web.browser import Browser, Page
from tests.web.conftest import write_diff
from tests.web.profiles import full_profile
from tests.web.test_report_page import HOSTILE, number, row, state

SECTIONS = ["step", "changed", "modules", "kernels", "roofline", "memory", "measured"]
HEADS = ["Module", "Base µs", "New µs", "Change µs", "Change, %", "Interval µs", "Kernels"]


@pytest.fixture
def page(browser: Browser, diff: str) -> Iterator[Page]:
    opened = browser.open(diff)
    yield opened
    assert opened.complaints() == []
    opened.close()


def bars(page: Page, selector: str) -> list[list[str]]:
    """Of a waterfall: title and figure of each bar."""
    found: list[list[str]] = page.ask(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((row) =>"
        "[row.querySelector('th').textContent, row.querySelector('.number').firstChild.data])"
    )
    return found


def test_every_section_is_there_and_what_differs_stands_on_top(page: Page) -> None:
    shown = page.ask("[...document.querySelectorAll('section:not([hidden])')].map((s) => s.id)")
    assert shown == SECTIONS
    loud = page.texts(".loud")
    assert loud[0].startswith("These two did not do the same work. batch 4 → 8.")
    assert "device NVIDIA H200 → NVIDIA A100" in loud[1]
    assert page.ask("document.querySelector('.banner').offsetTop < 400")
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")


def test_the_table_has_the_changes_that_the_command_has(
    page: Page, pair: tuple[Path, Path]
) -> None:
    with open_profile(pair[0]) as base, open_profile(pair[1]) as new:
        expected = read_difference(base, new, Selection())
    assert [text.rstrip("↓↑") for text in page.texts(".tree thead th")] == HEADS
    for one in expected.rows:
        cells = dict(zip(HEADS, row(page, one.path), strict=True))
        assert number(cells["Change µs"]) == pytest.approx(one.cost.delta, abs=0.5, rel=0.005)
        if one.presence != "both":
            assert cells["Change, %"] == one.presence
            assert "–" in (cells["Base µs"], cells["New µs"])
        elif one.cost.delta == 0:
            assert cells["Change, %"] == "0"
        elif one.cost.within_noise:
            assert cells["Change, %"] == "within noise"
        else:
            ratio = number(cells["Change, %"].replace(" ", ""))
            assert ratio / 100 == pytest.approx(one.cost.ratio, rel=0.05)
        low, high = (number(text) for text in cells["Interval µs"].split(" to "))
        assert (low, high) == pytest.approx((one.cost.low, one.cost.high), abs=0.5, rel=0.005)


def test_colours_say_more_less_and_noise(page: Page) -> None:
    fills = page.ask(
        "Object.fromEntries([...document.querySelectorAll('.icicle g[data-i]')].map((g) =>"
        "[page.report.path(+g.dataset.i), g.firstChild.getAttribute('fill')]))"
    )

    def rgb(path: str) -> list[int]:
        return [int(part) for part in fills[path][4:-1].split(",")]

    assert rgb("h.0.mlp")[0] > rgb("h.0.mlp")[2] + 20  # orange: new takes more
    assert rgb("old")[2] > rgb("old")[0] + 20  # purple: gone
    assert max(rgb("h.0.attn")) - min(rgb("h.0.attn")) < 8  # grey: within noise
    assert {"~0", "+20 %"} <= set(page.texts(".icicle .figure"))


def test_the_step_stands_twice_on_one_scale(page: Page) -> None:
    whole = page.ask(
        "[...document.querySelectorAll('#step .stepbar')].map((bar) =>"
        "[...bar.querySelectorAll('rect')].reduce((sum, r) => sum + +r.getAttribute('width'), 0))"
    )
    assert whole == pytest.approx([1000 * 1020 / 1131, 1000])
    assert page.texts(".twobar .number") == ["1,020 µs", "1,131 µs"]
    assert page.text(".key-figures div:last-child .range") == "+111 µs (+91.0 to +131)"


def test_waterfalls_lead_from_base_to_new(page: Page) -> None:
    found = bars(page, "#changed tbody tr")
    assert found[0] == ["Base step", "1,020"]
    assert ["h.0.mlp", "+80.0"] in found
    assert ["old", "−20.0"] in found
    assert found[-1] == ["New step", "1,131"]
    changes = sum(number(text) for _, text in found[1:-1])
    assert changes == pytest.approx(111, abs=0.1)
    page.ask("page.state.set({selected: page.report.find('h.0')})")
    inner = bars(page, ".detail .waterfall:first-of-type tbody tr")
    assert inner == [
        ["Cost, base", "720"], ["mlp", "+80.0"], ["extra", "+50.0"], ["attn", "+1.00"],
        ["Cost, new", "851"],
    ]  # fmt: skip


def test_the_change_by_term_adds_up(browser: Browser, tmp_path: Path) -> None:
    """+131 µs of cost, alone as before: the terms of the error shrank by as much. Only the new one
    knows a residual, so that it stands with the terms that hold it in the base."""
    shrunk = {
        "run_id": RUN, "module_id": 2, "phase": "forward", "deployment": "eager",
        "kind": "residual", "ns": -131_000,
    }  # fmt: skip

    def write(target: Path, **rows: list[dict[str, Any]]) -> Path:
        return full_profile(target, **rows, term=[shrunk] if target.stem == "new" else [])

    page = browser.open(write_diff(*write_pair(tmp_path, write)) + "#m=h.0")
    assert bars(page, ".detail .waterfall:last-of-type tbody tr") == [
        ["Cost, base", "720"],
        ["less cache state, contention, residual", "+131"],
        ["Cost, new", "851"],
    ]
    assert "no sequence run" in page.text(".detail .waterfall .note")
    page.close()


def test_verdicts_of_both_and_links(page: Page) -> None:
    page.ask("page.state.set({selected: page.report.find('h.0.mlp')})")
    assert page.texts(".detail .side") == ["Base: the eager verdict", "New: the eager verdict"]
    links = page.texts(".detail .further a")
    assert links == ["Open the base in Perfetto", "Open the new one in Perfetto"]
    page.ask("page.state.set({selected: page.report.find('old')})")
    assert page.text(".detail .verdict").startswith("Only in the base")


def test_the_figure_picker_changes_table_and_icicle(page: Page) -> None:
    page.ask("page.state.set({width: 'isolated_us'})")
    assert state(page) == {"w": "isolated_us"}
    assert row(page, "h.0.attn")[1:5] == ["600", "600", "0", "0"]
    assert row(page, "h.0.extra")[1:3] == ["–", "–"]


def test_search_sort_and_keys_work_as_in_the_page_of_one(page: Page) -> None:
    page.click(".tree th.delta button")
    assert page.ask("document.querySelector('.tree th.delta').ariaSort") == "descending"
    assert page.texts(".tree tbody .name")[:4] == ["GPT", "h", "0", "mlp"]
    page.press("/")
    page.type("mlp|old")
    assert page.text(".found") == "2 found, +60.0 µs"
    page.press("Enter")
    assert state(page)["m"] == "h.0.mlp"
    page.press("Escape", "Home", "ArrowDown")
    assert state(page)["m"] == "h"
    page.press("Enter")
    assert state(page)["z"] == "h"
    page.press("0")
    assert "z" not in state(page)


def test_an_address_leads_back(browser: Browser, diff: str) -> None:
    page = browser.open(f"{diff}#m=old&z=&c=share&q=old")
    assert page.text(".detail h3").startswith("old")
    assert page.ask("document.querySelectorAll('select')[1].value") == "share"
    assert page.text(".found").startswith("1 found")
    page.close()


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    def evil(target: Path, **rows: list[dict[str, Any]]) -> Path:
        names = [
            {**rows["module"][0], "module_id": 20 + n, "path": name, "class": name,
             "ordinal": 20 + n}
            for n, name in enumerate(HOSTILE)
        ]  # fmt: skip
        parts = [{**rows["partition"][0], "module_id": 20 + n} for n in range(len(HOSTILE))]
        module, partition = rows.pop("module"), rows.pop("partition")
        return full_profile(
            target, **rows, module=[*module, *names], partition=[*partition, *parts]
        )

    base, new = write_pair(
        tmp_path, evil, settings=json.dumps({HOSTILE[0]: HOSTILE[1]}), device_name=HOSTILE[4]
    )
    page = browser.open(write_diff(base, new))
    assert page.ask("typeof window.hacked") == "undefined"
    for n in range(page.ask("page.report.size")):
        page.ask(f"page.state.set({{selected: {n}}})")
    assert page.ask("document.querySelectorAll('img, script:not([type]), iframe').length") == 1
    assert HOSTILE[1] in page.text(".banner")
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    page.close()


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1300, True)])
def test_narrow_and_dark(browser: Browser, diff: str, *, width: int, dark: bool) -> None:
    page = browser.open(diff, width=width, dark=dark)
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    page.close()


def test_steps_of_other_phases_have_no_change(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(write_diff(*write_pair(tmp_path, full_profile, phases="forward,backward")))
    assert page.texts(".key-figures dt") == ["Bare step, base", "Bare step, new"]
    assert page.texts(".key-figures .big") == ["1,020", "1,131"]
    heads = page.texts("#step table.plain:first-of-type thead th")
    assert heads == ["Part", "Base, µs", "of its step", "New, µs", "of its step"]
    assert page.ask("document.querySelector('#changed').hidden")
    assert number(row(page, "h.0.mlp")[3]) == 80
    assert page.complaints() == []
    page.close()
