"""Bounds of what modules cost: of the sum of each step, not the sum of the bounds of parts."""

from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis import BareStep, Interval, cost_bounds, scaled_partition, step_parts
from cb_trace.analysis.costs import bounded_parts
from cb_trace.bundle import Deployment
from tests.analysis.timelines import LIST, MODULE, ROOT, A, B, D, Timeline

Bare = dict[Deployment, BareStep]


def split(timeline: Timeline, bare: Bare, device_type: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The partition and the costs with their bounds."""
    frames = timeline.frames() | {"launch": timeline.launch_frame()}
    parts = step_parts(**frames, device_type=device_type)
    partition = scaled_partition(parts, run_id="r", bare=bare)
    bounds = cost_bounds(parts, partition, MODULE, run_id="r", bare=bare)
    return partition, bounds


def costs(timeline: Timeline, bare: Bare | None = None, **more: Any) -> dict[tuple[int, str], Any]:
    _, bounds = split(timeline, bare or {}, more.get("device_type", "cuda"))
    names = ("low_ns", "high_ns", "idle_low_ns", "idle_high_ns")
    return {(row["module_id"], row["phase"]): tuple(row[n] for n in names)
            for row in bounds.iter_rows(named=True)}  # fmt: skip


def trading(**more: Any) -> Timeline:
    """Two steps of 100: a and b take 80 together, 20 are idle before them."""
    timeline = Timeline()
    for number, (a, b) in enumerate(((30, 50), (50, 30))):
        start = 1000 * number
        timeline.step(start, 100)
        timeline.kernel(A, start + 20, a, step=number)
        timeline.kernel(B, start + 20 + a, b, step=number, **more)
    return timeline


def test_what_children_take_from_each_other_leaves_their_parent_sure() -> None:
    assert costs(trading()) == {
        (ROOT, "forward"): (100, 100, 20, 20),
        (A, "forward"): (30, 50, 0, 0),
        (B, "forward"): (30, 50, 0, 0),
    }


def test_the_step_is_as_sure_as_the_bare_one() -> None:
    found = costs(trading(), {"eager": Interval(90, 88, 93)})
    assert found[ROOT, "forward"] == (88, 93, 8, 13)
    assert found[A, "forward"] == (30, 50, 0, 0)
    found = costs(trading(), {"eager": Interval(50, 40, 60)}, device_type="cpu")
    assert found[ROOT, "forward"] == (40, 60, 8, 12)


def test_idle_that_the_trace_does_not_have_is_the_root_s() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 0, 60).kernel(D, 60, 40)
    assert costs(timeline, {"eager": Interval(130, 120, 150)}) == {
        (ROOT, "forward"): (120, 150, 20, 50),
        (A, "forward"): (60, 60, 0, 0),
        (LIST, "forward"): (40, 40, 0, 0),
        (D, "forward"): (40, 40, 0, 0),
    }


def test_all_phases_together_are_resampled_together() -> None:
    found = costs(trading(phase="backward"))
    assert found[ROOT, "step"] == (100, 100, 20, 20)
    assert found[ROOT, "backward"] == (30, 50, 0, 0)
    assert found[B, "step"] == (30, 50, 0, 0)


kernel = st.tuples(st.sampled_from([None, ROOT, A, B, D]), st.integers(0, 90), st.integers(1, 40))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.lists(kernel, max_size=4), min_size=1, max_size=3),
    bare=st.sampled_from([None, Interval(70, 60, 90), Interval(200, 200, 210)]),
    device_type=st.sampled_from(["cuda", "cpu"]),
)
def test_bounds_hold_what_they_bound(
    steps: list[list[tuple[int | None, int, int]]], bare: Interval | None, device_type: str
) -> None:
    timeline = Timeline()
    for number, kernels in enumerate(steps):
        timeline.step(1000 * number, 100)
        for owner, start, dur in kernels:
            timeline.kernel(owner, 1000 * number + start, dur, step=number)
    partition, bounds = split(timeline, {"eager": bare} if bare else {}, device_type)
    rows = bounded_parts(partition, bounds, MODULE)
    assert bounds.height == rows.height
    held = pl.col("ns").is_between("low_ns", "high_ns") & pl.col("idle_ns").is_between(
        "idle_low_ns", "idle_high_ns"
    )
    assert rows.filter(held).height == rows.height
    assert rows.filter(module_id=ROOT)["ns"].sum() == (
        partition.drop_nulls("module_id")["ns"].sum()
    )
