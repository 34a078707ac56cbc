"""Runs of a graph on several streams against the step that was recorded: which kernel is which."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.attribution import Reference, TraceEvents, attribute, graph_times, reference
from cb_trace.attribution.graphs import paired, paired_on_streams
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import tree
from tests.kineto import Event, annotation, kernel, launch

TREE = tree("", "a", "b")
# Each kernel by its name, its stream, when it begins in the step, and the module it is of.
Ran = tuple[str, int, float, str]
Node = tuple[str, int, float]
# Two branches of the same work, one after the other as the host launched them.
STEP: list[Ran] = [
    ("gemm", 7, 100, "a"), ("gelu", 7, 120, "a"), ("norm", 8, 140, "b"), ("copy", 8, 160, "b"),
    ("sum", 7, 180, "a"),
]  # fmt: skip


def recorded(*kernels: Ran) -> tuple[TraceEvents, Reference]:
    """An eager step, each kernel launched in a call of its module."""
    events = [annotation("ProfilerStep#0", 0, 900)]
    for number, (name, stream, at, module) in enumerate(kernels):
        events += [
            annotation(f"cb:{module}", 10 * number + 1, 8),
            launch(10 * number + 2, 2, number),
            kernel(name, at, 10, number, stream=stream),
        ]
    found = events_of(events)
    return found, reference(found, attribute(found, TREE))


def graph_events(*runs: list[Node]) -> list[Event]:
    """Runs of one launch each, a ms apart; kernels take 10 µs."""
    events: list[Event] = []
    for number, kernels in enumerate(runs):
        at = 10_000.0 + 1_000 * number
        events += [
            annotation(f"ProfilerStep#{number}", at, 900),
            launch(at + 1, 1, 100 + number) | {"name": "cudaGraphLaunch"},
        ]
        events += [
            kernel(name, at + begin, 10, 100 + number, stream=stream)
            for name, stream, begin in kernels
        ]
    return events


def graph(*runs: list[Node]) -> TraceEvents:
    return events_of(graph_events(*runs))


def moved(**streams: int) -> list[Node]:
    """The step as a graph runs it: the same order, kernels on these streams."""
    return [(name, streams.get(name, stream), at) for name, stream, at, _ in STEP]


def partners(
    runs: TraceEvents, step: TraceEvents, source: Reference, *, streams: bool = True
) -> list[list[str | None]]:
    """By run, in order of start: ``name@start`` of the recorded kernel (µs), None without one."""
    found = (paired_on_streams if streams else paired)(runs.kernel, source)
    assert found["kernel_id"].is_unique().all()
    label = pl.format("{}@{}", "name", pl.col("start_ns") // 1000)
    named = step.kernel.select(from_id="kernel_id", label=label)
    rows = runs.kernel.join(found, on="kernel_id", how="left").join(named, on="from_id", how="left")
    rows = rows.sort("start_ns", "kernel_id")
    return rows.group_by("step", maintain_order=True).agg("label")["label"].to_list()


WHOLE: list[str | None] = ["gemm@100", "gelu@120", "norm@140", "copy@160", "sum@180"]


@pytest.mark.parametrize(
    "streams",
    [
        {},
        {"gemm": 20, "gelu": 20, "sum": 20, "norm": 21, "copy": 21},
        {"gelu": 9},  # a branch of its own
        {"gemm": 1, "gelu": 2, "norm": 3, "copy": 4, "sum": 5},
        {"norm": 7, "copy": 7},  # all on one
    ],
)
def test_kernels_are_found_wherever_a_graph_runs_its_branches(streams: dict[str, int]) -> None:
    step, source = recorded(*STEP)
    runs = graph(moved(**streams), moved(**streams))
    assert partners(runs, step, source) == [WHOLE, WHOLE]


def test_alike_kernels_of_one_stream_go_by_their_order_in_each_run() -> None:
    """Three alike of two modules, on three streams: without order nobody knows which is which."""
    step, source = recorded(
        ("gemm", 7, 100, "a"), ("gemm", 7, 120, "b"), ("gemm", 7, 140, "a"), ("sum", 8, 160, "b")
    )
    one = [("gemm", 1, 100.0), ("gemm", 2, 120.0), ("sum", 3, 130.0), ("gemm", 4, 140.0)]
    other = [("gemm", 4, 50.0), ("gemm", 1, 90.0), ("gemm", 1, 130.0), ("sum", 2, 200.0)]
    found = partners(graph(one, other), step, source)
    assert found == [
        ["gemm@100", "gemm@120", "sum@160", "gemm@140"],
        ["gemm@100", "gemm@120", "gemm@140", "sum@160"],
    ]


def test_alike_kernels_of_one_call_are_told_apart_too() -> None:
    """For modules it is all one which of them a kernel is; when each began it is not."""
    step, source = recorded(("gelu", 7, 80, "a"), ("gemm", 7, 100, "a"), ("gemm", 7, 120, "a"))
    found = partners(graph([("gelu", 2, 80), ("gemm", 1, 100), ("gemm", 2, 120)]), step, source)
    assert found == [["gelu@80", "gemm@100", "gemm@120"]]


def test_alike_kernels_of_several_streams_have_no_order() -> None:
    step, source = recorded(
        ("gemm", 7, 100, "a"), ("gemm", 8, 105, "b"), ("gelu", 7, 120, "a"), ("norm", 8, 125, "b")
    )
    # Each on a stream of its own: either product may be first.
    runs = graph([("gemm", 1, 100), ("gemm", 2, 105), ("gelu", 3, 120), ("norm", 4, 125)])
    assert partners(runs, step, source) == [[None, None, "gelu@120", "norm@125"]]
    # Beside what only one of them has, it is known which it is, whichever comes first.
    runs = graph([("gemm", 1, 100), ("norm", 1, 120), ("gemm", 2, 105), ("gelu", 2, 125)])
    assert partners(runs, step, source) == [["gemm@105", "gemm@100", "norm@125", "gelu@120"]]


def test_a_run_with_another_number_of_them_is_not_guessed() -> None:
    step, source = recorded(("gemm", 7, 100, "a"), ("gemm", 7, 120, "b"), ("sum", 8, 140, "b"))
    short = [("gemm", 1, 100.0), ("sum", 2, 140.0)]
    long = [("gemm", number, 100.0 + 20 * number) for number in (1, 2, 3)]
    other = [("new", 1, 100.0)]
    found = partners(graph(short, long, other), step, source)
    assert found == [[None, "sum@140"], [None] * 3, [None]]


def test_node_ids_stand_before_order() -> None:
    step, source = recorded(("gemm", 7, 100, "a"), ("gemm", 7, 120, "b"))
    ids = pl.Series([11, 12], dtype=pl.Int64)
    source = Reference(source.kernel.with_columns(graph_node_id=ids), source.kernel_module)
    runs = graph([("gemm", 1, 100), ("gemm", 2, 120)])
    marked = pl.Series([12, 11], dtype=pl.Int64)
    runs = replace(runs, kernel=runs.kernel.with_columns(graph_node_id=marked))
    assert partners(runs, step, source) == [["gemm@120", "gemm@100"]]


def test_when_kernels_ran_in_runs_of_the_graph() -> None:
    step, source = recorded(*STEP)
    late = [(name, 9 if name == "norm" else 7, at + 33) for name, _, at, _ in STEP]
    outside = kernel("gemm", 50_000, 10, 900)  # after the last step
    runs = events_of([*graph_events(moved(gelu=9), late), outside])
    assert runs.kernel["step"].null_count() == 1
    times = graph_times(runs, source)
    assert set(times.columns) == {"kernel_id", "run", "start_ns", "dur_ns", "replayed_id"}
    inside = runs.kernel.drop_nulls("step").select("kernel_id", "start_ns")
    assert times.select("replayed_id", "start_ns").sort("start_ns").rows() == inside.rows()
    ids = step.kernel.sort("start_ns")["kernel_id"].to_list()
    begin = [at * 1_000 for _, _, at, _ in STEP]
    rows = times.select("run", "kernel_id", "start_ns", "dur_ns").sort("run", "start_ns").rows()
    assert rows == [
        *((0, one, 10_000_000 + at, 10_000) for one, at in zip(ids, begin, strict=True)),
        *((1, one, 11_033_000 + at, 10_000) for one, at in zip(ids, begin, strict=True)),
    ]


NAMES = st.lists(st.sampled_from(["gemm", "gelu", "norm"]), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(NAMES, st.data())
def test_a_step_of_one_stream_is_found_whole_on_any_streams(
    names: list[str], data: st.DataObject
) -> None:
    """Alike ones of one stream run one after another, wherever the graph has them."""
    module = [data.draw(st.sampled_from("ab")) for _ in names]
    stream = [data.draw(st.integers(1, 3)) for _ in names]
    at = [100 + 20 * place for place in range(len(names))]
    step, source = recorded(*zip(names, [7] * len(names), at, module, strict=True))
    runs = graph(list(zip(names, stream, at, strict=True)))
    expected = [f"{name}@{begin}" for name, begin in zip(names, at, strict=True)]
    assert partners(runs, step, source) == [expected]
