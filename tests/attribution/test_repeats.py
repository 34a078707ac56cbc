"""A repeated call is the repetition of one call: its kernels and its index are that call's."""

from __future__ import annotations

import polars as pl

from cb_trace.attribution import attribute
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import tree, work
from tests.attribution.test_autograd import ENGINE, TREE, forward_op, node
from tests.kineto import Event, annotation


def twice() -> list[Event]:
    """The root checkpoints ``b``, which calls ``a``, twice; the backward begins with the last."""
    return [
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:<root>", 10, 90),
        annotation("cb:b", 15, 25), annotation("cb:a", 20, 10), forward_op("aten::mm", 21, 5),
        annotation("cb:b", 45, 25), annotation("cb:a", 50, 10), forward_op("aten::mm", 51, 6),
        *node("MmBackward0", 210, 60, 6),
        annotation("cb:b", 215, 30, tid=ENGINE), annotation("cb:a", 220, 10, tid=ENGINE),
        forward_op("aten::mm", 221, 0, tid=ENGINE),
        *work("again of the last", 221.5, 1, tid=ENGINE),
        *node("MmBackward0", 310, 60, 5),
        annotation("cb:b", 315, 30, tid=ENGINE), annotation("cb:a", 320, 10, tid=ENGINE),
        forward_op("aten::mm", 321, 1, tid=ENGINE),
        *work("again of the first", 321.5, 2, tid=ENGINE),
    ]  # fmt: skip


def seen(events: list[Event]) -> tuple[list[tuple[object, ...]], dict[str, tuple[object, ...]]]:
    """(module, phase, call_index) of every call in order; (call, phase) of every kernel."""
    trace = events_of(events)
    found = attribute(trace, tree(*TREE), first_call_id=100)
    calls = found.module_call.select("module_id", "phase", "call_index").rows()
    kernels = found.kernel_module.join(trace.kernel.select("kernel_id", "name"), on="kernel_id")
    return calls, {r[0]: r[1:] for r in kernels.select("name", "call_id", "phase").rows()}


def test_calls_repeated_backwards_have_the_index_of_their_originals() -> None:
    a, b = (tree(*TREE).filter(pl.col("path") == p)["module_id"][0] for p in ("a", "b"))
    calls, kernels = seen(twice())
    assert [row for row in calls if row[1] == "forward"][1:] == [
        (b, "forward", 0), (a, "forward", 0), (b, "forward", 1), (a, "forward", 1),
    ]  # fmt: skip
    assert [row for row in calls if row[1] == "recompute"] == [
        (b, "recompute", 1), (a, "recompute", 1), (b, "recompute", 0), (a, "recompute", 0),
    ]  # fmt: skip
    # Calls by start: root 100, b 101, a 102, b 103, a 104.
    assert kernels == {
        "again of the last": (104, "recompute"), "again of the first": (102, "recompute"),
    }  # fmt: skip


def test_of_a_function_with_several_calls_of_a_module_each_is_its_own_original() -> None:
    """``b`` checkpoints a function that calls ``a`` twice, and called ``a`` once before that."""
    calls, kernels = seen([
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:<root>", 10, 90),
        annotation("cb:b", 15, 80),
        annotation("cb:a", 20, 5), annotation("cb:a", 30, 5),
        annotation("cb:a", 40, 5), forward_op("aten::mm", 41, 6),
        *node("MmBackward0", 210, 60, 6),
        annotation("cb:a", 220, 10, tid=ENGINE), *work("second", 221, 1, tid=ENGINE),
        annotation("cb:a", 235, 10, tid=ENGINE), *work("third", 236, 2, tid=ENGINE),
    ])  # fmt: skip
    assert [row[2] for row in calls if row[1] == "recompute"] == [1, 2]
    assert kernels == {"second": (103, "recompute"), "third": (104, "recompute")}


def test_where_it_is_not_known_what_is_repeated_there_is_no_index() -> None:
    events = [e for e in twice() if not (e["name"] == "aten::mm" and e["ts"] in {21, 51})]
    calls, kernels = seen(events)
    assert [row[2] for row in calls if row[1] == "recompute"] == [None] * 4
    assert {where[1] for where in kernels.values()} == {"recompute"}
