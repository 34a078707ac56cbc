"""A large model: few elements are drawn, and the page stays small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.reporters.profiles import RUN, Row, write_profile
from tests.web.browser import Browser
from tests.web.conftest import write_diff, write_report

MODULES = 10_000
MOST_BYTES = 400_000  # of a page of 200 modules


def tree(modules: int, fan_out: int = 6) -> Iterator[Row]:
    """Below the small profile's root: a tree in which every module holds ``fan_out`` others."""
    paths = {0: ""}
    for number in range(1, modules):
        parent = (number - 1) // fan_out
        paths[number] = f"{paths[parent]}.layer{number}".removeprefix(".")
        yield {
            "module_id": 100 + number, "run_id": RUN, "path": paths[number], "class": "Block",
            "parent_id": 100 + parent if parent else 0, "depth": paths[number].count(".") + 1,
            "ordinal": 100 + number, "parameters": number,
        }  # fmt: skip


def bare_profile(target: Path, modules: int) -> Path:
    rows = list(tree(modules))
    given = {"run_id": RUN, "phase": "forward", "deployment": "eager", "kind": "busy"}
    costs = [{**given, "module_id": row["module_id"], "ns": 1000 + row["ordinal"]} for row in rows]
    return write_profile(target, module=rows, partition=costs)


def full_profile(target: Path, modules: int) -> Path:
    rows = list(tree(modules))
    figures = [
        (row["module_id"], way, 1000 + 7 * row["module_id"])
        for row in rows
        for way in ("eager", "graph")
    ]
    given = {"run_id": RUN, "phase": "forward"}
    return write_profile(
        target,
        module=rows,
        partition=[
            {**given, "module_id": i, "deployment": way, "kind": kind, "ns": ns}
            for i, way, ns in figures
            for kind in ("busy", "idle_host")
        ],
        term=[
            {
                **given,
                "module_id": i,
                "deployment": way,
                "kind": kind,
                "ns": ns,
                "low_ns": ns - 9,
                "high_ns": ns + 9,
            }
            for i, way, ns in figures
            for kind in ("launch", "cache", "fusion", "idle")
        ],
        verdict=[
            {
                **given,
                "module_id": i,
                "deployment": way,
                "text": f"alone {ns} µs, of which 5,551 µs launch latency",
            }
            for i, way, ns in figures
        ],
    )


def test_a_page_of_200_modules_is_small(tmp_path: Path) -> None:
    address = write_report(full_profile(tmp_path / "m200.duckdb", 200))
    assert Path(address.removeprefix("file://")).stat().st_size < MOST_BYTES


def test_a_page_of_two_profiles_of_200_modules_is_small(tmp_path: Path) -> None:
    base, new = (full_profile(tmp_path / f"{name}.duckdb", 200) for name in ("base", "new"))
    address = write_diff(base, new)
    assert Path(address.removeprefix("file://")).stat().st_size < MOST_BYTES


def test_of_10_000_modules_what_shows_is_drawn(browser: Browser, tmp_path: Path) -> None:
    page = browser.open(write_report(bare_profile(tmp_path / "large.duckdb", MODULES)))
    assert page.ask("page.report.size") > MODULES
    boxes = page.ask("document.querySelectorAll('.icicle g[data-i]').length")
    assert 100 < boxes < 6000
    narrowest = page.ask(
        "Math.min(...[...document.querySelectorAll('.icicle g[data-i] rect')]"
        ".map((rect) => +rect.getAttribute('width')))"
    )
    assert narrowest >= 0.6
    page.ask("page.state.set({search: 'layer'})")  # opens everything
    assert page.ask("page.tree.rows.length") >= MODULES
    assert page.ask("document.querySelectorAll('.tree tr').length") < 100
    page.ask("page.tree.focus()")
    page.press("End")
    assert page.ask("document.activeElement.getAttribute('aria-rowindex')") == str(
        page.ask("page.tree.rows.length") + 1
    )
    assert page.complaints() == []
    page.close()
