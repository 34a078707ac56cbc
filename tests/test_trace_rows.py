"""Rows of the facts on how traces break that show in the finished profile, not in the loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cb_trace.conduct import ingest
from tests.kineto import Event, annotation, event, kernel, launch, module_slice, write_trace
from tests.test_conduct import rows

STEP = [annotation("ProfilerStep#0", 0, 2000), module_slice("Net_0", 1, 900, 1, None)]
COVERAGE = """
    SELECT status, reason, events, ns, flaw_ns FROM coverage ORDER BY ALL
"""
COMPARE = """
    SELECT path, context_us, busy_us, exposed_us, isolated_us, error_ratio FROM compare ORDER BY 1
"""


def made(folder: Path, *events: Event) -> Path:
    return ingest(write_trace(folder / "t.json", [*STEP, *events]), folder / "p.duckdb").profile


def launched(name: str, at: float, dur: float, number: int, **args: Any) -> list[Event]:
    """A kernel and its launch inside Net's slice."""
    return [launch(2 + number, 1, number), kernel(name, at, dur, number, **args)]


def test_rows_18_and_19_busy_is_the_union_and_the_sum_stands_beside_it(tmp_path: Path) -> None:
    """A slice that overruns the next one on its stream (18), and programmatic launch (19)."""
    profile = made(
        tmp_path,
        *launched("a", 10, 20, 1),
        *launched("pdl", 25, 20, 2),  # begins 5 µs before "a" ends
        *launched("overrun", 50, 900, 3), *launched("inside", 60, 100, 4),
    )  # fmt: skip
    assert rows(profile, COMPARE)[1][:4] == ("Net_0", 1040.0, 935.0, 935.0)
    # no kernel is shortened: each has its whole duration in its module
    assert rows(profile, COVERAGE) == [("attributed", None, 4, 1_040_000, None)]


def test_row_26_work_outside_the_steps_is_shown_and_in_no_figure(tmp_path: Path) -> None:
    warm_up = [launch(-90, 1, 8), kernel("warm-up", -80, 50, 8)]
    profile = made(tmp_path, *warm_up, *launched("gemm", 10, 20, 1))
    assert rows(profile, COVERAGE) == [
        ("attributed", None, 1, 20_000, None),
        ("noted", "kernel outside every step", 1, None, 50_000),
        ("unattributed", "outside any module", 1, 50_000, None),
    ]
    assert rows(profile, COMPARE)[1][:3] == ("Net_0", 20.0, 20.0)


def test_row_28_a_replayed_graph_is_a_row_of_its_own(tmp_path: Path) -> None:
    graph = event("cuda_runtime", "cudaGraphLaunch", 100, 2, correlation=9)
    inside = [kernel(f"k{at}", 200 + 10 * at, 5, 9) for at in range(3)]
    outside = {**graph, "ts": 1500, "args": {"correlation": 7}}
    profile = made(tmp_path, graph, *inside, outside, kernel("k", 1600, 5, 7))
    assert rows(profile, COVERAGE) == [
        ("unattributed", "graph replay, module unknown", 4, 20_000, None)
    ]


@pytest.mark.parametrize("place", ["inside a module", "outside"])
def test_row_40_collectives_are_a_row_of_their_own_and_never_held_against_anything(
    place: str, tmp_path: Path
) -> None:
    """Their time is that of waiting for the others; a module that runs one is not replayed."""
    at = 20 if place == "inside a module" else 1200
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    collective = [launch(at, 1, 9), kernel(name, 1300, 400, 9, stream=20)]
    profile = made(tmp_path, *launched("gemm", 10, 20, 1), *collective)
    gemm = ("attributed", None, 1, 20_000, None)
    apart = [gemm, ("unattributed", "communication", 1, 400_000, None)]
    whole = [("attributed", None, 2, 420_000, None)]
    assert rows(profile, COVERAGE) == (whole if place == "inside a module" else apart)
    assert {row[4:] for row in rows(profile, COMPARE)} == {(None, None)}
