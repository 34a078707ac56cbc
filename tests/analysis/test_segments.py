"""The host's time by operator, on steps made by hand; and what modules alone say of it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cb_trace.analysis.calibrate import eager_scale
from cb_trace.analysis.host_alone import Alone, alone, host_factors
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.program import StepEvents, programs
from cb_trace.analysis.segments import host_segments
from tests.analysis.timelines import MODULE, ROOT, A, B, C, D, Timeline
from tests.frames import frame


def ops(*given: tuple[str, int, int], thread: int = 1) -> pl.DataFrame:
    return frame(
        "op",
        *(
            {"op_id": n, "trace_id": 0, "name": name, "thread": thread, "start_ns": s, "dur_ns": d}
            for n, (name, s, d) in enumerate(given)
        ),
    )


def two_steps(first: int) -> tuple[Timeline, pl.DataFrame]:
    """Two steps of one operator with two launches; in the first it starts ``first`` ns late."""
    timeline = Timeline()
    rows = []
    for number, late in enumerate((first, 0)):
        begin = number * 1_000
        timeline.step(begin, 500)
        timeline.steps[-1]["thread"] = 1
        timeline.call(A, begin, 400, step=number)
        for launch, at in enumerate((130 + late, 180 + late)):
            launch_id = 2 * number + launch
            timeline.launch(launch_id, "cudaLaunchKernel", begin + at, 20)
            timeline.kernel(A, begin + at + 25, 10, launch_id=launch_id, step=number)
        rows += [("aten::mm", begin + 100, 140 + late), ("aten::t", begin + 105, 5)]
        rows.append(("aten::view", begin + 260 + late, 10))
    return timeline, ops(*rows)


def cut(timeline: Timeline, op: pl.DataFrame) -> pl.DataFrame:
    frames = timeline.frames()
    return host_segments(
        op=op, launch=timeline.launch_frame(), kernel=frames["kernel"],
        module_call=frames["module_call"], step=frames["step"],
    )  # fmt: skip


def test_an_operator_is_cut_at_its_launches() -> None:
    timeline, op = two_steps(60)
    found = cut(timeline, op).filter(step=1)
    assert found.select("kind", "name", "start_ns", "ns", "usual_ns").rows() == [
        ("T2", "aten::mm", 1_100, 30, 60.0),  # 90 in the other step
        ("T4", "aten::mm", 1_130, 20, 20.0),
        ("T5", "aten::mm", 1_150, 30, 30.0),
        ("T4", "aten::mm", 1_180, 20, 20.0),
        ("T3", "aten::mm", 1_200, 40, 40.0),
        ("T1", None, 1_240, 20, 20.0),
        ("T5", "aten::view", 1_260, 10, 10.0),
    ]
    assert found["inner"].to_list() == [1, None, 1, None, 1, None, 0]


def test_a_launch_outside_operators_is_its_own() -> None:
    timeline, _ = two_steps(0)
    found = cut(timeline, frame("op")).filter(step=0)
    assert found.select("kind", "name", "ns").rows() == [
        ("T4", "cudaLaunchKernel", 20), ("T1", None, 30), ("T4", "cudaLaunchKernel", 20),
    ]  # fmt: skip


def test_gaps_count_the_boundaries_of_calls_in_them() -> None:
    timeline, op = two_steps(0)
    timeline.call(B, 245, 5, step=0).call(C, 252, 100, step=0)
    gaps = cut(timeline, op).filter(kind="T1", step=0)
    assert gaps["boundaries"].to_list() == [3]


def test_a_cold_start_is_the_steps_and_not_its_first_modules() -> None:
    timeline, op = two_steps(60)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    cold = programs(events)[0]
    assert int(cold.work_ns.sum()) == 500  # nothing is lost
    assert cold.work_owner[0] == cold.rest
    assert int(cold.work_ns[0]) == 30  # 90 in T2 where 60 is usual
    in_a = cold.work_owner == cold.owners.index((A, "forward"))
    assert int(cold.work_ns[in_a].sum()) == 400 - 30


def test_the_start_gives_way_where_the_device_is_the_bound() -> None:
    timeline, op = two_steps(0)
    for kernel in timeline.kernels:
        kernel["dur_ns"] = 10_000
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    half = np.full((len(program.owners), 1), 0.5)
    given = eager_scale(program, None, half).step_ns()
    scale = eager_scale(program, round(given) + 40, half)
    assert (scale.host, scale.device) == (1.0, 1.0)
    assert scale.start_ns == pytest.approx(40, abs=1)
    # Beyond what the profiler saw, 75 ns more than they should take, the host is slower.
    slow = eager_scale(program, round(given) + 1_000, half)
    assert slow.start_ns == 75
    assert slow.host > 1


def test_factors_are_of_a_modules_own_work() -> None:
    found = {
        ROOT: Alone(100.0, 400.0, bound=True), A: Alone(60.0, 200.0, bound=True),
        C: Alone(10.0, 100.0, bound=True), B: Alone(30.0, 100.0, bound=True),
    }  # fmt: skip
    assert host_factors(found, MODULE, {ROOT, A, B, C}) == {
        ROOT: (100 - 60 - 30) / (400 - 200 - 100), A: 0.5, B: 0.3, C: 0.1,
    }  # fmt: skip
    # What holds a module that the device bounds says nothing of its own work.
    found[B] = Alone(30.0, 100.0, bound=False)
    assert set(host_factors(found, MODULE, {ROOT, A, B, C})) == {A, C}
    # Nor does one that holds what was not measured, through a list that is never called.
    del found[B]
    assert set(host_factors(found, MODULE, {ROOT, A, C, D})) == {A, C}


def test_a_difference_is_held_within_four_times_of_the_whole() -> None:
    found = {A: Alone(60.0, 200.0, bound=True), C: Alone(59.9, 100.0, bound=True)}
    assert host_factors(found, MODULE, {A, C})[A] == pytest.approx(0.3 / 4)


def test_modules_that_share_a_measurement_share_their_usual_length() -> None:
    def replay(number: int, module: int, measured: int, wall: int | None) -> dict[str, object]:
        return {"replay_id": number, "measured_id": measured, "module_id": module, "calls": 1,
                "median_ns": wall, "busy_ns": wall and 1}  # fmt: skip

    replays = frame("replay", replay(0, A, 0, 50), replay(1, B, 0, 50), replay(2, C, 0, None))
    calls = frame(
        "module_call",
        *(
            {"module_id": m, "phase": "forward", "step": 0, "dur_ns": ns}
            for m, ns in ((A, 900), (B, 100), (C, 200))
        ),
    )
    found = alone(replays, calls)
    assert found[A] == found[B] == found[C] == Alone(50.0, 200.0, bound=True)


def test_work_that_nothing_recorded_keeps_its_length() -> None:
    timeline, op = two_steps(0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    # The call ends at 400, the step at 500: 100 ns outside everything.
    scale = eager_scale(program, None, Parts(host_ratio=0.5).host(program.owners))
    assert int(scale.program.work_ns.sum()) == 400 // 2 + 100
