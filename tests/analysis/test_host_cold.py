"""Host time of cold code: whose it is when the first of a kind is gone, to the nanosecond."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cb_trace.analysis.host_alone import Alone
from cb_trace.analysis.host_cold import HostCold, host_cold
from cb_trace.analysis.parts import Parts
from tests.analysis.test_simulate import begun, lost, run, stepped
from tests.analysis.timelines import LIST, MODULE, ROOT, A, B, C, D, Timeline


def three_in_turn() -> Timeline:
    """The host is the bound: 100 µs, of which a has 30, b and d 20 each, the root the rest."""
    timeline = begun()
    for module, start, length in ((A, 10_000, 30_000), (B, 40_000, 20_000), (D, 60_000, 20_000)):
        timeline.call(module, start, length, parent_call_id=0)
        run(timeline, module, start + 5_000, start + 7_000, 1_000)
    return timeline


# 12 of a's 30 µs are of cold code, and b runs the same.
COLD = HostCold(
    spent_ns={A: 30_000.0, B: 20_000.0, D: 20_000.0},
    cold_ns={A: 12_000.0},
    kind={A: "linear", B: "linear", D: "table"},
)


def test_the_next_of_the_kind_takes_it_over_and_less_work_leaves_it_warmer() -> None:
    assert lost(three_in_turn(), 100_000) == {
        ROOT: 100_000, A: 30_000, B: 20_000, LIST: 20_000, D: 20_000,
    }  # fmt: skip
    # Two thirds of the share that is gone: 0.2 of what b took over, 0.4 ÷ 3 of a's own.
    assert lost(three_in_turn(), 100_000, "eager", Parts(cold=COLD)) == {
        ROOT: 100_000, A: 30_000 - 9_600, B: 21_600, LIST: 21_600, D: 21_600,
    }  # fmt: skip


def test_a_graph_has_no_host() -> None:
    timeline = three_in_turn()
    assert lost(timeline, 6_000, "graph", Parts(cold=COLD)) == lost(timeline, 6_000, "graph")


def test_who_is_cold_itself_takes_it_on_top() -> None:
    cold = HostCold(COLD.spent_ns, {A: 12_000.0, B: 9_000.0}, COLD.kind)
    (program,) = stepped(three_in_turn())
    row = {module: place for place, (module, _) in enumerate(program.owners)}
    host = np.ones((len(program.owners), 2))
    host[row[A], 1] = 0.0
    found = cold.factors(program, host)
    assert found[:, 0].tolist() == [1.0] * len(program.owners)
    assert found[row[B], 1] == pytest.approx(1 + (21_000 * 0.8 - 9_000) / 20_000)


def named(**classes: str) -> pl.DataFrame:
    numbers = {"a": A, "b": B, "c": C, "d": D}
    found = {numbers[name]: kind for name, kind in classes.items()}
    kind = pl.col("module_id").replace_strict(found, default="Other", return_dtype=pl.String)
    return MODULE.with_columns(kind.alias("class"))


def test_the_middle_of_a_kind_is_warm() -> None:
    module = named(b="Linear", c="Linear", d="Linear")
    spent = {A: 50.0, B: 16_000.0, C: 23_000.0, D: 15_500.0}
    found = host_cold(spent, {}, module, {A: 9, B: 1, C: 1, D: 1}, {ROOT, A, B, C, D})
    # a holds c: what it does itself is of no kind.
    assert found == HostCold(
        {B: 16_000.0, C: 23_000.0, D: 15_500.0},
        {C: 7_000.0},
        dict.fromkeys((B, C, D), ("Linear", 1)),
    )
    other = host_cold(spent, {}, module, {B: 1, C: 2, D: 1}, {ROOT, A, B, C, D})
    assert other.cold_ns == {}  # two are too few
    assert other.kind[C] == ("Linear", 2)


def test_one_of_a_kind_is_warm_as_alone_but_for_the_loop() -> None:
    module = named(b="Linear", c="Linear", d="Linear")
    spent = {A: 28_000.0, B: 16_000.0, C: 23_000.0, D: 15_500.0}
    by_host = dict.fromkeys((B, C, D), Alone(20_000.0, 40_000.0, True))
    for bound, cold in ((True, {A: 28_000.0 - 0.8 * 30_000, C: 7_000.0}), (False, {C: 7_000.0})):
        alone = by_host | {A: Alone(30_000.0, 60_000.0, bound)}
        kernels = {A: 3, B: 1, C: 1, D: 1}
        found = host_cold(spent, alone, module, kernels, {ROOT, A, B, LIST, D})
        assert found.cold_ns == pytest.approx(cold)
