"""Any step on one stream: as it is it takes what the bare one does; no module costs more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cb_trace.analysis.host_alone import Factors
from cb_trace.analysis.marginal import removed, scaled_steps
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.program import Program, StepEvents, programs
from cb_trace.analysis.simulate import simulate
from cb_trace.analysis.stats import FloatArray, Interval
from cb_trace.analysis.to_bare import StepWindow
from cb_trace.bundle import Deployment
from tests.analysis.test_simulate import stepped
from tests.analysis.timelines import LIST, MODULE, PARENT, ROOT, A, B, C, D, Timeline
from tests.frames import frame

ORDER = (ROOT, A, C, A, B, D, ROOT)  # whose the host's stretches are, one after another
CALLS = {ROOT: (0, 7), A: (1, 4), C: (2, 3), B: (4, 5), D: (5, 6)}  # from and up to which
SPENT = {ROOT: 20_000.0, A: 9_000.0, B: 7_000.0, C: 8_000.0, D: 3_000.0}
KNOWN = [
    Parts(),
    Parts(host_ratio=0.4, factors=Factors({A: 0.5, B: 0.6, C: 0.3})),
    Parts(host_ratio=0.4, spent_ns=SPENT),
    Parts(host_ratio=0.4, spent_ns=SPENT, window=StepWindow(60_000, 20_000, 90_000, 10_000)),
]


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Up to two kernels of each stretch, one after another."""
    lengths = [1_000 * draw(st.integers(1, 40)) for _ in ORDER]
    at = [0, *accumulate(lengths)]
    timeline = Timeline().step(0, at[-1])
    timeline.steps[0]["thread"] = 1
    numbers = dict(zip(CALLS, range(len(CALLS)), strict=True))
    for module, (first, after) in CALLS.items():
        up = PARENT[module] if module != D else ROOT  # no call of a list
        around = None if up is None else numbers[up]
        timeline.call(module, at[first], at[after] - at[first], parent_call_id=around)
    free = 0
    for module, begin, length in zip(ORDER, at, lengths, strict=False):
        for place in range(draw(st.integers(0, 2))):
            launch, called = len(timeline.launches), begin + place * length // 2
            timeline.launch(launch, "cudaLaunchKernel", called, 300)
            start = max(free + 500 * draw(st.integers(0, 3)), called + 300)
            start += 1_000 * draw(st.integers(0, 5))
            free = start + 1_000 * draw(st.integers(1, 60))
            timeline.kernel(module, start, free - start, launch_id=launch)
    assume(timeline.kernels)
    return timeline


def without(
    steps: Sequence[Program], deployment: Deployment, bare_ns: int, parts: Parts
) -> FloatArray:
    """The step as it is, and without each of the modules."""
    bare = Interval(bare_ns, bare_ns, bare_ns)
    (scale,) = scaled_steps(steps, deployment, bare, parts).middle
    stays = removed(scale.program.owners, MODULE, [(module, "forward") for module in PARENT])
    stays = np.hstack([np.ones((len(stays), 1)), stays])
    return simulate(scale.program, scale.variants(stays, stays))


def elsewhere(timeline: Timeline, seed: int) -> StepEvents:
    """The same rows in another order, at another time, with other numbers."""
    frames = timeline.frames() | {"launch": timeline.launch_frame(), "op": frame("op")}
    moved = pl.col("^start_ns$") + 2**60 + 1
    ids = pl.col("^(kernel|launch|call|parent_call)_id$") * 7 + 3
    changed = {
        name: rows.with_columns(moved, ids).sample(fraction=1, shuffle=True, seed=seed)
        for name, rows in frames.items()
    }
    return StepEvents(**changed)


@settings(max_examples=60, deadline=None)
@given(
    timelines(),
    st.sampled_from(KNOWN),
    st.sampled_from(["eager", "graph"]),
    st.integers(10_000, 400_000),  # longer than from a launch to its kernel
)
def test_as_it_is_it_takes_the_bare_step_and_children_cost_no_more_than_their_parents(
    timeline: Timeline, parts: Parts, deployment: Deployment, bare_ns: int
) -> None:
    whole, *left = without(stepped(timeline), deployment, bare_ns, parts).tolist()
    if deployment == "eager" or len(timeline.kernels) > 1:  # one kernel has no gap to give way
        assert whole == pytest.approx(bare_ns, abs=1)
    assert min(left) >= 0
    assert max(left) <= whole + 1
    for module, parent in PARENT.items():
        if parent is not None:
            assert left[parent] <= left[module] + 1
    assert left[LIST] == left[D]


@settings(max_examples=40, deadline=None)
@given(
    timelines(),
    st.lists(st.sampled_from([7, 8]), min_size=14, max_size=14),
    st.sampled_from(KNOWN),
    st.sampled_from(["eager", "graph"]),
    st.integers(0, 1_000),
)
def test_no_figure_depends_on_the_order_of_rows_on_numbers_or_on_when_the_trace_begins(
    timeline: Timeline, streams: list[int], parts: Parts, deployment: Deployment, seed: int
) -> None:
    for kernel, stream in zip(timeline.kernels, streams, strict=False):
        kernel["stream"] = stream
    here = without(stepped(timeline), deployment, 100_000, parts)
    there = without(programs(elsewhere(timeline, seed)), deployment, 100_000, parts)
    assert here.tolist() == there.tolist()
