"""Backward work by sequence number (traces.md rows 41 and 46, torch.md section 4)."""

from __future__ import annotations

from typing import Any

import polars as pl

from cb_trace.attribution import attribute
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import outcomes, tree, work
from tests.kineto import Event, annotation, op

ENGINE = 300  # tid of the autograd thread
TREE = ("", "a", "b")


def forward_op(name: str, at: float, number: int, **where: Any) -> Event:
    return op(name, at, 1, **{"Sequence number": number, "Fwd thread id": 0}, **where)


def node(name: str, at: float, dur: float, number: int, thread: int = 1) -> list[Event]:
    """A backward node as the engine leaves it: twice, with one number."""
    marks = {"Sequence number": number, "Fwd thread id": thread, "tid": ENGINE}
    outer = op(f"autograd::engine::evaluate_function: {name}", at, dur, **marks)
    return [outer, op(name, at + 1, dur - 2, **marks)]


FORWARD = [
    annotation("ProfilerStep#0", 0, 1000),
    annotation("cb:<root>", 10, 90),
    annotation("cb:a", 20, 10), forward_op("aten::mm", 21, 5),
    annotation("cb:b", 40, 10), forward_op("aten::mul", 41, 6),
    forward_op("aten::mse_loss", 150, 7),
]  # fmt: skip


def test_a_backward_kernel_belongs_to_the_call_of_its_forward_operator() -> None:
    events = events_of([
        *FORWARD,
        *node("MseLossBackward0", 200, 9, 7), *work("loss backward", 203, 1, tid=ENGINE),
        *node("MulBackward0", 210, 9, 6), *work("b backward", 213, 2, tid=ENGINE),
        *work("b sum", 218.5, 3, tid=ENGINE),
        *node("MmBackward0", 220, 9, 5), *work("a backward", 223, 4, tid=ENGINE),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE)) == {
        "loss backward": ("", "backward", "step"),
        "b backward": ("b", "backward", "autograd"),
        "b sum": ("b", "backward", "autograd"),
        "a backward": ("a", "backward", "autograd"),
    }
    rows = attribute(events, tree(*TREE)).kernel_module
    assert rows["call_id"].to_list() == [None, 2, 2, 1]


def test_the_latest_starting_operator_of_a_number_made_the_node() -> None:
    events = events_of([
        *FORWARD,
        forward_op("aten::view", 22, 6),  # a wrapper in a, before b's mul of the same number
        *node("MulBackward0", 210, 9, 6), *work("b backward", 213, 1, tid=ENGINE),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE))["b backward"][0] == "b"


def test_a_later_operator_of_the_number_cannot_have_made_it() -> None:
    events = events_of([
        *FORWARD,
        *node("MmBackward0", 220, 9, 5), *work("a backward", 223, 1, tid=ENGINE),
        annotation("cb:b", 300, 9), forward_op("aten::mm", 301, 5),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE))["a backward"][0] == "a"


def test_no_link_across_steps() -> None:
    events = events_of([
        *FORWARD,
        annotation("ProfilerStep#1", 1000, 1000),
        *node("MmBackward0", 1220, 9, 5), *work("late", 1223, 1, tid=ENGINE),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE))["late"] == (None, "backward", "backward, module unknown")


def test_accumulation_has_no_forward_operator() -> None:
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    events = events_of([
        *FORWARD,
        op(name, 230, 9, tid=ENGINE), *work("accumulate", 233, 1, tid=ENGINE),
    ])  # fmt: skip
    reason = (None, "backward", "backward, module unknown")
    assert outcomes(events, tree(*TREE))["accumulate"] == reason


def test_a_collective_in_the_backward_is_communication() -> None:
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    kernel = "ncclKernel_AllReduce_RING_LL_Sum_float"
    events = events_of([*FORWARD, op(name, 230, 9, tid=ENGINE), *work(kernel, 233, 1, tid=ENGINE)])
    assert outcomes(events, tree(*TREE))[kernel] == (None, "backward", "communication")


def test_thread_numbers_are_told_apart_by_numbers_of_one_thread_only() -> None:
    events = events_of([
        *FORWARD,
        annotation("cb:b", 20, 30, tid=200),
        forward_op("aten::mm", 21, 5, tid=200),  # 5 on both threads: tells nothing
        forward_op("aten::mm", 23, 90, tid=200),
        *node("MmBackward0", 200, 9, 5, thread=1), *work("first", 203, 1, tid=ENGINE),
        *node("MulBackward0", 210, 9, 6, thread=1),
        *node("MmBackward0", 220, 9, 5, thread=2), *work("second", 223, 2, tid=ENGINE),
        *node("MmBackward0", 230, 9, 90, thread=2),
    ])  # fmt: skip
    found = outcomes(events, tree(*TREE))
    assert found["first"][0] == "a"
    assert found["second"][0] == "b"


def test_an_ambiguous_thread_is_no_link() -> None:
    events = events_of([
        *FORWARD,
        forward_op("aten::mm", 23, 90, tid=200),
        *node("MmBackward0", 200, 9, 5), *work("first", 203, 1, tid=ENGINE),
        *node("MmBackward0", 230, 9, 90),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE))["first"][2] == "backward, module unknown"


def recomputation() -> list[Event]:
    """``b`` checkpoints a function that calls ``a``: in its backward ``a`` runs again."""
    return [
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:<root>", 10, 90),
        annotation("cb:b", 15, 60),
        annotation("cb:a", 20, 10), forward_op("aten::mm", 21, 5),
        forward_op("aten::relu", 41, 6),
        *node("ReluBackward0", 210, 50, 6),
        annotation("cb:a", 220, 10, tid=ENGINE), forward_op("aten::mm", 221, 0, tid=ENGINE),
        *work("again", 221.5, 1, tid=ENGINE),
        forward_op("aten::relu", 240, 1, tid=ENGINE), *work("functional", 240.5, 2, tid=ENGINE),
        op("aten::threshold_backward", 250, 2, tid=ENGINE), *work("of b", 250.5, 3, tid=ENGINE),
        *node("MmBackward0", 270, 9, 5), *work("of a", 273, 4, tid=ENGINE),
    ]  # fmt: skip


def test_row_46_a_module_called_inside_the_backward_is_recomputation() -> None:
    events = events_of(recomputation())
    assert outcomes(events, tree(*TREE)) == {
        "again": ("a", "recompute", "range"),
        "functional": ("b", "recompute", "autograd"),
        "of b": ("b", "backward", "autograd"),
        "of a": ("a", "backward", "autograd"),
    }
    calls = attribute(events, tree(*TREE)).module_call.filter(pl.col("module_id") == 1)
    assert calls.select("phase", "call_index").rows() == [("forward", 0), ("recompute", 0)]


def test_a_function_repeated_from_inside_a_module_it_calls_is_the_callers() -> None:
    """The last operator that kept its input is ``a``'s: its node asks for the whole function."""
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:<root>", 10, 90),
        annotation("cb:b", 15, 60), forward_op("aten::relu", 16, 4),
        annotation("cb:a", 20, 10), forward_op("aten::mm", 21, 5),
        *node("MmBackward0", 210, 50, 5),
        forward_op("aten::relu", 215, 0, tid=ENGINE), *work("functional", 215.5, 1, tid=ENGINE),
        annotation("cb:a", 220, 10, tid=ENGINE), *work("again", 221, 2, tid=ENGINE),
        op("aten::mm", 250, 2, tid=ENGINE), *work("of a", 250.5, 3, tid=ENGINE),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE)) == {
        "functional": ("b", "recompute", "autograd"),
        "again": ("a", "recompute", "range"),
        "of a": ("a", "backward", "autograd"),
    }


def test_the_nodes_of_a_repeated_function_are_its_callers() -> None:
    """Reentrant checkpointing: a backward inside the backward, its nodes made there."""
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:b", 15, 60), forward_op("CheckpointFunction", 20, 5),
        forward_op("aten::mm", 90, 6),
        *node("CheckpointFunctionBackward", 210, 50, 5),
        *node("MmBackward0", 150, 9, 6),
        op("aten::detach", 212, 1, tid=ENGINE),
        forward_op("aten::sin", 220, 0, tid=ENGINE), *work("sin", 220.5, 1, tid=ENGINE),
        *node("SinBackward0", 240, 9, 0, thread=2), *work("cos", 243, 2, tid=ENGINE),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE)) == {
        "sin": ("b", "recompute", "autograd"),
        "cos": ("b", "backward", "autograd"),
    }


def test_a_backward_that_is_differentiated_again_is_no_recomputation() -> None:
    """``create_graph``: the operators of a node have numbers, and make nodes of their own."""
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:a", 20, 10), forward_op("aten::tanh", 21, 5),
        annotation("cb:b", 40, 10), forward_op("aten::mm", 41, 6),
        *node("MmBackward0", 200, 9, 6),
        forward_op("aten::mm", 202, 0, tid=ENGINE), *work("first of b", 202.5, 1, tid=ENGINE),
        *node("TanhBackward0", 210, 9, 5),
        forward_op("aten::tanh_backward", 212, 1, tid=ENGINE),
        op("aten::zeros", 213.5, 1, tid=ENGINE),
        *work("first of a", 212.5, 2, tid=ENGINE),
        *node("TanhBackwardBackward0", 300, 9, 1, thread=2),
        *work("second of a", 303, 3, tid=ENGINE),
        *node("MmBackward0", 310, 9, 0, thread=2), *work("second of b", 313, 4, tid=ENGINE),
        *node("TanhBackward0", 320, 9, 5), *work("third of a", 323, 5, tid=ENGINE),
    ])  # fmt: skip
    found = outcomes(events, tree(*TREE))
    assert {name: where[:2] for name, where in found.items()} == {
        "first of b": ("b", "backward"), "first of a": ("a", "backward"),
        "second of a": ("a", "backward"), "second of b": ("b", "backward"),
        "third of a": ("a", "backward"),
    }  # fmt: skip


def test_a_node_made_in_an_unlinked_one_is_unknown() -> None:
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:a", 20, 10), forward_op("aten::tanh", 21, 5),
        *node("TanhBackward0", 190, 9, 5),
        *node("MmBackward0", 200, 9, 6),  # of an operator before the window
        forward_op("aten::mm", 202, 0, tid=ENGINE),
        *node("MmBackward0", 310, 9, 0, thread=2), *work("second", 313, 1, tid=ENGINE),
    ])  # fmt: skip
    found = outcomes(events, tree(*TREE))
    assert found["second"] == (None, "backward", "backward, module unknown")


def test_of_two_that_start_together_the_shorter_is_inside() -> None:
    """Clocks of one microsecond make such ties (traces.md row 15)."""
    marks = {"Sequence number": 5, "Fwd thread id": 1}
    begin = [annotation("cb:a", 20, 10), forward_op("aten::mm", 21, 5)]
    inside = events_of([*begin, annotation("cb:b", 40, 9), op("MmBackward0", 40, 5, **marks),
                        *work("k", 42, 1)])  # fmt: skip
    around = events_of([*begin, annotation("cb:b", 40, 5), op("MmBackward0", 40, 9, **marks),
                        *work("k", 42, 1)])  # fmt: skip
    assert outcomes(inside, tree(*TREE)) == {"k": ("a", "backward", "autograd")}
    assert outcomes(around, tree(*TREE)) == {"k": ("b", "recompute", "range")}


def test_autograd_run_by_a_forward_is_backward() -> None:
    """A model that takes gradients in its own forward (forces): on the CPU, on one thread."""
    events = events_of([
        annotation("cb:<root>", 0, 900),
        annotation("cb:a", 20, 10), forward_op("aten::mm", 21, 5),
        *[e | {"tid": 100} for e in node("MmBackward0", 40, 9, 5)],
        *work("gradient", 43, 1),
        *work("after", 60, 2),
    ])  # fmt: skip
    assert outcomes(events, tree(*TREE)) == {
        "gradient": ("a", "backward", "autograd"),
        "after": ("", "forward", "range"),
    }
