"""Kernels that run at once: how they slow each other, to the nanosecond, and how that is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cb_trace.analysis.calibrate import graph_scale, together_in
from cb_trace.analysis.marginal import SHARING, scaled_steps, with_together
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.sharing import Shared, beside, last_end
from cb_trace.analysis.stats import BareStep, Interval
from cb_trace.bundle import Deployment
from tests.analysis.test_simulate import begun, lost, run, stepped
from tests.analysis.timelines import ROOT, A, B, Timeline


def ends(
    work: list[float],
    stream: list[int],
    together: list[float],
    *,
    needs: dict[int, tuple[int, ...]] | None = None,
    ready: list[float] | None = None,
    gone: tuple[int, ...] = (),
    gap: float = 0.0,
) -> list[float]:
    shape = (len(work), len(together))
    there = np.ones(shape, np.bool_)
    there[list(gone)] = False
    column = np.ones((1, len(together)))
    found = last_end(
        Shared(
            stream=np.array(stream), needs=needs or {}, there=there,
            work=np.array(work)[:, None] * column, gaps=np.full(shape, gap),
            ready=np.array(ready or [0.0] * len(work))[:, None] * column,
            together=np.array(together),
        )
    )  # fmt: skip
    return [round(float(one), 6) for one in found]


def test_two_at_once_share_the_device() -> None:
    assert ends([10, 10], [0, 1], [0.0, 0.5, 1.0, -0.5]) == [20, 13.333333, 10, 40]


def test_three_at_once_never_run_backwards() -> None:
    # Below 0 the device as a whole does 1 + together: 40 of work at a half, whoever takes part.
    assert ends([10] * 4, [0, 1, 2, 3], [0.0, -0.5]) == [40, 80]


def test_four_at_once_do_not_run_backwards() -> None:
    # Below 0 all together do 1 + together: 40 of work at a half, whoever takes part.
    assert ends([10] * 4, [0, 1, 2, 3], [0.0, -0.5]) == [40, 80]


def test_who_is_left_goes_on_at_full_speed() -> None:
    # At half speed until 8, when the short one is through; 6 of 10 are left.
    assert ends([10, 4], [0, 1], [0.0]) == [14]
    # Three at once do a third each: the shortest ends at 9, the next 2 · 3 later, the last 4 later.
    assert ends([3, 6, 10], [0, 1, 2], [0.0]) == [19]


def test_one_stream_is_one_after_another() -> None:
    assert ends([10, 4], [0, 0], [0.0, 1.0], gap=1) == [15, 15]


def test_a_kernel_waits_for_its_launch_and_for_others() -> None:
    assert ends([10, 4], [0, 1], [0.0], ready=[0, 12]) == [16]
    assert ends([10, 4, 2], [0, 1, 0], [1.0], needs={2: (1,)}, gap=1) == [13]
    # It waits for the slower stream: both take 8 until b is through, then a's last 6, then 1 + 2.
    assert ends([10, 4, 2], [0, 1, 1], [0.0], needs={2: (0,)}, gap=1) == [17]


def test_what_is_gone_takes_no_time_and_holds_nobody() -> None:
    assert ends([10, 4], [0, 1], [0.0], gone=(0,)) == [4]
    assert ends([10, 4, 2], [0, 1, 1], [0.0], needs={2: (0,)}, gone=(0,), gap=1) == [7]
    assert ends([10], [0], [0.0], gone=(0,)) == [0]
    # But what it waited for still holds its stream: 10, then 1 + 2.
    assert ends([10, 4, 2], [0, 1, 1], [1.0], needs={1: (0,)}, gone=(1,), gap=1) == [13]


def test_which_part_of_a_kernel_ran_beside_others() -> None:
    found = beside(np.array([0, 5, 20, 30]), np.array([10, 25, 22, 30]))
    assert found.tolist() == [[0.5, 0.5], [0.65, 0.35], [0.0, 1.0], [1.0, 0.0]]


def two_streams() -> Timeline:
    """Recorded one after the other, for the host is slow: 352 on one stream, 1,440 on another."""
    timeline = begun(3_000_000)
    run(timeline, B, 100_000, 110_000, 1_440_000, stream=8)
    return run(timeline, A, 1_700_000, 1_710_000, 352_000)


def test_the_bare_graph_step_says_how_much_they_slow_each_other() -> None:
    """An H200 hid 35 µs of 352 (shared facts, h200.md): knock-out of the small one was 317."""
    parts = Parts(graph_gap_ns=0.0)
    found = lost(two_streams(), 1_757_000, "graph", parts)
    assert found[ROOT] == pytest.approx(1_757_000, abs=20)
    assert found[A] == pytest.approx(317_000, abs=20)
    assert found[B] == pytest.approx(1_405_000, abs=20)
    (program,) = stepped(two_streams())
    # Both do 317 of the 352 it would take one after the other while the small one runs.
    scale = graph_scale(program, 1_757_000, 0.0)
    assert scale.together == pytest.approx(35 / 669, abs=1e-3)
    assert scale.step_ns() == pytest.approx(1_757_000, abs=20)
    assert graph_scale(program, 1_440_000, 0.0).together == 1.0
    # More than one after the other, plus half: kernels at once cannot be the reason.
    assert graph_scale(program, 2_600_000, 0.0).together == 1.0


def forked(*, at_once: bool) -> Timeline:
    """Alone 50 and after it 20 on one stream, beside them 30 on another. Recorded one at a time, or
    at once: then the 30 took 40, three quarters as fast, and so did as much of the 50.
    """
    timeline = begun(1_000_000)
    if at_once:
        run(timeline, A, 2_000, 10_000, 60_000)
        run(timeline, B, 5_000, 10_000, 40_000, stream=8)
        return run(timeline, A, 7_500, 72_000, 20_000)
    run(timeline, A, 100_000, 110_000, 50_000)
    run(timeline, B, 200_000, 210_000, 30_000, stream=8)
    return run(timeline, A, 300_000, 310_000, 20_000)


@pytest.mark.parametrize("at_once", [False, True])
def test_the_graph_on_one_stream_tells_gaps_from_contention(at_once: bool) -> None:
    """One after another 50 + 2 + 30 + 2 + 20. At once 40 at three quarters, 20 alone, 2, 20."""
    (program,) = stepped(forked(at_once=at_once))
    scale = graph_scale(program, 82_000, 0.0, one_stream_ns=104_000)
    assert scale.gap == pytest.approx(2_000, abs=2)
    assert scale.device == 1
    assert scale.together == pytest.approx(0.5, abs=1e-4)
    assert scale.step_ns() == pytest.approx(82_000, abs=2)
    # What modules alone and the sequence run say of either does not matter then.
    known = graph_scale(program, 82_000, 9_000.0, 0.9, 104_000)
    assert (known.gap, known.together) == (scale.gap, scale.together)


def test_wrong_gaps_do_not_go_into_what_kernels_lose_to_each_other() -> None:
    timeline = forked(at_once=False)
    known = Parts(graph_gap_ns=0.0, one_stream_ns=104_000)
    found = lost(timeline, 82_000, "graph", known)
    assert found[B] == pytest.approx(82_000 - 72_000, abs=2)  # 50 + 2 + 20 are left
    (program,) = stepped(timeline)
    # Without the figure they do: 30 / (1 + 3/7) · 2 = 42, 20 alone, no gap, 20.
    assert graph_scale(program, 82_000, 0.0).together == pytest.approx(3 / 7, abs=1e-4)
    unknown = lost(timeline, 82_000, "graph", Parts(graph_gap_ns=0.0))
    assert unknown[B] == pytest.approx(12_000, abs=2)


def test_kernels_longer_than_the_graph_on_one_stream_shrink() -> None:
    (program,) = stepped(forked(at_once=False))
    scale = graph_scale(program, 56_000, 5_000.0, one_stream_ns=80_000)
    assert (scale.gap, scale.device, scale.together) == (0, 0.8, 1)
    assert scale.step_ns() == pytest.approx(56_000)  # 40 and 16


def test_two_graphs_that_contradict_each_other_leave_it_as_it_was() -> None:
    (program,) = stepped(forked(at_once=False))
    # 50 + 2 + 20 is the least with that gap.
    found = graph_scale(program, 60_000, 1_000.0, one_stream_ns=104_000)
    without = graph_scale(program, 60_000, 1_000.0)
    assert (found.gap, found.device, found.together) == (0, without.device, 1)


def test_the_eager_step_learns_it_from_both_graphs() -> None:
    bare: dict[Deployment, BareStep] = {"graph": Interval(82_000, 82_000, 82_000)}
    parts = Parts(graph_gap_ns=0.0, one_stream_ns=104_000)
    found = with_together(parts, {"graph": stepped(forked(at_once=False))}, bare, {})
    assert found.together == pytest.approx(0.5, abs=1e-4)


def test_a_prediction_from_parts_has_not_seen_what_was_fitted_to_the_step() -> None:
    bare: dict[Deployment, BareStep] = {"graph": Interval(82_000, 82_000, 82_000)}
    parts = Parts(graph_gap_ns=0.0, one_stream_ns=104_000)
    steps = stepped(forked(at_once=False))
    found = with_together(parts, {"graph": steps}, bare, {})
    for deployment in ("graph", "eager"):
        assert scaled_steps(steps, deployment, None, found).middle[0].together == SHARING
    (scale,) = scaled_steps(steps, "graph", bare["graph"], found).middle
    assert scale.together == pytest.approx(0.5, abs=1e-4)
    measured = replace(found, fitted=False)
    (scale,) = scaled_steps(steps, "graph", None, measured).middle
    assert scale.together == pytest.approx(0.5, abs=1e-4)


def test_the_eager_step_slows_them_alike() -> None:
    bare: dict[Deployment, BareStep] = {"graph": Interval(1_757_000, 1_757_000, 1_757_000)}
    steps: dict[Deployment, list[object]] = {"graph": list(stepped(two_streams()))}
    found = with_together(Parts(graph_gap_ns=0.0), steps, bare, {})  # type: ignore[arg-type]
    assert found.together == pytest.approx(35 / 669, abs=1e-3)
    one = begun().call(A, 0, 4_000)
    run(one, A, 2_000, 4_000, 50_000)
    assert with_together(Parts(), {"graph": stepped(one)}, bare, {}).together is None


def test_the_sequence_run_says_it_of_steps_recorded_at_once() -> None:
    timeline = begun(10_000)
    run(timeline, A, 2_000, 4_000, 40_000)
    run(timeline, B, 4_000, 4_000, 40_000, stream=8)
    steps = stepped(timeline)
    assert together_in(steps, {0: 20_000.0, 1: 20_000.0}) == pytest.approx(0.0, abs=0.01)
    assert together_in(steps, {0: 40_000.0, 1: 40_000.0}) == pytest.approx(1.0)
    assert together_in(steps, {0: 30_000.0, 1: 30_000.0}) == pytest.approx(0.5, abs=0.01)
    assert together_in(steps, {}) is None
    long = begun(10_000)
    run(long, A, 2_000, 4_000, 800_000)
    run(long, B, 4_000, 4_000, 40_000, stream=8)
    assert together_in(stepped(long), {0: 800_000.0, 1: 20_000.0}) is None  # too little of it


def test_steps_without_a_sequence_run_do_not_hide_the_one_that_has_it() -> None:
    """The sequence repeats one of five steps: 80 of its 280 µs met others, 6 % of all five."""
    timeline = begun(1_000_000)
    run(timeline, A, 2_000, 4_000, 40_000)
    run(timeline, B, 4_000, 4_000, 40_000, stream=8)
    run(timeline, A, 50_000, 52_000, 200_000)
    (known,) = stepped(timeline)
    others = [replace(known, kernel_id=known.kernel_id + 10 * n) for n in (1, 2, 3, 4)]
    alone = {0: 20_000.0, 1: 20_000.0, 2: 200_000.0}
    assert together_in([known, *others], alone) == pytest.approx(0.0, abs=0.01)
