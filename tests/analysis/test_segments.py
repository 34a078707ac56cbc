"""The host's time by operator, on steps made by hand; and what modules alone say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from cb_trace.analysis.calibrate import eager_scale, in_company, in_step
from cb_trace.analysis.calibrate import measured as of_spans
from cb_trace.analysis.host_alone import Alone, Factors, alone, host_factors
from cb_trace.analysis.host_line import WAIT_DEVICE
from cb_trace.analysis.overheads import host_overheads, pooled, with_overheads
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.program import Program, StepEvents, programs
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
    half = np.full((len(program.owners), 2), 0.5)
    given = eager_scale(program, None, half).step_ns()
    scale = eager_scale(program, round(given) + 40, half)
    assert (scale.host, scale.device) == (1.0, 1.0)
    assert scale.start_ns == pytest.approx(40, abs=1)
    # Beyond what the profiler saw, 75 ns more than they should take, the host is slower.
    slow = eager_scale(program, round(given) + 1_000, half)
    assert slow.start_ns == 75
    assert slow.host > 1


def test_all_host_work_gives_way_where_the_host_is_the_bound() -> None:
    timeline, op = two_steps(0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    program = replace(program, gap_ns=np.zeros_like(program.gap_ns))
    half = np.full((len(program.owners), 2), 0.5)
    given = eager_scale(program, None, half).step_ns()
    scale = eager_scale(program, round(given) + 40, half)
    assert (scale.start_ns, scale.device) == (0.0, 1.0)
    assert scale.host > 1
    assert scale.step_ns() == pytest.approx(given + 40, abs=1)


def test_factors_lie_between_those_of_modules_alone_and_that_of_all() -> None:
    timeline, op = two_steps(0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    same = np.full((len(program.owners), 2), 0.25)
    assert np.allclose(in_step(program, same), 0.25)
    apart = same.copy()
    apart[program.owners.index((A, "forward"))] = 1.0
    found = in_step(program, apart)
    counts = ~program.work_plain
    place = program.work_owner[counts], program.work_between[counts].astype(np.int64)
    work = program.work_ns[counts]
    assert (work * found[place]).sum() == pytest.approx((work * apart[place]).sum())
    high, low = found.max(), found.min()
    assert high / low == pytest.approx(2)  # the square root of what lay between them
    assert np.array_equal(in_step(program, apart * 0), apart * 0)


def test_what_the_bare_step_spends_goes_before_what_modules_alone_say() -> None:
    timeline, op = two_steps(0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    half = np.full((len(program.owners), 2), 0.5)
    row = program.owners.index((A, "forward"))
    found = of_spans(program, half, {A: 100.0, B: 7.0})
    assert found[row].tolist() == [0.25, 0.25]  # of 400 ns under the profiler
    assert np.delete(found, row, axis=0).tolist() == np.delete(half, row, axis=0).tolist()
    assert of_spans(program, half, {}).tolist() == half.tolist()
    # Where the module waits for the device, what it spends is not all work.
    waiting = replace(program, kind=np.full_like(program.kind, WAIT_DEVICE))
    assert of_spans(waiting, half, {A: 100.0}).tolist() == half.tolist()
    scale = eager_scale(program, 1_000_000, half, 1.0, {A: 100.0})
    assert int(scale.program.work_ns[scale.program.work_owner == row].sum()) == 100


def test_who_is_not_watched_keeps_its_factor_times_what_company_costs() -> None:
    timeline, op = two_steps(0)
    timeline.call(B, 245, 10, step=0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    half = np.full((len(program.owners), 2), 0.5)
    in_a, in_b = (program.owners.index((one, "forward")) for one in (A, B))
    found = of_spans(program, half, {B: 30.0}, 1.25)
    assert found[in_b].tolist() == [3.0, 3.0]  # of 10 ns under the profiler
    assert found[in_a].tolist() == [0.625, 0.625]
    nobody = program.owners.index((None, ""))
    assert found[nobody].tolist() == [0.5, 0.5]
    scaled = eager_scale(program, None, half, 1.0, {B: 30.0}, others=1.25).program
    work = [int(scaled.work_ns[scaled.work_owner == row].sum()) for row in (in_a, in_b)]
    assert work == [62 + 19 + 12 + 19 + 12 + 25 + 3, 30]  # A: 100, 30, 20, 30, 20, 40, 5 × 0.625


def test_company_is_of_all_together_but_those_who_wait_for_the_device() -> None:
    timeline, op = two_steps(0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    looped = {A: 60.0, B: 30.0, D: 10.0}
    assert in_company(program, {A: 90.0, B: 36.0, C: 20.0}, looped) == (90 + 36) / (60 + 30)
    assert in_company(program, {A: 50.0, B: 20.0}, looped) == 1.0  # company makes no cache warmer
    assert in_company(program, {C: 20.0}, looped) == in_company(program, {}, {}) == 1.0
    waiting = replace(program, kind=np.full_like(program.kind, WAIT_DEVICE))  # all of them in A
    assert in_company(waiting, {A: 900.0, B: 36.0}, looped) == 36 / 30


def test_factors_are_of_a_modules_own_work() -> None:
    found = {
        ROOT: Alone(100.0, 400.0, bound=True), A: Alone(60.0, 200.0, bound=True),
        C: Alone(10.0, 100.0, bound=True), B: Alone(30.0, 100.0, bound=True),
    }  # fmt: skip
    factors = host_factors(found, MODULE, {ROOT, A, B, C})
    # A tenth of the root's wall is left for itself: the difference of two figures, and too small.
    assert factors.own == {A: (60 - 10) / 100, B: 0.3, C: 0.1}
    assert factors.most == {}
    # What holds a module that the device bounds says nothing of its own work; that one is bounded.
    found[B] = Alone(30.0, 100.0, bound=False)
    factors = host_factors(found, MODULE, {ROOT, A, B, C})
    assert set(factors.own) == {A, C}
    assert factors.most == {B: 0.3}
    # Nor does one that holds what was not measured, through a list that is never called.
    del found[B]
    assert set(host_factors(found, MODULE, {ROOT, A, C, D}).own) == {A, C}


def test_a_difference_is_held_within_four_times_of_the_whole() -> None:
    found = {A: Alone(60.0, 200.0, bound=True), C: Alone(40.0, 199.0, bound=True)}
    assert host_factors(found, MODULE, {A, C}).own[A] == pytest.approx(0.3 * 4)
    # Of less than a quarter of the whole nothing is told.
    found[C] = Alone(45.1, 199.0, bound=True)
    assert set(host_factors(found, MODULE, {A, C}).own) == {C}


def test_an_owner_without_a_factor_has_that_of_its_like() -> None:
    factors = Factors({A: 0.2}, {B: 0.1, C: 0.9})
    parts = Parts(host_ratio=0.4, factors=factors)
    owners = ((None, ""), (A, "forward"), (A, "backward"), (B, "forward"), (C, "forward"),
              (ROOT, "forward"))  # fmt: skip
    assert parts.host(owners).tolist() == [
        [0.4, 0.4], [0.2, 0.2], [0.4, 0.4], [0.1, 0.1], [0.4, 0.4], [0.4, 0.6 * 0.4],
    ]  # fmt: skip


def test_modules_that_share_a_measurement_share_their_usual_length() -> None:
    def replay(number: int, module: int, measured: int, wall: int) -> dict[str, object]:
        return {"replay_id": number, "measured_id": measured, "module_id": module, "calls": 1,
                "median_ns": wall, "busy_ns": 1}  # fmt: skip

    replays = frame("replay", *(replay(n, m, 0, 50) for n, m in enumerate((A, B, C))))
    calls = frame(
        "module_call",
        *(
            {"module_id": m, "phase": "forward", "step": 0, "dur_ns": ns}
            for m, ns in ((A, 900), (B, 100), (C, 200))
        ),
    )
    found = alone(replays, calls)
    assert found[A] == found[B] == found[C] == Alone(50.0, 200.0, bound=True)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"busy_ns": 5}, Alone(60.0, 200.0, bound=True)),
        ({"busy_ns": None}, Alone(60.0, 200.0, bound=False)),  # it may be the device that takes 50
        ({"busy_ns": 50, "median_ns": None}, None),
    ],
)
def test_a_call_that_was_not_profiled_or_measured_is_no_call_of_no_time(
    second: dict[str, int | None], expected: Alone | None
) -> None:
    replays = frame(
        "replay",
        *(
            {"replay_id": n, "measured_id": n, "module_id": A, "calls": 1, "median_ns": 30}
            | ({"busy_ns": 5} if n == 0 else second)
            for n in range(2)
        ),
    )
    call = {"module_id": A, "phase": "forward", "step": 0, "dur_ns": 100}
    assert alone(replays, frame("module_call", call, call)).get(A) == expected


def test_work_that_nothing_recorded_keeps_its_length_but_for_ranges() -> None:
    timeline, op = two_steps(0)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    program = programs(events)[0]
    # The call ends at 400, the step at 500: 100 ns outside everything, as ranges alone may take.
    assert bare_ns(program, 0.5) == 400 // 2 + 100 // 2
    assert bare_ns(program, 3.0) == 400 * 3 + 100
    plain = replace(program, work_ns=np.where(program.work_plain, 100_000, program.work_ns))
    assert bare_ns(plain, 0.5) == 400 // 2 + 60_000 // 2 + 40_000


def bare_ns(program: Program, host_ratio: float) -> int:
    own = Factors({module: host_ratio for module, _ in program.owners if module is not None})
    parts = Parts(host_ratio=host_ratio, factors=own)
    scale = eager_scale(program, None, parts.host(program.owners))
    return int(scale.program.work_ns.sum())


def measured(first: int = 0) -> tuple[Program, Parts]:
    """The first step, in whose only module the host takes half of what the profiler saw."""
    timeline, op = two_steps(first)
    events = StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
    return programs(events)[0], Parts(host_ratio=0.1, factors=Factors({A: 0.5}))


def host_ns(program: Program, table: pl.DataFrame) -> int:
    return int(with_overheads(program, table).program.work_ns.sum())


def test_overheads_are_in_bare_time() -> None:
    program, parts = measured()
    found = host_overheads([program, program], parts, run_id="r")
    assert found.filter(name="aten::mm").select(
        "kind", "launches", "count", "measured", "profiled", "value", "low", "high", "unit"
    ).rows() == [
        ("T2", 2, 2, 2, 30.0, 15.0, 15.0, 15.0, "ns"),
        ("T3", 2, 2, 2, 40.0, 20.0, 20.0, 20.0, "ns"),
        ("T4", None, 4, 4, 20.0, 10.0, 10.0, 10.0, "ns"),
        ("T5", 2, 2, 2, 30.0, 15.0, 15.0, 15.0, "ns"),
    ]
    gap = found.filter(kind="T1").row(0, named=True)
    assert (gap["boundaries"], gap["value"]) == (0, 10.0)
    assert host_overheads([], parts, run_id="r").is_empty()


def test_a_step_with_overheads_of_others_takes_theirs() -> None:
    program, parts = measured()
    table = host_overheads([program], parts, run_id="r")
    one = pooled([table])
    # All of the host at half, the 100 ns outside everything too.
    assert host_ns(program, one) == 400 / 2 + 50
    slow = table.with_columns(value=pl.col("value") * 3)
    assert host_ns(program, pooled([slow])) == 400 * 1.5 + 100  # never longer than they were


def test_what_others_do_not_know_takes_what_its_kind_takes() -> None:
    program, parts = measured()
    table = host_overheads([program], parts, run_id="r")
    others = table.with_columns(name=pl.col("name").replace("aten::mm", "aten::bmm"))
    # Its T2 to T5 are of one row each, but for T5: (15 + 5 of the view) ÷ 2 instead of 15.
    assert host_ns(program, pooled([others])) == 250 - 15 + 10


def test_a_pool_takes_the_median_and_prefers_what_was_measured() -> None:
    program, parts = measured()
    table = host_overheads([program], parts, run_id="r").filter(kind="T2")
    guess = table.with_columns(value=pl.lit(99.0), measured=pl.lit(0, pl.Int64))
    assert pooled([guess])["value"].to_list() == [99.0]
    assert pooled([guess, table])["value"].to_list() == [15.0]
    heavy = table.with_columns(value=pl.lit(40.0), count=pl.lit(5, pl.Int64))
    both = pooled([table, heavy])
    assert both.select("value", "count").rows() == [(40.0, 6)]


def test_a_gap_of_unknown_boundaries_lies_on_the_line_of_the_others() -> None:
    program, parts = measured()
    table = host_overheads([program], parts, run_id="r")
    gaps = table.filter(kind="T1")
    known = pl.concat([gaps.with_columns(boundaries=pl.lit(n, pl.Int64), value=pl.lit(4.0 + 2 * n))
                       for n in (1, 3)])  # fmt: skip
    line = pl.concat([table.filter(pl.col("kind") != "T1"), known])
    # In the operators 75, the gap 4; what lies in no segment, 230, shrinks as gaps do: by
    # (6 + 10) ÷ (20 + 20); and so do the 100 outside everything.
    assert host_ns(program, pooled([line])) == 75 + 4 + 92 + 40


def test_launches_of_compiled_code_are_of_the_modules_whose_kernels_they_launch() -> None:
    def of(method: str) -> dict[int, int]:
        timeline = Timeline().step(0, 500)
        timeline.steps[-1]["thread"] = 1
        timeline.call(ROOT, 0, 400)
        for number, module in enumerate((A, B)):
            timeline.launch(number, "cudaLaunchKernel", 130 + 50 * number, 20)
            timeline.kernel(module, 155 + 50 * number, 10, launch_id=number)
        for part in timeline.owners:
            part["method"] = method
        op = ops(("## Call CompiledFxGraph f ##", 100, 140))
        (program,) = programs(
            StepEvents(**timeline.frames(), launch=timeline.launch_frame(), op=op)
        )
        return {
            module: int(program.work_ns[program.work_owner == row].sum())
            for row, (module, _) in enumerate(program.owners)
            if module is not None
        }

    # The first launch; the way to the second and that one. Guards before and what follows after
    # are the whole's, as all of it is where a module's own call stands around its launches.
    assert of("inductor") == {ROOT: 430, A: 20, B: 50}
    assert of("range") == {ROOT: 500, A: 0, B: 0}
