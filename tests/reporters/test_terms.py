"""``compare --module``: the terms of that module's error, each with its interval."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from cb_trace.reporters.comparison import Comparison, Selection, read_comparison
from cb_trace.reporters.rows import comparison_json, comparison_markdown
from cb_trace.reporters.table import footer_lines, print_comparison
from cb_trace.store import open_profile
from tests.reporters.profiles import RUN, write_profile

ATTENTION = 3  # cost 300 µs, alone 600 (590 to 610)
LIST = 1
TERMS = {
    "launch": (250_000, 240_000, 262_500),
    "cache": (70_000, 65_000, 75_000),
    "kernel_choice": (0, 0, 0),
    "fusion": (-15_300, -16_000, -14_000),
    "overlap": (300, -200, 800),  # within its noise
    "contention": (0, 0, 0),
    "idle": (-5_000, -5_500, -4_500),
    "residual": (0, -4, 4_000),
}


def profile(
    target: Path,
    terms: dict[str, tuple[int, int, int] | None],
    *more: dict[str, Any],
    module_id: int = ATTENTION,
) -> Path:
    given = {"run_id": RUN, "module_id": module_id, "phase": "forward", "deployment": "eager"}
    rows = [
        given | {"kind": kind} | dict(zip(("ns", "low_ns", "high_ns"), term or (), strict=False))
        for kind, term in reversed(terms.items())
    ]
    return write_profile(target, term=rows, replay=list(more))


def read(file: Path, module: str | None = "h.0.attn") -> Comparison:
    with open_profile(file) as connection:
        return read_comparison(connection, Selection(module=module))


def shown(comparison: Comparison) -> list[list[str]]:
    text = StringIO()
    print_comparison(comparison, Console(file=text, width=200))
    _, _, rest = text.getvalue().partition("from the step to alone")
    table, _, _ = rest.partition("\n\n")
    return [[cell for cell in line.split("  ") if cell] for line in table.splitlines()[2:]]


def test_every_term_has_its_interval_and_noise_is_named(tmp_path: Path) -> None:
    found = read(profile(tmp_path / "p.duckdb", dict(TERMS)))
    assert [[cell.strip() for cell in row] for row in shown(found)] == [
        ["cost in the step", "300.0", "297.0", "303.0"],
        ["launch", "+250.0", "+240.0", "+262.5"],
        ["cache", "+70.0", "+65.0", "+75.0"],
        ["kernel choice", "~0", "0.0", "0.0"],
        ["fusion", "-15.3", "-16.0", "-14.0"],
        ["overlap", "~0", "-0.20", "+0.80"],
        ["contention", "~0", "0.0", "0.0"],
        ["idle", "-5.0", "-5.5", "-4.5"],
        ["residual", "~0", "0.0", "+4.0"],
        ["alone", "600.0", "590.0", "610.0"],
    ]
    markdown = comparison_markdown(found)
    assert "| overlap | ~0 | -0.20 | +0.80 |" in markdown
    terms = json.loads(comparison_json(found))["terms"]
    assert [term["kind"] for term in terms] == list(TERMS)
    assert terms[0] == {"kind": "launch", "us": 250.0, "low_us": 240.0, "high_us": 262.5}
    assert sum(term["us"] for term in terms) == 300.0


def test_without_a_sequence_run_hot_and_cold_stand_beside_the_cache(tmp_path: Path) -> None:
    alone = {"run_id": RUN, "module_id": LIST, "phase": "forward", "call_index": 0, "calls": 1}
    alone |= {"median_ns": 900_000, "low_ns": 890_000, "high_ns": 910_000}
    both = [
        alone | {"condition": how, "replay_id": id_, "measured_id": id_, "busy_ns": ns}
        for id_, how, ns in ((90, "hot", 280_000), (91, "cold", 330_000))
    ]
    unknown = TERMS | {"contention": None, "residual": None}
    found = read(profile(tmp_path / "p.duckdb", unknown, *both, module_id=LIST), "h")
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in shown(found)}
    assert rows["cache, contention, residual"] == ["+70.0", "+65.0", "+75.0"]
    assert not {"cache", "contention", "residual"} & rows.keys()
    said = "alone it is busy for 280.0 µs hot, 330.0 µs cold"
    assert [line for line in footer_lines(found) if said in line]
    measured = profile(tmp_path / "sequence.duckdb", dict(TERMS), *both, module_id=LIST)
    assert not [line for line in footer_lines(read(measured, "h")) if "it is busy for" in line]


def test_a_term_that_was_not_measured_is_no_zero(tmp_path: Path) -> None:
    """A replay that was not profiled leaves idle alone."""
    terms = dict.fromkeys(TERMS) | {"idle": TERMS["idle"]}
    rows = {row[0].strip(): row[1].strip() for row in shown(read(profile(tmp_path / "p", terms)))}
    assert (rows["launch"], rows["cache, contention, residual"], rows["idle"]) == ("–", "–", "-5.0")


def test_there_are_none_of_the_whole_tree_or_without_a_figure_alone(tmp_path: Path) -> None:
    file = profile(tmp_path / "p.duckdb", dict(TERMS))
    assert shown(read(file, None)) == []
    assert shown(read(file, "head")) == []
