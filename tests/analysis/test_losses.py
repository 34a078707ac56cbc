"""What the simulator and the marginal costs make of losses in profiled runs of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cb_trace.analysis.marginal import marginal_costs, scaled_steps, with_together
from cb_trace.analysis.meeting import met_scales
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.program import Loss, Program
from cb_trace.analysis.simulate import simulate
from cb_trace.analysis.stats import BareStep, Interval
from cb_trace.bundle import Deployment
from tests.analysis.test_meeting import MET, SEQUENCE, Times, launched, rows, two
from tests.analysis.timelines import MODULE, ROOT, A, B, D
from tests.frames import frame


def lengths(program: Program, **device: float) -> float:
    """The graph of the program with modules' kernels made longer or shorter, no gaps."""
    (scale,) = met_scales([program], int(1e9), 0.0)
    times = np.array(
        [[device.get({A: "a", B: "b", D: "d"}.get(owner or ROOT, ""), 1.0)]
         for owner, _ in program.owners]
    )  # fmt: skip
    return float(simulate(scale.program, replace(scale, gap=0.0).variants(times, times))[0])


@pytest.mark.parametrize(
    ("device", "length"),
    [
        ({}, 1_110.0),  # 1,000, of which b 100 more, and 10
        ({"b": 0.5}, 1_060.0),  # half of b, half of the loss
        ({"b": 3.0}, 1_110.0),  # what is longer takes no more
        ({"b": 0.0}, 1_010.0),
        ({"a": 0.0}, 110.0),  # d's 10, and what it inherits
        ({"a": 0.5}, 610.0),  # half as long, and it still loses what it did
        ({"a": 0.0, "d": 0.0}, 30.0),
        ({"a": 0.0, "b": 0.5}, 60.0),
    ],
)
def test_a_loss_is_in_proportion_to_what_is_left_of_the_others(
    device: dict[str, float], length: float
) -> None:
    program = replace(
        two(), kernel_ns=np.array([1_000, 30, 10]),
        lost={0: Loss(np.array([1]), np.array([100.0]), (2,))},
    )  # fmt: skip
    assert lengths(program, **device) == pytest.approx(length)


def test_only_the_first_heir_that_is_there_loses() -> None:
    program = replace(
        launched((A, 7), (B, 8), (D, 7), (ROOT, 7)), kernel_ns=np.array([1_000, 1, 300, 200]),
        lost={0: Loss(np.array([1]), np.array([100.0]), (2, 3))},
    )  # fmt: skip
    assert lengths(program) == pytest.approx(1_600)
    assert lengths(program, a=0.0) == pytest.approx(600)
    assert lengths(program, a=0.0, d=0.0) == pytest.approx(300)
    assert lengths(program, a=0.0, d=0.0, b=0.0) == pytest.approx(200)


BARE: dict[Deployment, BareStep] = {"graph": Interval(82, 82, 82)}


def profiled(one_stream_ns: int | None = 104, *runs: Sequence[Times]) -> Parts:
    given = rows(*(runs or [MET] * 4))
    parts = Parts(graph_gap_ns=7.0, one_stream_ns=one_stream_ns)
    return with_together(parts, {"graph": [two()]}, BARE, SEQUENCE, given)


def test_a_graph_with_profiled_runs_is_scaled_run_by_run() -> None:
    parts = profiled()
    scaled = scaled_steps([two()], "graph", Interval(82, 80, 90), parts)
    assert scaled.met
    assert [[one.step_ns() for one in side] for side in (scaled.middle, *scaled.sides)] == [
        pytest.approx([ns] * 3, abs=1e-3) for ns in (82, 80, 90)
    ]
    assert {one.gap for one in scaled.middle} == {2.0}
    alone = scaled_steps([two()], "graph", BARE["graph"], profiled(None)).middle
    assert {one.gap for one in alone} == {7.0}  # that of modules alone


def test_other_steps_are_not_made_of_the_runs() -> None:
    parts = profiled()
    eager = scaled_steps([two()], "eager", Interval(82, 80, 90), parts)
    assert (eager.met, len(eager.middle)) == (False, 1)
    predicted = scaled_steps([two()], "graph", None, parts)  # it has not seen the bare graph
    assert (predicted.met, len(predicted.middle)) == (False, 1)
    assert predicted.middle[0].program.lost == {}
    none = with_together(Parts(), {"graph": [two()]}, BARE, SEQUENCE)
    assert none.met is None
    assert not scaled_steps([two()], "graph", BARE["graph"], none).met


def test_the_marginal_cost_is_the_mean_of_the_runs() -> None:
    """In half of the runs a and b meet and lose 20 each, twice what they do in the mean."""
    apart = [(0, 50), (0, 1), (52, 72)]
    runs = rows(MET, MET, apart, MET, apart)
    parts = with_together(Parts(one_stream_ns=104), {"graph": [two()]}, BARE, SEQUENCE, runs)
    partition = frame(
        "partition",
        *({"module_id": m, "phase": "forward", "deployment": "graph", "kind": "busy", "ns": 1}
          for m in (ROOT, A, B, D)),
    )  # fmt: skip
    found = marginal_costs(
        {"graph": [two()]}, MODULE, partition, frame("cost_bounds"), parts,
        run_id="r", bare=BARE, device_type="cuda",
    ).filter(kind="marginal")  # fmt: skip
    costs = {row["module_id"]: row for row in found.iter_rows(named=True)}
    assert {m: costs[m]["ns"] for m in (ROOT, B)} == {ROOT: 82, B: 10}
    assert (costs[ROOT]["low_ns"], costs[ROOT]["high_ns"]) == (72, 92)
    assert (costs[B]["low_ns"], costs[B]["high_ns"]) == (0, 20)
