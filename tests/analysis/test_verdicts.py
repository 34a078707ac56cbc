from typing import Any

import polars as pl
import pytest

from cb_trace.analysis import Figures, Interval, verdict
from cb_trace.analysis.verdicts import Faster, verdicts
from tests.analysis.timelines import LIST, MODULE, A, B, D
from tests.frames import frame


def us(value: float, around: float = 0) -> Interval:
    return Interval(*(round(v * 1000) for v in (value, value - around, value + around)))


def text(cost: Interval, isolated: Interval | None, deployment: str = "graph", **more: Any) -> str:
    return verdict(Figures(deployment=deployment, cost=cost, isolated=isolated, **more))


def test_launch_latency_that_the_graph_does_not_pay() -> None:
    terms = {"launch": us(690, 5), "cache": us(-14, 1), "idle": us(-2), "overlap": us(4)}
    assert text(us(72, 2), us(750, 6), terms=terms, graph=us(58, 1)) == (
        "alone 750 µs, of which 690 µs launch latency; "
        "costs 72 µs in the CUDA-graphed step: believe the 72"
    )


def test_what_a_graph_does_not_save_is_no_launch_latency() -> None:
    terms = {"launch": us(146, 6)}
    assert "of which 146 µs slower device back to back (clock, power);" in text(
        us(923, 2), us(1064, 6), terms=terms, graph=us(1085, 14)
    )
    assert (
        "of which 100 µs launch latency and 46 µs slower device back to back (clock, power);"
        in (text(us(923, 2), us(1064, 6), terms=terms, graph=us(964, 2)))
    )


@pytest.mark.parametrize(
    ("device_type", "name"),
    [("cuda", "launch latency or a lower clock"), ("cpu", "time outside operators")],
)
def test_without_a_graph_the_two_cannot_be_told_apart(device_type: str, name: str) -> None:
    found = text(us(50), us(80), terms={"launch": us(30, 4)}, device_type=device_type)
    assert f"of which 30 µs {name};" in found


def test_what_the_isolated_figure_leaves_out() -> None:
    terms = {"launch": us(3, 1), "idle": us(-1200, 9), "cache": us(-310, 9), "fusion": us(-20)}
    assert text(us(2000), us(473), "eager", terms=terms) == (
        "alone 473 µs, leaving out 1,200 µs of idle time before its kernels and 310 µs of slower "
        "caches or drift; costs 2,000 µs in the eager step: believe the 2,000"
    )


def test_at_most_two_are_named_each_a_tenth_of_the_difference() -> None:
    terms = {"launch": us(50), "cache": us(30), "fusion": us(20), "residual": us(0)}
    said = text(us(100), us(200), terms=terms)
    assert "alone 200 µs, of which 50 µs launch latency or a lower clock and 30 µs slower" in said
    assert "fusion" not in said
    least = {"launch": us(90), "cache": us(10), "residual": us(0)}
    assert "90 µs launch latency or a lower clock and 10 µs slower caches;" in text(
        us(100), us(200), terms=least
    )
    less = {"launch": us(90.1), "cache": us(9.9), "residual": us(0)}
    assert "caches" not in text(us(100), us(200), terms=less)


@pytest.mark.parametrize(
    ("idle", "words"),
    [
        (us(-200, 9), "of which 300 µs launch latency, leaving out 200 µs of idle time before"),
        (us(-49), "of which 300 µs launch latency;"),  # less than half of the difference
        (us(-200, 300), "of which 300 µs launch latency;"),  # within its noise
    ],
)
def test_a_term_that_goes_the_other_way_is_named_where_it_is_large(
    idle: Interval, words: str
) -> None:
    """Launch latency alone and a host that is late in the step: neither says all by itself."""
    terms = {"launch": us(300, 9), "idle": idle}
    assert words in text(us(400), us(500), "eager", terms=terms, graph=us(200))


def test_so_it_is_where_the_step_is_the_longer() -> None:
    terms = {"launch": us(300, 9), "cache": us(80), "idle": us(-420, 9), "residual": us(0)}
    assert text(us(540), us(500), "eager", terms=terms, graph=us(200)) == (
        "alone 500 µs, of which 300 µs launch latency, leaving out 420 µs of idle time before its "
        "kernels; costs 540 µs in the eager step: believe the 540"
    )


def test_what_the_step_hides_may_be_more_than_the_module_takes_alone() -> None:
    terms = {"overlap": us(919, 3), "contention": us(-320, 2), "residual": us(0)}
    assert text(us(0), us(612), terms=terms) == (
        "alone 612 µs, leaving out 320 µs of contention with other streams, while the step hides "
        "919 µs of it under other work; costs 0.0 µs in the CUDA-graphed step: believe the 0.0"
    )


@pytest.mark.parametrize(
    ("deployment", "compiled", "step"),
    [
        ("eager", False, "eager step"),
        ("eager", True, "compiled step"),
        ("graph", False, "CUDA-graphed step"),
        ("graph", True, "compiled, CUDA-graphed step"),
    ],
)
def test_the_step_is_called_what_it_is(deployment: str, compiled: bool, step: str) -> None:
    said = text(us(100), us(101, 5), deployment, compiled=compiled)
    assert f"costs 100 µs in the {step}:" in said


def test_on_a_cpu_operators_stand_for_kernels() -> None:
    terms = {"launch": us(40), "fusion": us(20), "idle": us(-60)}
    assert text(us(100), us(160), "eager", terms=terms, device_type="cpu") == (
        "alone 160 µs, of which 40 µs time outside operators and 20 µs operators that the step "
        "does not run, leaving out 60 µs of idle time before its operators; costs 100 µs in the "
        "eager step: believe the 100"
    )


def test_kernels_slower_in_profiled_calls_are_no_launch_latency() -> None:
    """The wall is shorter than its kernels as profiled: nothing of that was launching."""
    terms = {"launch": us(-30), "residual": us(0)}
    for graph in (None, us(50)):
        assert "leaving out 30 µs of kernel time that only its profiled calls show;" in text(
            us(80), us(50), terms=terms, graph=graph
        )


def test_with_a_sequence_run_the_cache_is_named() -> None:
    terms = {"cache": us(-30, 1), "residual": us(0, 1)}
    assert "leaving out 30 µs of slower caches;" in text(us(80), us(50), terms=terms)


def test_within_noise_either_holds() -> None:
    assert text(us(9.94, 1), us(10.2, 1), terms={"launch": us(5)}) == (
        "alone 10 µs, costs 9.9 µs in the CUDA-graphed step: "
        "no difference beyond noise, the two cannot be told apart"
    )


def test_a_term_within_its_noise_is_not_named() -> None:
    assert text(us(50), us(80), terms={"launch": us(30, 40)}) == (
        "alone 80 µs, of which 30 µs that no term beyond noise explains; "
        "costs 50 µs in the CUDA-graphed step: believe the 50"
    )


@pytest.mark.parametrize(("skipped", "end"), [("collective", ": collective"), (None, "")])
def test_not_replayed(skipped: str | None, end: str) -> None:
    assert text(us(5), None, "eager", skipped=skipped) == (
        f"costs 5.0 µs in the eager step; not replayed alone{end}"
    )


def replay(module: int, wall: int | None, **more: Any) -> dict[str, Any]:
    row = {"module_id": module, "phase": "forward", "condition": "hot", "calls": 2}
    bounds = {"median_ns": wall, "low_ns": wall, "high_ns": wall}
    return row | bounds | more


def part(module: int | None, kind: str, ns: int) -> dict[str, Any]:
    row = {"module_id": module, "phase": "forward", "deployment": "eager", "kind": kind}
    return row | {"ns": ns, "low_ns": ns, "high_ns": ns}


def bounds(*sure: tuple[int, str, int]) -> pl.DataFrame:
    """Costs that are known exactly."""
    rows = (
        {"module_id": module, "phase": phase, "deployment": "eager", "low_ns": ns, "high_ns": ns}
        for module, phase, ns in sure
    )
    return frame("cost_bounds", *rows)


def test_one_row_a_module_of_the_partition_with_containers() -> None:
    partition = frame(
        "partition",
        part(A, "busy", 7000),
        part(A, "idle_host", 1000),
        part(D, "busy", 20000),
        part(None, "profiled_excess", -5),
    )
    term = frame("term", part(D, "launch", 40000), part(LIST, "launch", 40000))
    replays = frame("replay", replay(D, 30000), replay(A, None, skipped="out of memory"))
    sure = ((0, 28000), (A, 8000), (LIST, 20000), (D, 20000))
    known = bounds(*((module, "forward", ns) for module, ns in sure))
    rows = verdicts(partition, known, term, replays, MODULE, run_id="r")
    root = "costs 28 µs in the eager step; not replayed alone"
    root += "; modules in it, 71 % of its cost, 60 µs alone"
    cause = "40 µs launch latency or a lower clock"
    alone = f"60 µs, of which {cause}; costs 20 µs in the eager step: believe the 20"
    assert rows.drop("phase", "deployment").rows() == [
        ("r", 0, root),
        ("r", A, "costs 8.0 µs in the eager step; not replayed alone: out of memory"),
        ("r", LIST, f"its parts alone {alone}"),
        ("r", D, f"alone {alone}"),
    ]


@pytest.mark.parametrize(
    ("mode", "step"),
    [("eager", "eager"), ("compile", "compiled"), ("compile+cudagraph", "compiled")],
)
def test_a_recording_of_compiled_steps_has_no_eager_one(mode: str, step: str) -> None:
    parts = frame("partition", part(A, "busy", 7000))
    known = bounds((A, "forward", 7000))
    rows = verdicts(parts, known, frame("term"), frame("replay"), MODULE, run_id="r", mode=mode)
    assert rows.filter(module_id=A)["text"].to_list() == [
        f"costs 7.0 µs in the {step} step; not replayed alone"
    ]


def test_all_phases_together_were_measured_by_phase() -> None:
    partition = frame(
        "partition", part(A, "busy", 7000), part(A, "busy", 2000) | {"phase": "backward"},
        part(B, "busy", 1000),
    )  # fmt: skip
    phases = [(A, "backward", 2000), (A, "forward", 7000), (A, "step", 9000), (B, "step", 1000)]
    rows = verdicts(
        partition, bounds(*phases, (B, "forward", 1000)), frame("term"),
        frame("replay", replay(A, 7000)), MODULE, run_id="r",
    )  # fmt: skip
    said = {row[1]: row[4] for row in rows.filter(phase="step").rows()}
    assert said[A] == "costs 9.0 µs in the eager step; measured alone by phase only"
    assert said[B] == "costs 1.0 µs in the eager step; not replayed alone"


def test_training_has_a_sentence_for_all_phases_together() -> None:
    partition = frame(
        "partition", part(A, "busy", 7000), part(A, "busy", 2000) | {"phase": "backward"}
    )
    phases = {"backward": 2000, "forward": 7000, "step": 9000}
    known = bounds(*((module, phase, ns) for module in (0, A) for phase, ns in phases.items()))
    rows = verdicts(partition, known, frame("term"), frame("replay"), MODULE, run_id="r")
    costs = {
        phase: text
        for module, phase, text in rows.select("module_id", "phase", "text").rows()
        if module == A
    }
    assert {phase: text.split(" µs")[0] for phase, text in costs.items()} == {
        "backward": "costs 2.0",
        "forward": "costs 7.0",
        "step": "costs 9.0",
    }


def test_the_graph_replay_of_a_container_is_that_of_its_parts() -> None:
    partition = frame("partition", part(D, "busy", 20000))
    term = frame("term", part(D, "launch", 40000), part(LIST, "launch", 40000))
    replays = frame("replay", replay(D, 30000), replay(D, 12000, condition="graph"))
    known = bounds(*((module, "forward", 20000) for module in (0, LIST, D)))
    rows = verdicts(partition, known, term, replays, MODULE, run_id="r")
    sentences = dict(rows.select("module_id", "text").rows())
    for module in (D, LIST):
        assert "of which 36 µs launch latency and 4.0 µs slower device back" in sentences[module]


LOSS: dict[str, Any] = {"deployment": "graph", "cost": Interval(73_000, 73_000, 73_000),
        "isolated": Interval(750_000, 740_000, 760_000)}  # fmt: skip


@pytest.mark.parametrize(
    ("knockout", "marginal", "words"),
    [
        (Interval(72_000, 69_000, 75_000), None,
         "costs 73 µs in the CUDA-graphed step, which is 72 µs shorter without it (knock-out, 69 "
         "to 75): believe the 72"),
        (Interval(20_000, -5_000, 60_000), None,
         "step (knock-out cannot tell: -5.0 to 60 µs): believe the 73"),
        (Interval(20_000, -5_000, 60_000), Interval(40_000, 39_000, 41_000),
         "(knock-out cannot tell: -5.0 to 60 µs), which is predicted to be 40 µs shorter without "
         "it: believe the 40"),
        (None, Interval(40_000, 39_000, 41_000), "predicted to be 40 µs shorter without it: "
         "believe the 40"),
        (None, Interval(20, 0, 40), "predicted to be as long without it: believe the 0"),
        (None, Interval(-9_000, -9_900, -8_000), "predicted to be 9.0 µs longer without it: "
         "believe the 73"),
        (None, Interval(70_000, 69_000, 71_000), "step: believe the 73"),  # within a tenth
        (None, Interval(40_000, 39_000, 74_000), "step: believe the 73"),  # the intervals meet
    ],
)  # fmt: skip
def test_what_the_step_loses_without_it(
    knockout: Interval | None, marginal: Interval | None, words: str
) -> None:
    figures: dict[str, Any] = LOSS | {"knockout": knockout, "marginal": marginal}
    assert verdict(Figures(**figures)).endswith(words)


def test_a_knock_out_decides_where_the_others_agree() -> None:
    same = Interval(73_000, 70_000, 76_000)
    found = verdict(Figures(deployment="eager", cost=same, isolated=same,
                            knockout=Interval(30_000, 29_000, 31_000)))  # fmt: skip
    assert found.endswith("(knock-out, 29 to 31): no difference beyond noise, believe the 30")


def test_a_step_that_is_longer_without_a_module_is_not_believed() -> None:
    cost, alone = Interval(20_000, 19_000, 21_000), Interval(40_000, 39_000, 41_000)
    found = verdict(Figures(deployment="eager", cost=cost, isolated=alone,
                            knockout=Interval(-7_400, -13_000, -6_400)))  # fmt: skip
    assert ", which is 7.4 µs longer without it (knock-out, -13 to -6.4)" in found
    assert found.endswith("believe the 20")


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (Interval(30_000, 29_000, 31_000),
         "; on 1/2 of its batch the step is 30 µs shorter (29 to 31, predicted 28)"),
        (Interval(1_000, -2_000, 3_000),
         "; on 1/2 of its batch no gain beyond noise (-2.0 to 3.0, predicted 28)"),
        (Interval(-7_400, -9_000, -6_000),
         "; on 1/2 of its batch the step is 7.4 µs longer (-9.0 to -6.0, predicted 28)"),
    ],
)  # fmt: skip
def test_a_faster_module(saved: Interval, words: str) -> None:
    figures: dict[str, Any] = {**LOSS, "faster": Faster(2, saved, 28_000)}
    assert verdict(Figures(**figures)) == verdict(Figures(**LOSS)) + words
