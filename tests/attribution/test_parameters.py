"""Gradient accumulation and the optimizer, by the owners of parameters."""

from __future__ import annotations

import pytest

from cb_trace.attribution import Evidence
from cb_trace.attribution.autograd import EVALUATION
from cb_trace.bundle import ParameterRecord
from cb_trace.range_names import gradient_range
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import parts, tree, work
from tests.kineto import Event, annotation, op

ENGINE = 300
TREE = tree("", "a", "b")


def parameter(name: str, path: str, size: int, *, trainable: bool = True) -> ParameterRecord:
    return ParameterRecord(name=name, path=path, numel=size, bytes=4 * size, trainable=trainable)


KNOWN = Evidence(
    parameters=[
        parameter("a.weight", "a", 3), parameter("b.weight", "b", 1), parameter("b.bias", "b", 2),
        parameter("a.frozen", "a", 100, trainable=False),
    ]
)  # fmt: skip


def accumulation(at: float, *marks: Event) -> list[Event]:
    """A node of 20 µs on the autograd thread; marks lie in it as our hooks leave them."""
    name = "torch::autograd::AccumulateGrad"
    outer = op(f"{EVALUATION}: {name}", at, 20, tid=ENGINE)
    return [outer, op(name, at + 1, 18, tid=ENGINE), *marks]


def mark(name: str, at: float) -> Event:
    return annotation(gradient_range(name), at, 0.5, tid=ENGINE)


def test_accumulation_belongs_to_the_owner_of_the_marked_parameter() -> None:
    """Where parameters have marks, what has none is an input, and no module's."""
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000), annotation("cb:<root>", 10, 50),
        *accumulation(100, mark("b.bias", 117)), *work("add b", 105, 1, tid=ENGINE),
        *work("hook b", 119.5, 2, tid=ENGINE),
        *accumulation(200, mark("a.weight", 217)), *work("add a", 205, 3, tid=ENGINE),
        *accumulation(300), *work("no mark", 305, 4, tid=ENGINE),
        *accumulation(400, mark("c.weight", 417)), *work("stranger", 405, 5, tid=ENGINE),
    ])  # fmt: skip
    unknown = [(None, "backward", "backward, module unknown", 10_000)]
    assert parts(events, TREE, KNOWN) == {
        "add b": [("b", "backward", "parameter", 10_000)],
        "hook b": [("b", "backward", "parameter", 10_000)],
        "add a": [("a", "backward", "parameter", 10_000)],
        "no mark": [("", "backward", "step", 10_000)],
        "stranger": unknown,
    }


def test_a_mark_that_is_an_operator_counts_and_two_owners_do_not() -> None:
    as_op = op(gradient_range("a.weight"), 117, 0.5, tid=ENGINE)
    two = (mark("a.weight", 217), mark("b.weight", 217.6))
    same = (mark("b.weight", 317), mark("b.bias", 317.6))
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        *accumulation(100, as_op), *work("one", 105, 1, tid=ENGINE),
        *accumulation(200, *two), *work("two", 205, 2, tid=ENGINE),
        *accumulation(300, *same), *work("same", 305, 3, tid=ENGINE),
    ])  # fmt: skip
    found = parts(events, TREE, KNOWN)
    assert found["one"][0][:3] == ("a", "backward", "parameter")
    assert found["two"][0][:3] == (None, "backward", "backward, module unknown")
    assert found["same"][0][:3] == ("b", "backward", "parameter")


def test_a_mark_outside_an_accumulating_node_says_nothing() -> None:
    marks = {"Sequence number": 5, "Fwd thread id": 1, "tid": ENGINE}
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        op(f"{EVALUATION}: MmBackward0", 100, 20, **marks), mark("a.weight", 110),
        *work("k", 105, 1, tid=ENGINE),
    ])  # fmt: skip
    assert parts(events, TREE, KNOWN)["k"][0][2] == "backward, module unknown"


def test_a_bucket_reduced_in_the_last_hook_is_communication() -> None:
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        *accumulation(100, mark("b.bias", 117)), *work(kernel, 119, 1, tid=ENGINE),
    ])  # fmt: skip
    assert parts(events, TREE, KNOWN)[kernel][0][2] == "communication"


OPTIMIZER = [
    annotation("ProfilerStep#0", 0, 1000),
    annotation("Optimizer.step#AdamW.step", 100, 50),
    *work("adam", 110, 1),
]


def test_the_optimizer_is_split_by_the_bytes_of_what_is_trained() -> None:
    """a owns 12 bytes and b 4 + 8; the frozen 400 of a are not updated."""
    assert parts(events_of(OPTIMIZER), TREE, KNOWN) == {
        "adam": [
            ("a", "optimizer", "parameter", 5000),
            ("b", "optimizer", "parameter", 5000),
        ]
    }


@pytest.mark.parametrize("known", [[], [parameter("a.frozen", "a", 9, trainable=False)]])
def test_without_trained_parameters_the_optimizer_stays_the_optimizer(
    known: list[ParameterRecord],
) -> None:
    found = parts(events_of(OPTIMIZER), TREE, Evidence(parameters=known))
    assert found == {"adam": [(None, "optimizer", "optimizer", 10_000)]}


def test_parameters_that_got_no_gradient_are_not_updated() -> None:
    events = events_of([*OPTIMIZER, *accumulation(50, mark("b.bias", 67))])
    assert parts(events, TREE, KNOWN)["adam"] == [("b", "optimizer", "parameter", 10_000)]


def runs(*steps: tuple[str, float, list[str]]) -> dict[str, list[str]]:
    """Optimizers in one step, each after gradients of some parameters; how their work is known."""
    events = [annotation("ProfilerStep#0", 0, 1000)]
    for number, (name, at, got) in enumerate(steps, start=1):
        events += accumulation(at, *(mark(p, at + 10 + n) for n, p in enumerate(got)))
        events += [annotation(f"Optimizer.step#{name}.step", at + 50, 20)]
        events += work(f"{number}", at + 55, number)
    found = parts(events_of(events), TREE, KNOWN)
    return {name: [row[2] for row in rows] for name, rows in found.items()}


def test_two_optimizers_in_a_step_are_not_split_by_all_parameters() -> None:
    """Dense and sparse, or two networks: nothing says which updates what."""
    unknown = {"1": ["optimizer"], "2": ["optimizer"]}
    assert runs(("SGD", 100, ["a.weight", "b.bias"]), ("Adam", 300, [])) == unknown
    assert runs(("Adam", 100, ["a.weight"]), ("Adam", 300, ["a.weight", "b.bias"])) == unknown
    repeated = runs(("SGD", 100, ["a.weight", "b.bias"]), ("SGD", 300, ["a.weight", "b.bias"]))
    assert repeated == {"1": ["parameter"] * 2, "2": ["parameter"] * 2}


def actor_and_critic(*between: Event) -> dict[str, list[tuple[str | None, str, str, int]]]:
    """Two updates of one step by Adam, each after a backward of its own."""
    events = [
        annotation("ProfilerStep#0", 0, 1000),
        *accumulation(100, mark("a.weight", 117)),
        annotation("Optimizer.step#Adam.step", 150, 20), *work("actor", 155, 1),
        *between,
        *accumulation(300, mark("b.weight", 317), mark("b.bias", 318)),
        annotation("Optimizer.step#Adam.step", 350, 20), *work("critic", 355, 2),
    ]  # fmt: skip
    return parts(events_of(events), TREE, KNOWN)


def test_optimizers_that_each_follow_gradients_of_their_own_are_told_apart() -> None:
    zeroed = annotation("Optimizer.zero_grad#Adam.zero_grad", 200, 5)
    assert actor_and_critic(zeroed, *work("zeros", 201, 3)) == {
        "actor": [("a", "optimizer", "parameter", 10_000)],
        "critic": [("b", "optimizer", "parameter", 10_000)],
        "zeros": [(None, "optimizer", "optimizer", 10_000)],  # of which, nothing says
    }
    # One optimizer, and the gradient of a still there: the second run may update both.
    assert {rows[0][2] for rows in actor_and_critic().values()} == {"optimizer"}
    late = annotation("Optimizer.zero_grad#Adam.zero_grad", 400, 5)
    assert {rows[0][2] for rows in actor_and_critic(late).values()} == {"optimizer"}
    # Another optimizer does not have the parameters of the first.
    assert runs(("SGD", 100, ["a.weight"]), ("Adam", 300, ["b.bias"])) == {
        "1": ["parameter"], "2": ["parameter"],
    }  # fmt: skip
    # A gradient that comes after both, and one that both follow: nothing is told.
    unknown = {"1": ["optimizer"], "2": ["optimizer"]}
    assert runs(("SGD", 100, ["a.weight"]), ("Adam", 300, ["a.weight", "b.bias"])) == unknown


def test_an_optimizer_inside_another_is_one() -> None:
    inner = annotation("Optimizer.step#AdamW.step", 105, 30)
    outer = annotation("Optimizer.step#Sharded.step", 100, 50)
    events = [annotation("ProfilerStep#0", 0, 1000), outer, inner, *work("adam", 110, 1)]
    assert [row[2] for row in parts(events_of(events), TREE, KNOWN)["adam"]] == ["parameter"] * 2


def test_work_after_the_last_backward_is_the_updates_and_the_roots() -> None:
    """Clipping of gradients; what lies between a backward and the next forward is not."""
    marks = {"Sequence number": 5, "Fwd thread id": 1, "tid": ENGINE}
    events = events_of([
        annotation("ProfilerStep#0", 0, 1000),
        annotation("cb:a", 20, 10), *work("loss", 40, 1), op("MmBackward0", 60, 10, **marks),
        *work("between", 75, 2),
        annotation("cb:a", 90, 10), *work("loss of the second", 110, 3),
        op("MmBackward0", 120, 10, **marks), *work("clip", 140, 4),
        annotation("Optimizer.step#SGD.step", 150, 9), *work("sgd", 151, 5),
        *work("log", 170, 6),
        annotation("ProfilerStep#1", 1000, 1000),
        annotation("cb:a", 1020, 10), *work("next loss", 1040, 7),
    ])  # fmt: skip
    found = {name: rows[0][:3] for name, rows in parts(events, TREE, Evidence()).items()}
    assert found == {
        "loss": ("", "forward", "step"), "between": ("", "forward", "step"),
        "loss of the second": ("", "forward", "step"), "clip": ("", "optimizer", "step"),
        "sgd": (None, "optimizer", "optimizer"), "log": ("", "optimizer", "step"),
        "next loss": ("", "forward", "step"),
    }  # fmt: skip
