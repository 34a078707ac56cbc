from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis import module_context
from tests.analysis.timelines import LIST, PARENT, ROOT, A, B, C, D, Timeline

FIGURES = ["kernel_ns", "busy_ns", "exposed_ns"]


def figures(timeline: Timeline) -> dict[tuple[int, str], tuple[int, ...]]:
    """K, U, X by module and phase."""
    context = module_context(**timeline.frames(), run_id="r")
    return {
        (row[0], row[1]): row[2:] for row in context.select("module_id", "phase", *FIGURES).rows()
    }


def test_two_streams_overlap() -> None:
    # a: [0, 10) and [20, 30) on one stream, b: [5, 25) on another
    timeline = Timeline().step(0, 40)
    timeline.kernel(A, 0, 10).kernel(A, 20, 10).kernel(B, 5, 20, stream=8)
    assert figures(timeline) == {
        (ROOT, "forward"): (40, 30, 30),
        (A, "forward"): (20, 20, 10),
        (B, "forward"): (20, 20, 10),
    }


def test_overlap_within_a_module_is_busy_once_and_exposed() -> None:
    timeline = Timeline().step(0, 40)
    timeline.kernel(A, 0, 10).kernel(C, 5, 10, stream=8).kernel(A, 5, 2, stream=9)
    assert figures(timeline) == {
        (ROOT, "forward"): (22, 15, 15),
        (A, "forward"): (22, 15, 15),
        (C, "forward"): (10, 10, 5),
    }


def test_a_kernel_of_no_module_and_one_outside_the_steps_hide_time_all_the_same() -> None:
    timeline = Timeline().step(0, 40)
    timeline.kernel(A, 0, 10).kernel(None, 8, 4, stream=8).kernel(B, 0, 3, stream=9, step=None)
    assert figures(timeline) == {(ROOT, "forward"): (10, 10, 5), (A, "forward"): (10, 10, 5)}


def test_devices_are_busy_apart() -> None:
    timeline = Timeline().step(0, 40).kernel(A, 0, 10).kernel(A, 0, 10, device=1)
    assert figures(timeline)[A, "forward"] == (20, 20, 20)


def test_a_fused_kernel_counts_by_share() -> None:
    # half of [0, 10); the whole [5, 10) runs beside it on another stream
    timeline = Timeline().step(0, 40)
    timeline.kernel({A: 0.5, B: 0.5}, 0, 10).kernel(A, 5, 5, stream=8)
    found = figures(timeline)
    assert found[A, "forward"] == (10, 8, 8)  # 5 × ½ + 5, half up
    assert found[B, "forward"] == (5, 5, 3)  # exposed while no other kernel runs: 5 × ½
    assert found[ROOT, "forward"] == (15, 10, 10)


def test_means_over_steps_round_half_up() -> None:
    timeline = Timeline().step(0, 10).step(10, 10)
    timeline.kernel(A, 0, 5).kernel(A, 10, 2, step=1).kernel(A, 14, 2, step=1)
    timeline.call(A, 0, 4).call(A, 10, 4, step=1).call(A, 14, 4, step=1)
    row = module_context(**timeline.frames(), run_id="r").row(
        by_predicate=pl.col("module_id") == A, named=True
    )
    assert (row["calls"], row["kernels"], row["kernel_ns"]) == (1.5, 1.5, 5)


def test_the_first_call_is_the_link_and_a_container_takes_a_descendants() -> None:
    timeline = Timeline().step(0, 100)
    timeline.call(D, 30, 5, thread=2).call(D, 10, 7, thread=3).call(A, 50, 9).call(C, 52, 1)
    timeline.kernel(D, 12, 4)
    context = module_context(**timeline.frames(), run_id="r").select(
        "module_id", "calls", "kernels", "kernel_ns", "ts_ns", "dur_ns", "trace_id", "thread"
    )
    assert context.rows() == [
        (ROOT, 0.0, 1.0, 4, 10, 7, 0, 3),
        (A, 1.0, 0.0, 0, 50, 9, 0, 1),
        (C, 1.0, 0.0, 0, 52, 1, 0, 1),
        (LIST, 0.0, 1.0, 4, 10, 7, 0, 3),
        (D, 2.0, 1.0, 4, 10, 7, 0, 3),
    ]  # b did not run: no row


def test_without_steps_the_trace_is_one() -> None:
    timeline = Timeline().kernel(A, 100, 7).kernel(None, 200, 1).call(A, 90, 3)
    assert figures(timeline) == {(ROOT, "forward"): (7, 7, 7), (A, "forward"): (7, 7, 7)}


def test_several_phases_make_a_step_row() -> None:
    timeline = Timeline().step(0, 40)
    timeline.kernel(A, 0, 10).kernel(A, 8, 10, stream=8, phase="backward").call(A, 0, 1)
    context = module_context(**timeline.frames(), run_id="r").filter(module_id=A)
    assert context.select("phase", "calls", *FIGURES).rows() == [
        ("backward", 0.0, 10, 10, 8),
        ("forward", 1.0, 10, 10, 8),
        ("step", 1.0, 20, 18, 18),
    ]


def test_nothing_ran() -> None:
    assert module_context(**Timeline().frames(), run_id="r").is_empty()


def test_kernels_of_no_duration_are_counted() -> None:
    timeline = Timeline().step(0, 9).kernel(A, 3, 0).kernel(A, 3, 0, dur_ns=None)
    row = module_context(**timeline.frames(), run_id="r").row(0, named=True)
    assert (row["kernels"], row["kernel_ns"], row["busy_ns"]) == (2.0, 0, 0)


owner = st.sampled_from([None, ROOT, A, B, C, D, {A: 0.5, C: 0.25, None: 0.25}, {B: 0.3, D: 0.7}])
kernels = st.lists(
    st.tuples(owner, st.integers(0, 60), st.integers(0, 25), st.integers(0, 1)), max_size=12
)


def built(events: list[tuple[Any, int, int, int]], steps: int) -> Timeline:
    timeline = Timeline()
    for number in range(steps):
        timeline.step(number * 40, 40)
    for of, start, dur, device in events:
        step = min(start // 40, steps - 1) if steps else None
        timeline.kernel(of, start, dur, device=device, step=step, phase="forward")
    return timeline


@given(kernels)
@settings(max_examples=40, deadline=None)
def test_against_a_count_of_every_nanosecond(events: list[tuple[Any, int, int, int]]) -> None:
    """One step and shares of halves and quarters: U and X by brute force over instants."""
    found = figures(built(events, 1))
    for module in PARENT:
        below = {m for m in PARENT if module in _upwards(m)}
        busy = exposed = 0.0
        for device in (0, 1):
            for t in range(100):
                running = [k for k in events if k[3] == device and k[1] <= t < k[1] + k[2]]
                weights = [_weight(of, below) for of, *_ in running]
                busy += min(1.0, sum(weights))
                exposed += min(1.0, sum(weights)) if all(weights) else 0
        if (module, "forward") in found:
            total, union, alone = found[module, "forward"]
            assert abs(union - min(total, busy)) <= 0.51
            assert abs(alone - min(union, exposed)) <= 1.01
        else:
            assert busy == 0


@given(kernels, st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_invariants(events: list[tuple[Any, int, int, int]], steps: int) -> None:
    found = figures(built(events, steps))
    for (module, phase), (total, busy, exposed) in found.items():
        assert 0 <= exposed <= busy <= total
        up = PARENT[module]
        if up is not None:
            assert found[up, phase][0] >= total
            assert found[up, phase][1] >= busy


def _upwards(module: int | None) -> set[int]:
    return set() if module is None else {module} | _upwards(PARENT[module])


def _weight(of: Any, below: set[int]) -> float:
    shares = of if isinstance(of, dict) else {of: 1.0}
    return sum(share for module, share in shares.items() if module in below)
