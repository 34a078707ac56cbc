"""Time that a kernel takes for what ran before it: who takes it over, to the nanosecond."""

from __future__ import annotations

import polars as pl
import pytest

from cb_trace.analysis.carried import longest_alone, with_carried
from cb_trace.analysis.parts import Parts
from tests.analysis.test_simulate import begun, lost, run, stepped
from tests.analysis.timelines import LIST, ROOT, A, B, C, D, Timeline
from tests.frames import frame

# Alone a takes 47 µs at the most, in the step 55; c, a part of it, is too short to take that over.
ALONE = Parts(alone_ns={A: 47_000.0, B: 93_000.0, C: 4_000.0, D: 61_000.0})


def products() -> Timeline:
    timeline = begun(12_000)
    run(timeline, A, 2_000, 4_000, 55_000)
    run(timeline, C, 4_000, 60_000, 4_000)
    run(timeline, B, 6_000, 65_000, 93_000)
    return run(timeline, D, 8_000, 159_000, 62_000)


def test_what_a_module_takes_for_others_stays() -> None:
    bare = 55_000 + 4_000 + 93_000 + 62_000  # no gaps
    found = lost(products(), bare, "graph", ALONE)
    assert found == {ROOT: bare, A: 47_000 + 4_000, B: 93_000, C: 4_000, LIST: 62_000, D: 62_000}
    assert lost(products(), bare, "graph")[A] == 55_000 + 4_000  # not known


def test_who_is_gone_too_takes_nothing_over() -> None:
    timeline = products()
    timeline.owners[2]["module_id"] = A  # b's kernel is a's as well now
    parts = Parts(alone_ns={A: 140_000.0})
    assert lost(timeline, 214_000, "graph", parts)[A] == 152_000 - 8_000  # d takes it
    timeline.owners[3]["module_id"] = A
    assert lost(timeline, 214_000, "graph", Parts(alone_ns={A: 202_000.0}))[A] == 214_000


@pytest.mark.parametrize(
    ("alone", "carried"),
    [(47_000.0, {0: (8_000.0, (2, 3))}), (52_500.0, {}), (60_000.0, {})],
)
def test_only_an_excess_beyond_noise_is_carried(
    alone: float, carried: dict[int, tuple[float, tuple[int, ...]]]
) -> None:
    (program,) = stepped(products())
    assert with_carried(program, {A: alone}).carried == carried


def test_beside_others_the_excess_is_theirs() -> None:
    timeline = products()
    run(timeline, D, 9_000, 30_000, 5_000, stream=8)
    (program,) = stepped(timeline)
    assert with_carried(program, {A: 47_000.0}).carried == {}


def test_alone_is_the_longer_of_warm_and_cold() -> None:
    def replay(number: int, module: int, condition: str, busy: int | None) -> dict[str, object]:
        return {"replay_id": number, "measured_id": number, "module_id": module, "calls": 2,
                "condition": condition, "busy_ns": busy}  # fmt: skip

    rows = frame(
        "replay",
        replay(0, A, "hot", 40), replay(1, A, "cold", 47), replay(2, A, "graph", 99),
        replay(3, B, "hot", 40),  # never cold
        replay(4, C, "hot", 40), replay(5, C, "cold", 30),
        replay(6, D, "hot", 40), replay(7, D, "cold", 47),
        replay(9, ROOT, "hot", 90), replay(10, ROOT, "cold", 95),
    )  # fmt: skip
    inner = rows.filter(rows["module_id"] != ROOT)
    assert longest_alone(rows, inner) == {A: 94, C: 80, D: 94}
    # Another call of a, that was not measured cold.
    more = pl.concat([rows, frame("replay", replay(11, A, "hot", 20))])
    assert longest_alone(more, inner) == {C: 80, D: 94}


def test_of_likes_the_middle_one_is_usual() -> None:
    (program,) = stepped(products())
    likes = {A: 1, B: 1, D: 1}  # 55, 93 and 62 µs in the step
    carried = with_carried(program, {}, likes).carried
    assert carried == {2: (31_000.0, (3,))}
    assert with_carried(program, {}, {B: 1, D: 1}).carried == {}  # two tell nothing
    assert with_carried(program, {B: 80_000.0}, likes).carried == carried
    assert with_carried(program, {B: 60_000.0}, likes).carried == {2: (33_000.0, ())}


def test_in_a_graph_what_another_stream_had_before_it_runs_beside_it() -> None:
    """There the first kernel of a branch is not after what the host launched before it."""
    timeline = begun(12_000)
    run(timeline, D, 2_000, 4_000, 50_000, stream=8)
    run(timeline, A, 4_000, 60_000, 55_000)
    run(timeline, B, 6_000, 116_000, 93_000)
    (program,) = stepped(timeline)
    alone = {A: 47_000.0, B: 93_000.0}
    assert with_carried(program, alone).carried == {1: (8_000.0, (2,))}
    assert with_carried(program, alone, graph=True).carried == {}
    # Of two kernels the longest tells: the second here, which comes after one of its own stream.
    both = {A: 47_000.0, B: 80_000.0}
    assert with_carried(program, both, graph=True).carried == {2: (13_000.0, ())}


def test_a_branch_between_two_kernels_makes_the_second_a_first_one() -> None:
    timeline = begun(12_000)
    run(timeline, B, 2_000, 4_000, 50_000)
    run(timeline, D, 4_000, 60_000, 20_000, stream=8)
    run(timeline, A, 6_000, 90_000, 55_000)
    (program,) = stepped(timeline)
    assert with_carried(program, {A: 47_000.0}).carried == {2: (8_000.0, ())}
    assert with_carried(program, {A: 47_000.0}, graph=True).carried == {}


def test_in_a_graph_the_first_kernel_of_all_comes_after_the_step_before() -> None:
    timeline = products()
    (program,) = stepped(run(timeline, D, 9_000, 222_000, 3_000, stream=8))
    alone = {A: 47_000.0, B: 85_000.0}
    expected = {0: (8_000.0, (2, 3)), 2: (8_000.0, (3,))}
    assert with_carried(program, alone, graph=True).carried == expected


def test_of_a_graph_s_marginal_costs_what_ran_beside_it_is_no_part() -> None:
    timeline = begun(12_000)
    run(timeline, D, 2_000, 4_000, 50_000, stream=8)
    run(timeline, A, 4_000, 60_000, 55_000)
    run(timeline, B, 6_000, 116_000, 93_000)
    parts = Parts(alone_ns={A: 47_000.0}, graph_gap_ns=0.0)
    assert lost(timeline, 148_000, "graph", parts)[A] == 55_000  # nobody takes 8 of it over
