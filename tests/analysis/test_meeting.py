"""Profiled runs of a graph on several streams: what each kernel lost in them, to the nanosecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis.calibrate import Scale
from cb_trace.analysis.meeting import Met, as_met, met_scales
from cb_trace.analysis.program import Program
from cb_trace.analysis.simulate import simulate
from cb_trace.analysis.stats import middle_mean
from tests.analysis.test_simulate import begun, run, stepped
from tests.analysis.timelines import ROOT, A, B, D

Times = tuple[int, int]  # start and end
SEQUENCE = {0: 50.0, 1: 30.0, 2: 20.0}
# b's kernel beside the one of a: both lose 10. d's comes 2 after that of a, as always.
MET: list[Times] = [(0, 60), (0, 40), (62, 82)]
MINE = {7: 0, 8: 1, 9: 2}


def launched(*kernels: tuple[int, int]) -> Program:
    """Kernels by owner and stream, in the order of launches; how long they took does not matter."""
    timeline = begun(1_000_000)
    for number, (owner, stream) in enumerate(kernels):
        run(timeline, owner, 9_000 * (number + 1), 9_000 * (number + 1), 1_000, stream=stream)
    (program,) = stepped(timeline)
    assert program.stream.tolist() == [MINE[stream] for _, stream in kernels]
    return program


def two() -> Program:
    """a and after it d on one stream, b on another."""
    return launched((A, 7), (B, 8), (D, 7))


def rows(*runs: Sequence[Times], first: int = 0, since: int = 0) -> pl.DataFrame:
    """Kernels 0, 1 … of each run, a µs after the run before it."""
    return pl.DataFrame(
        [
            (kernel, first + number, since + 1_000 * number + start, end - start)
            for number, times in enumerate(runs)
            for kernel, (start, end) in enumerate(times)
        ],
        schema={
            "kernel_id": pl.Int64, "run": pl.Int32, "start_ns": pl.Int64, "dur_ns": pl.Int64
        },
        orient="row",
    )  # fmt: skip


def met(
    program: Program,
    *runs: Sequence[Times],
    alone: Mapping[int, float] | None = None,
    since: int = 0,
) -> list[Program]:
    """The programs of the runs, one before them left out."""
    times = rows(runs[0], *runs, since=since)
    found = as_met([program], times, SEQUENCE if alone is None else alone, 1)
    assert found is not None
    return list(found.programs)


def own(programs: Sequence[Program]) -> list[list[int]]:
    return [program.kernel_ns.tolist() for program in programs]


def losses(program: Program) -> dict[int, tuple[dict[int, float], tuple[int, ...]]]:
    """By kernel: ns by each of the others, and the heirs."""
    return {
        kernel: (dict(zip(loss.others.tolist(), loss.ns.tolist(), strict=True)), loss.heirs)
        for kernel, loss in program.lost.items()
    }


def test_kernels_lose_what_they_take_beyond_alone_to_those_beside_them() -> None:
    programs = met(two(), MET, MET, MET)
    assert own(programs) == [[50, 30, 20]] * 3
    assert [losses(one) for one in programs] == [{0: ({1: 10}, (2,)), 1: ({0: 10}, ())}] * 3
    assert programs[0].beside.tolist() == [[1.0]] * 3  # what it lost is in no other figure


def test_several_share_what_is_lost_by_how_long_they_ran_meanwhile() -> None:
    """On a third stream a kernel waits until 70 for room: its 70 go by both that ran till then."""
    program = launched((A, 7), (B, 8), (B, 9), (D, 7))
    times = [(0, 100), (0, 60), (70, 90), (102, 122)]
    (found, *_) = met(program, times, times, times, alone={0: 80, 1: 60, 2: 20, 3: 20})
    assert found.kernel_ns.tolist() == [80, 60, 20, 20]
    assert losses(found) == {0: ({1: 15, 2: 5}, (3,)), 2: ({0: 42, 1: 28}, ())}


def test_one_that_finds_no_room_loses_from_when_all_before_it_had_ended() -> None:
    late = [(0, 60), (0, 75), (75, 95)]  # as a rule it begins 2 after the one before it
    found = met(two(), MET, MET, late)
    assert own(found)[2] == [50, 30, 20]
    # The 13 it waits it loses to b's, which it meets no more once it runs: b's lose all to a's.
    assert losses(found[2]) == {0: ({1: 10}, (2,)), 1: ({0: 45}, ()), 2: ({1: 13}, ())}


def test_who_needs_another_stream_is_not_late_before_that_is_through() -> None:
    program = replace(two(), needs={2: (1,)})
    joined = [(0, 50), (0, 70), (72, 92)]
    (*_, found) = met(program, MET, MET, joined)
    assert found.kernel_ns.tolist() == [50, 30, 20]
    assert losses(found) == {1: ({0: 40}, ())}
    assert found.needs == {2: (1,)}
    # Without that need it would have found no room from 52 to 70.
    assert losses(met(two(), MET, MET, joined)[-1])[2] == ({1: 20}, ())


def test_who_is_late_and_met_nobody_lost_nothing() -> None:
    late = [(0, 60), (0, 40), (80, 100)]
    (*_, found) = met(two(), MET, MET, late)
    assert found.kernel_ns.tolist() == [50, 30, 20]  # the gap is that of the bare graph
    assert 2 not in found.lost


@pytest.mark.parametrize(("until", "lost"), [(5, 0), (6, 50)])
def test_a_short_meeting_tells_nothing(until: int, lost: int) -> None:
    """a takes 100 beside one of 5 or 6 at its start, where it is known to take 50 alone."""
    times = [(0, 100), (0, until), (102, 122)]
    (found, *_) = met(two(), times, times, times, alone={0: 50, 1: 5, 2: 20})
    assert found.kernel_ns[0] == 100 - lost
    assert sum(losses(found).get(0, ({}, ()))[0].values()) == lost


def test_who_met_nobody_takes_what_it_took() -> None:
    runs = [[*MET[:2], (62, 62 + took)] for took in (18, 20, 22)]
    assert own(met(two(), *runs)) == [[50, 30, 18], [50, 30, 20], [50, 30, 22]]


def test_what_it_takes_alone_is_the_mean_of_runs_in_which_it_met_nobody() -> None:
    apart = [[(0, took), (0, 1), (took + 2, took + 22)] for took in (40, 44, 48)]
    found = met(two(), MET, *apart, alone={0: 7.0})
    assert own(found) == [[44, 1, 20], [40, 1, 20], [44, 1, 20], [48, 1, 20]]
    assert losses(found[0])[0] == ({1: 16}, (2,))
    # Two such runs do not tell: the sequence does, or where that has none the least of all runs.
    assert own(met(two(), MET, MET, *apart[1:], alone={0: 50.0, 2: 20.0}))[0][0] == 50
    assert own(met(two(), MET, MET, *apart[1:], alone={2: 20.0}))[0][0] == 44
    # Of two runs two are all there are.
    (short, *_) = met(two(), *apart[:2], alone={0: 9.0})
    assert (short.kernel_ns[0], 0 in short.lost) == (40, False)


def test_the_sequence_finds_other_caches() -> None:
    """d takes 20 in the runs and 40 in the sequence: so all take half of what they take there."""
    found = met(two(), MET, MET, MET, alone={0: 100.0, 1: 60.0, 2: 40.0})
    assert own(found) == [[50, 30, 20]] * 3
    assert own(met(two(), MET, MET, MET, alone={0: 50.0, 1: 30.0})) == [[50, 30, 20]] * 3


def test_nobody_gains_beside_others() -> None:
    found = met(two(), MET, MET, MET, alone={0: 99.0, 1: 30.0, 2: 20.0})
    assert own(found) == [[60, 30, 20]] * 3
    assert 0 not in found[0].lost


@pytest.mark.parametrize(
    ("alone", "needs", "heirs"),
    [
        (50.0, {}, (2, 3)),
        (40.0, {}, (2, 3)),  # 20 lost, as long as the next one is
        (39.0, {}, ()),  # 21 lost: the one after the next is long enough, but not beside b's
        (50.0, {3: (1,)}, (2,)),  # one that waits for another stream is not there at once
        (50.0, {2: (1,)}, ()),
    ],
)
def test_who_runs_beside_the_others_when_a_kernel_is_gone(
    alone: float, needs: dict[int, tuple[int, ...]], heirs: tuple[int, ...]
) -> None:
    program = replace(launched((A, 7), (B, 8), (D, 7), (D, 7)), needs=needs)
    times = [*MET, (84, 134)]
    (found, *_) = met(program, times, times, times, alone={0: alone, 1: 40, 2: 20, 3: 50})
    assert losses(found) == {0: ({1: 60 - alone}, heirs)}


def test_kernels_that_are_all_the_first_of_their_streams_have_no_usual_gap() -> None:
    found = met(launched((A, 7), (B, 8)), MET[:2], MET[:2], alone={0: 50.0, 1: 30.0})
    assert own(found) == [[50, 30]] * 2
    assert losses(found[0]) == {0: ({1: 10}, ()), 1: ({0: 10}, ())}


def test_the_first_run_and_runs_that_lack_a_kernel_or_have_it_twice_are_left_out() -> None:
    slow = [(0, 90), (0, 40), (92, 112)]
    runs = rows(slow, MET, slow, slow, slow, MET, first=5)
    twice = pl.col("kernel_id").replace(2, 0)
    runs = pl.concat([
        runs.filter((pl.col("run") != 7) | (pl.col("kernel_id") != 1)),
        runs.filter(pl.col("run") == 8, pl.col("kernel_id") == 2),  # as many, and one too many
        runs.filter(pl.col("run") == 5).with_columns(kernel_id=pl.lit(99, pl.Int64)),  # not of it
    ])  # fmt: skip
    runs = runs.with_columns(
        kernel_id=pl.when(pl.col("run") == 9).then(twice).otherwise("kernel_id")
    )
    found = as_met([two()], runs, SEQUENCE, 1)
    assert found is not None
    assert own(found.programs) == [[50, 30, 20]] * 2
    assert {tuple(one.lost[0].ns) for one in found.programs} == {(10.0,)}


def test_without_whole_runs_of_several_streams_there_is_nothing() -> None:
    assert as_met([two()], None, SEQUENCE, 1) is None
    assert as_met([two()], rows(), SEQUENCE, 1) is None
    assert as_met([two()], rows(MET), SEQUENCE, 1) is None  # the first
    assert as_met([two()], rows(MET, MET[:2], MET[:2]), SEQUENCE, 1) is None
    assert as_met([launched((A, 7), (B, 7), (D, 7))], rows(MET, MET), SEQUENCE, 1) is None
    assert as_met([], rows(MET, MET), SEQUENCE, 1) is None


def test_of_several_steps_the_one_that_was_paired_counts() -> None:
    other = two()
    other = replace(other, kernel_id=other.kernel_id + 3)
    found = as_met([other, two()], rows(MET, MET), SEQUENCE, 1)
    assert found is not None
    assert [one.kernel_id.tolist() for one in found.programs] == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("alone", "one_stream_ns", "gap"),
    [(SEQUENCE, 104, 2.0), (SEQUENCE, 90, 0.0), (SEQUENCE, None, None),
     ({0: 50.0, 1: 30.0}, 104, None)],
)  # fmt: skip
def test_the_gap_is_that_of_the_graph_on_one_stream(
    alone: dict[int, float], one_stream_ns: int | None, gap: float | None
) -> None:
    found = as_met([two()], rows(MET, MET), alone, 1)
    assert found is not None
    assert found.gap_ns(one_stream_ns) == gap


def test_one_kernel_more_than_none_has_no_gap_to_divide_by() -> None:
    one = replace(two(), kernel_ns=np.array([50]))
    assert Met((one,), 50.0).gap_ns(70) == 20.0


def without(scale: Scale, *modules: int) -> float:
    stays = np.array([[float(owner not in modules)] for owner, _ in scale.program.owners])
    return float(simulate(scale.program, scale.variants(stays, stays))[0])


@pytest.mark.parametrize(
    ("bare_ns", "without_a", "without_b", "without_d"),
    [
        (82, 30, 72, 60),  # once: 50 + 10, 2, 20. Without a's, d's is beside b's: 20 + 10
        (94, 42, 72, 72),  # 2.2 times
        (72, 30, 72, 50),  # nothing is lost
        (112, 60, 72, 90),  # four times, the most
    ],
)
def test_losses_give_way_to_the_bare_graph(
    bare_ns: int, without_a: float, without_b: float, without_d: float
) -> None:
    (scale,) = met_scales(met(two(), MET), bare_ns, 2.0)
    assert (scale.gap, scale.device, scale.host, scale.together) == (2, 1, 0, 1)
    found = [scale.step_ns(), *(without(scale, one) for one in (A, B, D))]
    assert found == pytest.approx([bare_ns, without_a, without_b, without_d], abs=1e-3)
    assert without(scale, A, D) == pytest.approx(30)  # nobody is left to lose, nor to lose to
    assert without(scale, A, B, D) == 0


def test_one_factor_is_for_all_runs() -> None:
    apart = [(0, 50), (0, 1), (52, 72)]
    programs = met(two(), MET, apart)
    scales = met_scales(programs, 92, 2.0)
    assert [scale.step_ns() for scale in scales] == pytest.approx([112, 72], abs=1e-3)
    assert [scale.lost for scale in scales] == pytest.approx([4, 4])
    assert scales[0].program.lost[0].ns.tolist() == pytest.approx([10])


def test_gaps_or_kernels_give_way_where_no_loss_makes_the_step_as_long() -> None:
    (longer,) = met_scales(met(two(), MET), 130, 2.0)
    assert [longer.gap, longer.device] == pytest.approx([50, 1])  # 60, the gap, 20
    (shorter,) = met_scales(met(two(), MET), 70, 2.0)
    assert [shorter.gap, shorter.device] == pytest.approx([0, 1])  # nothing is lost: 50, 20
    assert shorter.program.lost == {}
    assert shorter.step_ns() == pytest.approx(70, abs=1e-3)
    assert longer.together == shorter.together == 1  # what is lost is in the kernels already


# --- whatever the runs --------------------------------------------------------------------------

FIVE = launched((A, 7), (B, 8), (D, 7), (B, 8), (ROOT, 9))
JOINED = replace(FIVE, needs={3: (0,)})
STEADY = settings(max_examples=60, deadline=None)


@st.composite
def any_run(draw: st.DrawFn, program: Program) -> list[Times]:
    """Each kernel somewhat after those before it."""
    ended: dict[int, int] = {}
    times: list[Times] = []
    for kernel, stream in enumerate(program.stream.tolist()):
        ready = max([ended.get(stream, 0), *(times[o][1] for o in program.needs.get(kernel, ()))])
        start = ready + draw(st.integers(0, 30))
        times.append((start, start + draw(st.integers(0, 200))))
        ended[stream] = times[-1][1]
    return times


def any_runs(program: Program) -> st.SearchStrategy[list[list[Times]]]:
    return st.lists(any_run(program), min_size=1, max_size=4)


SOME = st.sampled_from([FIVE, JOINED]).flatmap(
    lambda program: st.tuples(st.just(program), any_runs(program))
)
ALONE = st.dictionaries(st.integers(0, 4), st.floats(1, 300), max_size=5)


@STEADY
@given(SOME, ALONE)
def test_own_time_and_losses_are_between_the_kernel_and_all_its_waiting(
    case: tuple[Program, list[list[Times]]], alone: dict[int, float]
) -> None:
    program, runs = case
    for found, times in zip(met(program, *runs, alone=alone), runs, strict=True):
        begin = min(start for start, _ in times)
        for kernel, (start, end) in enumerate(times):
            loss = found.lost.get(kernel)
            whole = float(found.kernel_ns[kernel]) + (0.0 if loss is None else loss.ns.sum())
            assert end - start - 0.5 <= whole <= end - begin + 0.5
            if loss is not None:
                assert found.kernel_ns[kernel] >= 0
                assert (loss.ns > 0).all()
                assert (program.stream[loss.others] != program.stream[kernel]).all()
                assert all(program.stream[h] == program.stream[kernel] for h in loss.heirs)
                assert all(h > kernel for h in loss.heirs)


@STEADY
@given(SOME, ALONE)
def test_no_figure_depends_on_when_a_trace_begins(
    case: tuple[Program, list[list[Times]]], alone: dict[int, float]
) -> None:
    program, runs = case
    pairs = zip(
        met(program, *runs, alone=alone),
        met(program, *runs, alone=alone, since=2**60 + 1),
        strict=True,
    )
    for early, late in pairs:
        assert early.kernel_ns.tolist() == late.kernel_ns.tolist()
        assert losses(early) == losses(late)


@STEADY
@given(SOME, ALONE, st.integers(1, 3_000), st.floats(0, 40))
def test_runs_come_to_the_bare_graph_and_nothing_makes_them_longer(
    case: tuple[Program, list[list[Times]]], alone: dict[int, float], bare_ns: int, gap_ns: float
) -> None:
    program, runs = case
    programs = met(program, *runs, alone=alone)
    scales = met_scales(programs, bare_ns, gap_ns)
    if all(one.kernel_ns.all() for one in programs):  # no gap is after a kernel that takes nothing
        mean = float(middle_mean(np.array([scale.step_ns() for scale in scales])))
        assert mean == pytest.approx(bare_ns, rel=1e-4, abs=0.1)
    for scale in scales:
        assert without(scale, ROOT, A, B, D) == 0
        for module in (A, B, D):
            assert without(scale, module) <= scale.step_ns() + 1e-3
