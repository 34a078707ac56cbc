"""Which runs of a graph count, when they ran, and what their kernels are taken for."""

from __future__ import annotations

import polars as pl

from cb_trace.analysis import GraphSteps, StepEvents, graph_steps
from tests.analysis.timelines import MODULE, ROOT, A, Timeline
from tests.frames import frame

# The step: kernels 0 and 1 of A, launched by operators 1 and 2.
STEP = Timeline().step(0, 100).call(A, 0, 50).kernel(A, 10, 5, op_id=1).kernel(A, 20, 5, op_id=2)
OP = frame("op", {"op_id": 1, "name": "mm"}, {"op_id": 2, "name": "add"})
Pairs = list[tuple[int, int, int]]  # kernel of the step, run, kernel of the run


def events(timeline: Timeline, op: pl.DataFrame) -> StepEvents:
    return StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)


def found(runs: Timeline, pairs: Pairs) -> GraphSteps | None:
    types = {"kernel_id": pl.Int64, "run": pl.Int32, "replayed_id": pl.Int64}
    times = pl.DataFrame(pairs, schema=types, orient="row")
    step = events(STEP, OP)
    return graph_steps(events(runs, OP.clear()), step, step.kernel, times)


def replays(*second: int) -> tuple[Timeline, Pairs]:
    """Runs 50 ns apart, of 20 and then 10 ns with 2 between; ``second``: those that have both."""
    runs = Timeline()
    pairs: Pairs = []
    for number in range(5):
        runs.step(number, 1)  # on the host, far ahead
        at = 1_000 + 50 * number
        pairs.append((0, number, len(runs.kernels)))
        runs.kernel(A, at, 20, step=number)
        if number in second:
            pairs.append((1, number, len(runs.kernels)))
            runs.kernel(A, at + 22, 10, step=number)
    return runs, pairs


def windows(steps: GraphSteps | None) -> list[tuple[int, int, int]]:
    assert steps is not None
    assert (steps.events.step["dur_ns"] == steps.events.step["window_ns"]).all()
    return steps.events.step.select("step", "start_ns", "window_ns").rows()


def test_a_run_takes_the_device_from_the_end_of_the_one_before() -> None:
    steps = found(*replays(0, 1, 2, 3, 4))
    assert windows(steps) == [(1, 1_032, 50), (2, 1_082, 50), (3, 1_132, 50), (4, 1_182, 50)]


def test_a_run_that_lacks_a_kernel_does_not_count_and_says_not_when_the_next_begins() -> None:
    steps = found(*replays(0, 1, 3, 4))
    assert windows(steps) == [(1, 1_032, 50), (3, 1_150, 32), (4, 1_182, 50)]
    assert steps is not None
    assert steps.events.kernel["step"].unique().sort().to_list() == [1, 3, 4]
    assert steps.events.kernel_module.height == 6


def test_two_runs_beside_the_first_are_too_few() -> None:
    assert found(*replays(0, 3, 4)) is None


def test_a_kernel_that_is_paired_twice_makes_its_run_none_of_the_steps() -> None:
    runs, pairs = replays(0, 1, 2, 3, 4)
    doubled = [(0, run, its) if run == 2 else (one, run, its) for one, run, its in pairs]
    assert [number for number, *_ in windows(found(runs, doubled))] == [1, 3, 4]


def test_a_kernel_more_counts_where_somebody_owns_it() -> None:
    runs, pairs = replays(0, 1, 2, 3, 4)
    runs.kernel(ROOT, 1_083, 4, step=2, op_id=9)  # launched by the replay, for its random numbers
    runs.kernel(None, 1_133, 4, step=3)
    steps = found(runs, pairs)
    assert [number for number, *_ in windows(steps)] == [1, 2, 4]
    assert steps is not None
    assert steps.events.kernel.filter(start_ns=1_083)["op_id"].to_list() == [9]


def test_kernels_have_the_operators_and_the_order_of_the_step() -> None:
    runs, pairs = replays(0, 1, 2, 3, 4)
    swapped = [(1 - one, run, its) if run == 4 else (one, run, its) for one, run, its in pairs]
    steps = found(runs, swapped)
    assert steps is not None
    last = pl.col("step") >= 3
    assert steps.events.kernel.filter(last)["op_id"].to_list() == [1, 2, 2, 1]
    assert steps.events.kernel.filter(last)["start_ns"].to_list() == [1_150, 1_172, 1_200, 1_222]
    assert steps.in_turn.filter(last)["start_ns"].to_list() == [10, 20, 20, 10]
    assert steps.events.op.equals(OP)
    assert steps.events.module_call.equals(STEP.frames()["module_call"])
    assert steps.events.module.equals(MODULE)


def test_times_in_the_sequence_are_those_of_one_run() -> None:
    steps = found(*replays(0, 1, 2, 3, 4))
    assert steps is not None
    times = pl.DataFrame({"kernel_id": [0, 1, 0, 7], "run": [0, 0, 1, 1], "ns": [18, 9, 19, 1]})
    sequence = steps.sequence(times)
    assert sequence is not None
    assert sequence.select("kernel_id", "run", "ns").rows() == [(8, 0, 18), (9, 0, 9), (8, 1, 19)]
    assert steps.sequence(None) is None
