"""Compiled code: a run's sequence of kernels against the generated one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from cb_trace.attribution import Evidence, TraceEvents
from cb_trace.attribution.autograd import EVALUATION
from cb_trace.bundle import CompiledGraph
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import parts, tree, work
from tests.attribution.test_fusion import graph, node
from tests.frames import frame
from tests.kineto import Event, annotation, event, kernel, launch, op

TREE = tree("", "a", "b", "b.c")
FUSED, MM = "triton_poi_fused_add_0", "extern_kernels.mm"
GRAPH = graph(
    (FUSED, [node("add", "a", 30), node("mul", "b", 10)]),
    (MM, [node("mm", "b.c", 10, "aten.mm.default")]),
    (FUSED, [node("add_1", "b", 10)]),
    key="key1",
)


def mark(key: str = "key1", at: float = 100, dur: float = 100, **where: Any) -> Event:
    return annotation(f"## Call CompiledFxGraph {key} ##", at, dur, **where)


def triton(at: float, correlation: int, name: str = FUSED, **where: Any) -> list[Event]:
    """A Triton launch in its own operator; the kernel takes 10 µs and has the same name."""
    return [op(name, at, 3, **where), *work(name, at + 1, correlation, **where)]


def matmul(at: float, correlation: int, name: str = "gemm") -> list[Event]:
    """A library call that clears its workspace first."""
    return [
        op("aten::mm", at, 6),
        launch(at + 1, 1, correlation) | {"name": "cudaMemsetAsync"},
        event("gpu_memset", "Memset", 990 + correlation * 20, 1, correlation=correlation),
        *work(name, at + 3, correlation + 1),
    ]


def step(*inside: list[Event], at: float = 0) -> TraceEvents:
    begin = [annotation("ProfilerStep#0", at, 900), annotation("cb:<root>", at + 10, 800)]
    return events_of([*begin, *(e for events in inside for e in events)])


def found(
    events: TraceEvents, *graphs: CompiledGraph
) -> dict[str, list[tuple[str | None, str, str, int]]]:
    return parts(events, TREE, Evidence(graphs=graphs))


def test_fused_kernels_are_split_and_library_calls_are_whole() -> None:
    events = step(
        [mark()], triton(110, 1), matmul(120, 2), [launch(60, 1, 9), kernel("x", 1, 5, 9)]
    )
    short = graph(*((k.name, k.nodes) for k in GRAPH.kernels[:2]), key="key1")
    assert found(events, short) == {
        FUSED: [("a", "forward", "inductor", 7500), ("b", "forward", "inductor", 2500)],
        "Memset": [("b.c", "forward", "inductor", 1000)],
        "gemm": [("b.c", "forward", "inductor", 10_000)],
        "x": [("", "forward", "range", 5000)],
    }


def test_kernels_of_one_name_go_by_order_in_every_run() -> None:
    runs = [
        e
        for at, first in ((100.0, 1), (300.0, 11))
        for e in [mark(at=at), *triton(at + 10, first), *matmul(at + 20, first + 1),
                  *triton(at + 30, first + 3)]
    ]  # fmt: skip
    rows = found(step(runs), GRAPH)[FUSED]
    assert rows == [
        ("a", "forward", "inductor", 7500), ("a", "forward", "inductor", 7500),
        ("b", "forward", "inductor", 2500), ("b", "forward", "inductor", 10_000),
        ("b", "forward", "inductor", 2500), ("b", "forward", "inductor", 10_000),
    ]  # fmt: skip


def test_what_does_not_fit_is_not_guessed() -> None:
    """One fused kernel instead of two: which one is missing is known here, by the order."""
    first = found(step([mark()], triton(110, 1), matmul(120, 2)), GRAPH)
    assert [row[2] for row in first[FUSED]] == ["inductor", "inductor"]
    alone = found(step([mark()], triton(110, 1)), GRAPH)
    assert alone[FUSED] == [(None, "forward", "compiled, no match", 10_000)]


def test_a_kernel_that_the_code_does_not_hold_is_unattributed() -> None:
    other = [op("aten::sort", 140, 9), *work("sort", 142, 8)]
    rows = found(step([mark()], triton(110, 1), matmul(120, 2), triton(130, 4), other), GRAPH)
    assert rows["sort"] == [(None, "forward", "compiled, no match", 10_000)]
    assert [row[2] for row in rows[FUSED]] == ["inductor"] * 3


def test_an_unknown_key_is_unattributed_and_without_any_graphs_the_caller_has_it() -> None:
    events = step([mark("other")], triton(110, 1))
    assert found(events, GRAPH)[FUSED] == [(None, "forward", "compiled, no match", 10_000)]
    assert parts(events, TREE, Evidence())[FUSED] == [("", "forward", "range", 10_000)]


def test_without_operators_around_them_kernels_go_by_their_own_names() -> None:
    events = step([mark()], work(FUSED, 110, 1), matmul(120, 2), work(FUSED, 130, 4))
    rows = found(events, GRAPH)[FUSED]
    assert [row[0] for row in rows] == ["a", "b", "b"]


def test_an_operator_of_a_generated_name_inside_another_is_part_of_it() -> None:
    inner = [op("aten::mm", 121, 3), *work("inner", 122, 8)]
    outer = [op("aten::addmm", 120, 9)]
    code = graph(
        ("extern_kernels.addmm", [node("addmm", "a", 1, "aten.addmm.default")]),
        (MM, [node("mm", "b", 1, "aten.mm.default")]),
        key="key1",
    )  # fmt: skip
    assert found(step([mark()], outer, inner, matmul(140, 2)), code) == {
        "inner": [("a", "forward", "inductor", 10_000)],
        "Memset": [("b", "forward", "inductor", 1000)],
        "gemm": [("b", "forward", "inductor", 10_000)],
    }


def test_a_backward_graph_has_the_phase_of_its_nodes() -> None:
    marks = {"Sequence number": 5, "Fwd thread id": 1, "tid": 300}
    forward = op("CompiledFunction", 50, 5, **{"Sequence number": 5, "Fwd thread id": 0})
    backward = graph((FUSED, [node("mul", "a", 1, phase="backward")]), key="key2")
    around = op(f"{EVALUATION}: CompiledFunctionBackward", 95, 120, **marks)
    wrapper = [op("aten::copy_", 96, 2, tid=300), *work("copy", 97, 7, tid=300)]
    events = step([forward, around, mark("key2", tid=300)], triton(110, 1, tid=300), wrapper)
    assert found(events, GRAPH, backward) == {
        FUSED: [("a", "backward", "inductor", 10_000)],
        "copy": [("", "backward", "autograd", 10_000)],
    }


def test_a_part_of_an_unknown_module_is_a_row_of_its_own() -> None:
    nodes = [node("add", "a", 10), node("mul", "b", 10), node("lost", None, 20)]
    rows = found(step([mark()], triton(110, 1)), graph((FUSED, nodes), key="key1"))
    assert rows[FUSED] == [
        (None, "forward", "compiled, module unknown", 5000),
        ("a", "forward", "inductor", 2500), ("b", "forward", "inductor", 2500),
    ]  # fmt: skip
    gone = graph((FUSED, [node("add", "deleted", 10)]), key="key1")
    assert found(step([mark()], triton(110, 1)), gone)[FUSED][0][2] == "compiled, module unknown"


def test_code_compiled_for_one_block_and_run_for_another_is_the_blocks_own() -> None:
    code = graph((FUSED, [node("add", "b.c", 10)]), key="key1")
    events = step(
        [annotation("cb:b", 95, 110), mark()], triton(110, 1),
        [annotation("cb:a", 295, 110), mark(at=300)], triton(310, 2),
    )  # fmt: skip
    assert found(events, code)[FUSED] == [
        ("a", "forward", "range", 10_000), ("b.c", "forward", "inductor", 10_000),
    ]  # fmt: skip


def test_a_compiled_optimizer_is_the_optimizer() -> None:
    events = step([annotation("Optimizer.step#SGD.step", 90, 200), mark("other")], triton(110, 1))
    assert found(events, GRAPH)[FUSED] == [(None, "optimizer", "optimizer", 10_000)]


HIDDEN = (None, "forward", "compiled, no match")
CPU_CODE = graph(
    ("cpp_fused_add_0", [node("add", "a", 10)]),
    ("extern_kernels.addmm", [node("addmm", "b", 1, "aten.addmm.default")]),
    key="key1",
)


def on_cpu(names: Sequence[str], run: str = "## Call CompiledFxGraph key1 ##") -> TraceEvents:
    """Operators of 10 µs in ``run``; one kernel row a stretch of each."""
    ops = [op(run, 100, 200), *(op(name, 110 + 20 * at, 10) for at, name in enumerate(names))]
    events = events_of(
        [annotation("ProfilerStep#0", 0, 900), annotation("cb:<root>", 10, 800), *ops]
    )
    stretches: list[dict[str, Any]] = [
        {"kernel_id": at, "kind": "cpu", "name": name, "op_id": number, "thread": 0, "step": 0,
         "start_ns": start, "dur_ns": 10_000}
        for at, (name, number, start) in enumerate(
            events.op.select("name", "op_id", "start_ns").iter_rows()
        )
    ]  # fmt: skip
    return replace(events, kernel=frame("kernel", *stretches))


def test_cpu_kernels_are_numbered_by_graph_and_the_wrapper_is_its_callers() -> None:
    rows = found(on_cpu(["graph_0_cpp_fused_add_0", "aten::addmm"]), CPU_CODE)
    assert rows == {
        "## Call CompiledFxGraph key1 ##": [("", "forward", "range", 10_000)],
        "graph_0_cpp_fused_add_0": [("a", "forward", "inductor", 10_000)],
        "aten::addmm": [("b", "forward", "inductor", 10_000)],
    }


def test_a_cpu_kernel_that_left_no_operator_may_hide_in_the_wrapper() -> None:
    rows = found(on_cpu(["aten::addmm"]), CPU_CODE)
    assert rows == {
        "## Call CompiledFxGraph key1 ##": [(None, "forward", "compiled, no match", 10_000)],
        "aten::addmm": [("b", "forward", "inductor", 10_000)],
    }


def test_a_run_may_be_marked_by_an_annotation_inside_its_callers_operator() -> None:
    """As torch 2.13 does on the CPU under ``record_function``."""
    seen = on_cpu(["graph_0_cpp_fused_add_0", "aten::addmm"], "CompiledFunction")
    part = on_cpu(["aten::addmm"], "CompiledFunction")
    late = pl.col("name") == "CompiledFunction"
    for events, outcome in ((seen, ("", "forward", "range")), (part, HIDDEN)):
        later = pl.when(late).then(pl.col("start_ns") + 5_000).otherwise("start_ns")
        marked = replace(
            events,
            annotation=pl.concat([events.annotation, events_of([mark(at=101)]).annotation]),
            kernel=events.kernel.with_columns(later),
        )
        assert found(marked, CPU_CODE)["CompiledFunction"] == [(*outcome, 10_000)]


@pytest.mark.parametrize("graphs", [(), (GRAPH,)])
def test_no_kernels_and_no_runs(graphs: tuple[CompiledGraph, ...]) -> None:
    assert found(events_of([]), *graphs) == {}
    assert found(step(work("k", 60, 1)), *graphs)["k"] == [("", "forward", "range", 10_000)]
