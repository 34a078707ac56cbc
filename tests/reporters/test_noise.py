"""The table, ``--fail-above`` and the verdict judge noise alike, on a profile made step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cb_trace.analysis import (
    Interval,
    cost_bounds,
    scaled_partition,
    step_parts,
)
from cb_trace.analysis.verdicts import verdicts
from cb_trace.bundle import Deployment
from cb_trace.columns import SCHEMA_VERSION
from cb_trace.reporters.comparison import Selection, read_comparison
from cb_trace.reporters.table import error_text
from cb_trace.store import append, create, open_profile
from tests.analysis.timelines import LIST, PARENT, ROOT, A, B, C, D, Timeline
from tests.frames import frame

NAMES = {ROOT: "", A: "a", B: "b", C: "a.c", LIST: "list", D: "list.d"}


def timeline() -> Timeline:
    """Steps of 1000: a and b trade 200 from step to step, d is steady, 100 are idle."""
    made = Timeline()
    for number, more in enumerate((200, 0, 200, 0)):
        start = 10_000 * number
        made.step(start, 1000)
        made.kernel(A, start + 100, 200 + more, step=number)
        made.kernel(B, start + 300 + more, 400 - more, step=number)
        made.kernel(D, start + 700, 300, step=number)
    return made


def replay(number: int, module: int, *wall: int) -> dict[str, Any]:
    figures = dict(zip(("median_ns", "low_ns", "high_ns"), wall, strict=True))
    row = {"run_id": "r", "replay_id": number, "measured_id": number, "module_id": module}
    return row | figures | {"phase": "forward", "condition": "hot", "calls": 1, "samples": 30}


def profile(target: Path, *walls: tuple[int, int, int, int]) -> Path:
    bare: dict[Deployment, Interval] = {
        "eager": Interval(1000, 990, 1010),
        "graph": Interval(950, 950, 950),
    }
    module = frame("module", *(
        {"module_id": id_, "run_id": "r", "path": NAMES[id_], "class": "M", "parent_id": up,
         "ordinal": id_} for id_, up in PARENT.items()
    ))  # fmt: skip
    made = timeline()
    frames = made.frames() | {"module": module, "launch": made.launch_frame()}
    parts = step_parts(**frames, device_type="cuda")
    tables = {
        "run": frame("run", {"run_id": "r", "schema_version": SCHEMA_VERSION}),
        "module": module,
        "replay": frame("replay", *(replay(n, *wall) for n, wall in enumerate(walls))),
        "partition": scaled_partition(parts, run_id="r", bare=bare),
    }
    tables["cost_bounds"] = cost_bounds(parts, tables["partition"], module, run_id="r", bare=bare)
    given = (tables["partition"], tables["cost_bounds"], frame("term"), tables["replay"], module)
    tables["verdict"] = verdicts(*given, run_id="r")
    with create(target) as draft:
        for table, rows in tables.items():
            append(draft.connection, table, rows)
    return target


@pytest.mark.parametrize(
    ("walls", "root", "graph_root"),
    [
        # Bounds of parts add up to 790 to 1210 for the root; it is known to 990 to 1010.
        ([(ROOT, 1030, 1020, 1040), (A, 310, 300, 320), (D, 310, 305, 315)], "+3%", "+8%"),
        ([(ROOT, 1030, 1011, 1040), (A, 420, 401, 430), (D, 301, 299, 303)], "+3%", "+8%"),
        ([(ROOT, 1030, 1010, 1040), (A, 420, 400, 430), (D, 301, 300, 303)], "~0", "+8%"),
        ([(ROOT, 960, 940, 989), (B, 150, 120, 199), (D, 280, 270, 299)], "-4%", "~0"),
        ([(ROOT, 960, 950, 990), (B, 150, 120, 200), (D, 280, 270, 300)], "~0", "~0"),
    ],
)
def test_table_and_verdict_agree(
    walls: list[tuple[int, int, int, int]], root: str, graph_root: str, tmp_path: Path
) -> None:
    shown = {}
    with open_profile(profile(tmp_path / "p.duckdb", *walls)) as connection:
        for way in ("eager", "graph"):
            for row in read_comparison(connection, Selection(deployment=way)).rows:
                text, said = error_text(row), row.record["verdict"]
                shown[way, row.path] = text
                assert (text == "–") == ("not replayed alone" in said)
                assert (text == "~0") == ("no difference beyond noise" in said)
                assert row.exceeds(0.0) == (text not in {"–", "~0"})
    assert (shown["eager", ""], shown["graph", ""]) == (root, graph_root)
    assert shown["eager", "list"] == shown["eager", "list.d"] != "–"
