"""The report of a recording that ships: every view walked through, what it draws held to SQL."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.browser import Browser, Page
from tests.web.conftest import write_report
from tests.web.test_report_page import number, row, sql, state


@pytest.fixture
def page(browser: Browser, sample: Path) -> Iterator[Page]:
    opened = browser.open(write_report(sample))
    yield opened
    assert opened.complaints() == []
    opened.close()


def test_a_narrow_page_does_not_scroll_sideways(page: Page) -> None:
    page.resize(420, 900)
    page.wait("innerWidth === 420")
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")


def test_boxes_and_rows_are_those_of_compare(page: Page, sample: Path) -> None:
    figures = sql(
        sample, "SELECT path, cost_us, isolated_us FROM compare WHERE deployment = 'eager'"
    )
    costs = {path: cost for path, cost, _ in figures}
    boxes = dict(
        page.ask(
            "[...document.querySelectorAll('.icicle g[data-i]')].map((g) =>"
            "[page.report.path(+g.dataset.i), +g.firstChild.getAttribute('width')])"
        )
    )
    whole = boxes[""] + 1
    wide = {path: width for path, width in boxes.items() if width > 3}
    assert len(wide) > 50
    for path, width in wide.items():
        assert (width + 1) / whole == pytest.approx(costs[path] / costs[""], abs=0.002)
    for path, cost, alone in figures[::9]:
        cells = row(page, path)
        assert number(cells[1]) == pytest.approx(cost, abs=0.5, rel=0.005)
        assert number(cells[3]) == pytest.approx(alone, abs=0.5, rel=0.005)


def test_the_step_stands_beside_what_its_parts_say(page: Page, sample: Path) -> None:
    said = {
        kind: ns / 1e3
        for kind, ns in sql(
            sample,
            "SELECT kind, ns FROM marginal WHERE module_id IS NULL AND deployment = 'eager'",
        )
    }
    names = page.texts(".foretold th")
    figures = page.ask(
        "[...document.querySelectorAll('.foretold .number')].map((td) => td.firstChild.data)"
    )
    shown = {name: number(figure) for name, figure in zip(names, figures, strict=True)}
    assert shown["Predicted from its parts"] == pytest.approx(said["predicted"], abs=0.5)
    assert shown["Innermost modules alone, added up"] == pytest.approx(
        said["isolation_sum"], abs=0.5
    )
    assert shown["All kernels, added up"] == pytest.approx(said["kernel_sum"], abs=0.5)


def test_terms_of_a_module_lead_from_its_cost_to_its_figure_alone(page: Page) -> None:
    page.ask("page.state.set({selected: page.report.find('h.3.mlp')})")
    figures = [
        number(text)
        for text in page.ask(
            "[...document.querySelectorAll('.detail .waterfall .number')]"
            ".map((td) => td.firstChild.data)"
        )
        if text != "~0"
    ]
    assert sum(figures[:-1]) == pytest.approx(figures[-1], abs=0.5 * len(figures))


def test_every_choice_draws(page: Page) -> None:
    for key in ("width", "colour"):
        for choice in page.ask(f"page.{key}s.map((one) => one.key)"):
            page.ask(f"page.state.set({{{key}: {choice!r}}})")
            assert page.ask("document.querySelectorAll('.icicle g[data-i]').length") > 1
    for deployment in page.ask("page.report.deployments"):
        page.ask(f"page.state.set({{deployment: {deployment!r}}})")
    for digit in "12345":
        page.press(digit)
    for sort in page.ask("page.tree.columns.map((one) => one.key)"):
        page.ask(f"page.state.set({{sort: {sort!r}}})")
        assert page.texts(".tree tbody tr")


def test_a_reload_restores_what_was_shown(page: Page) -> None:
    page.ask(
        "page.state.set({selected: page.report.find('h.1.attn'), width: 'busy_us', sort: 'error'})"
    )
    before = (state(page), page.text(".detail h3"), page.texts(".tree tbody .name"))
    page.call("Page.reload")
    page.wait("document.documentElement?.dataset.ready === '' && location.hash.length > 1")
    assert (state(page), page.text(".detail h3"), page.texts(".tree tbody .name")) == before


def test_it_prints(page: Page) -> None:
    printed = base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
    assert page.ask("document.documentElement.dataset.ready") == ""


def test_the_clock_is_the_one_after_the_bare_steps(page: Page, sample: Path) -> None:
    ((low, high),) = sql(
        sample, "SELECT min(sm_clock_mhz), max(sm_clock_mhz) FROM step_sample WHERE kind = 'bare'"
    )
    assert low == high
    facts = dict(zip(page.texts(".facts dt"), page.texts(".facts dd"), strict=True))
    assert facts["SM clock"] == f"{low:,} MHz after bare steps"
    assert facts["Device"].endswith(" MiB")
