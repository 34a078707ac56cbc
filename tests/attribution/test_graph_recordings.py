"""CUDA graphs recorded on the H200: each module has the kernels that it has without the graph."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from cb_trace.range_names import path_of_range
from tests.attribution.brute import innermost
from tests.attribution.recordings import EAGER, GRAPH, Recording, recording

Work = dict[tuple[object, object], Counter[str]]


def work_of(known: Recording, step: int) -> Work:
    """Kernel names of one step, by module and phase; one of several owners once for each."""
    names = dict(
        known.events.kernel.filter(pl.col("step") == step).select("kernel_id", "name").iter_rows()
    )
    found: Work = {}
    for kernel_id, rows in known.rows().items():
        for path, phase in {(row[0], row[1]) for row in rows} if kernel_id in names else ():
            found.setdefault((path, phase), Counter())[names[kernel_id]] += 1
    return found


@pytest.mark.parametrize("step", [0, 1])
def test_a_graphed_training_step_has_the_kernels_of_the_eager_one(step: int) -> None:
    """Two recordings of the same workload, made apart."""
    graph, eager = work_of(recording(GRAPH), step), work_of(recording(EAGER), step)
    assert graph == eager
    assert len({path for path, _ in graph}) > 40
    assert {phase for _, phase in graph} == {"forward", "backward", "optimizer"}


def launched_in(known: Recording) -> Work:
    """The captured run read in plain Python: the innermost range around each launch."""
    events = known.captured
    assert events is not None
    ranges = [r for r in events.annotation.to_dicts() if path_of_range(r["name"]) is not None]
    launches = {row["launch_id"]: row for row in events.launch.to_dicts()}
    kernels = events.kernel.filter(pl.col("step").is_not_null()).to_dicts()
    around = innermost([launches[k["launch_id"]] for k in kernels], ranges)
    found: Work = {}
    for kernel, at in zip(kernels, around, strict=True):
        path = "" if at is None else path_of_range(ranges[at]["name"])
        found.setdefault((path, "forward"), Counter())[kernel["name"]] += 1
    return found


@pytest.mark.parametrize("step", [0, 1])
def test_a_graphed_forward_has_the_kernels_that_were_launched_in_each_module(step: int) -> None:
    known = recording("nanogpt_forward_cudagraph")
    graph = work_of(known, step)
    assert graph == launched_in(known)
    assert sum(sum(names.values()) for names in graph.values()) == 88 + 9
