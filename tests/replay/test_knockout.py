"""Knock-out: what stands in for a module, what cannot be replaced, and what is measured."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.bundle import ReplayRecord
from cb_trace.errors import CbTraceError
from cb_trace.replay import knockout as of_knockout
from cb_trace.replay.knockout import (
    Job,
    Knockout,
    KnockoutOptions,
    Outcome,
    chosen_modules,
    parse_knockout,
)
from cb_trace.replay.stand_in import StandIn

CPU = torch.device("cpu")
FAST = KnockoutOptions(budget_seconds=0.2, min_pairs=3)


class Net(nn.Module):
    """``body`` between two layers; its result goes through ``after``."""

    def __init__(self, body: nn.Module, after: Callable[[Any], Any] = lambda x: x) -> None:
        super().__init__()
        self.first, self.body, self.last = nn.Linear(4, 4), body, nn.Linear(4, 4)
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.after(self.body(self.first(x))))
        return out


class Slow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.005)
        return x * 2


class Nested(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"a": [x + 1, None], "b": (x.t() * 2, 3)}


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return x * 1


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2


class Secret(nn.Module):
    """Leaves something outside itself that the step reads."""

    def __init__(self, left: list[torch.Tensor]) -> None:
        super().__init__()
        self.hidden: Callable[[], list[torch.Tensor]] = lambda: left

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden()[:] = [x.detach() * 100 + torch.rand(()) * 0]
        return x * 2


@dataclass
class Held:
    value: torch.Tensor


class Holding(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Held]:
        return x * 2, Held(x * 3)


class Words(nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "none"


def knocked(net: nn.Module, path: str = "body", **options: Any) -> Outcome:
    x = torch.ones(2, 4)

    def step() -> object:
        with torch.no_grad():
            return net(x)

    knockout = Knockout(dict(net.named_modules()), step, CPU, FAST, lambda _: None)
    knockout.run([Job(path)], graph=False, known={}, **options)
    (record,) = knockout.outcomes
    return record


def test_the_step_is_faster_by_the_module() -> None:
    net = Net(Slow())
    record = knocked(net)
    assert record.skipped is None
    assert (record.job, record.deployment) == (Job("body"), "eager")
    assert len(record.base_ns) == len(record.changed_ns) >= 3
    assert min(record.base_ns) > 5_000_000 > max(record.changed_ns) - min(record.base_ns)
    assert "forward" not in vars(net.body)


@pytest.mark.parametrize(
    ("body", "after", "reason"),
    [
        (InPlace(), None, "it writes to its inputs"),
        (nn.Identity(), None, "its output shares memory with its inputs"),
        (Counting(), None, "it changes its own state"),
        (Words(), lambda _: torch.ones(2, 4), "its output holds no tensor"),
        (Holding(), lambda out: out[0] + out[1].value, "its output holds tensors in a dataclass"),
        (nn.Linear(4, 4), lambda x: x.add_(1), "a later operator writes into its output"),
    ],
)
def test_what_cannot_be_replaced(
    body: nn.Module, after: Callable[[Any], Any] | None, reason: str
) -> None:
    record = knocked(Net(body, after or (lambda x: x)))
    assert record.skipped is not None
    assert record.skipped.startswith(reason)
    assert (record.base_ns, record.changed_ns) == ([], [])


def test_a_module_that_is_never_called() -> None:
    net = Net(nn.Tanh())
    net.idle = nn.Linear(1, 1)
    assert knocked(net, "idle").skipped == "never called in the step"


def test_effects_besides_the_output_show_in_the_values() -> None:
    left: list[torch.Tensor] = []
    calls = [0]

    def after(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x + (left.pop() if left else 0)

    record = knocked(Net(Secret(left), after))
    # It draws a random number, so values are not held against it; a quiet module's are.
    assert record.skipped is None
    quiet = Secret(left)

    def leave(x: torch.Tensor) -> torch.Tensor:
        left.append(x * 100)
        return x * 2

    quiet.forward = leave  # type: ignore[method-assign]
    assert str(knocked(Net(quiet, after)).skipped).startswith("it has effects besides its output")
    assert "forward" in vars(quiet)


class Drifting(nn.Module):
    """Gives nearly what it gave a moment ago, and something else in the long run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 0 + self.calls * 0.0009


@pytest.mark.parametrize("path", ["first", "last"])
def test_a_step_that_keeps_state_is_no_effect_of_every_module(path: str) -> None:
    net = Net(Drifting())
    torch.nn.init.eye_(net.last.weight)
    torch.nn.init.zeros_(net.last.bias)
    assert knocked(net, path).skipped is None
    assert knocked(net, "body").skipped == "it changes its own state"


def test_a_reason_that_is_known_is_kept() -> None:
    knockout = Knockout({"a": nn.Tanh()}, lambda: None, CPU, FAST, lambda _: None)
    knockout.run([Job("a")], graph=False, known={"a": "runs collectives"})
    assert [record.skipped for record in knockout.outcomes] == ["runs collectives"]


def test_a_module_without_memory_for_its_pairs_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(of_knockout, "time_pairs", full)
    net = Net(nn.Linear(4, 4))
    assert knocked(net).skipped == "out of memory"
    assert "forward" not in vars(net.body)


def test_nested_outputs_come_back_call_by_call_as_they_were() -> None:
    module, seen = Nested(), []
    inputs = [torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)]
    stand_in = StandIn(module)
    stand_in.record(lambda: [module(x) for x in inputs])
    with stand_in.installed():
        seen = [module(torch.zeros(2, 3)) for _ in inputs]
    for given, x in zip(seen, inputs, strict=True):
        truth = Nested()(x)
        assert torch.equal(given["a"][0], truth["a"][0])
        assert torch.equal(given["b"][0], truth["b"][0])
        assert given["b"][0].stride() == truth["b"][0].stride()
        assert (given["a"][1], given["b"][1]) == (None, 3)
    assert stand_in.at_start()


def test_the_backward_of_what_comes_before_still_runs() -> None:
    torch.manual_seed(0)
    net = Net(nn.Linear(4, 4))
    x = torch.ones(2, 4)

    def step() -> None:
        net.zero_grad()
        net(x).sum().backward()

    step()
    truth = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    stand_in = StandIn(net.body)
    stand_in.record(step)
    with stand_in.installed():
        step()
    found = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    assert set(found) == {"first.weight", "first.bias", "last.weight", "last.bias"}
    assert all(torch.equal(grad, truth[name]) for name, grad in found.items())


def test_inference_tensors() -> None:
    net, x = Net(nn.Tanh()), torch.ones(2, 4)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            out: torch.Tensor = net(x)
            return out

    knockout = Knockout(dict(net.named_modules()), step, CPU, FAST, lambda _: None)
    knockout.run([Job("body")], graph=False, known={})
    assert knockout.outcomes[0].skipped is None


def replayed(path: str, ns: int, calls: int, number: int, measured: int | None = None) -> Any:
    return ReplayRecord(
        replay_id=number, path=path, phase="forward", condition="hot", call_index=0, calls=calls,
        measured_id=number if measured is None else measured,
        samples_ns=[] if measured is not None else [ns],
    )  # fmt: skip


def test_the_costliest_are_chosen_by_time_alone_times_calls() -> None:
    replays = [
        replayed("", 900, 1, 0),
        replayed("a", 50, 3, 1),
        replayed("b", 100, 1, 2),
        replayed("c", 0, 2, 3, measured=2),
        replayed("d", 10, 1, 4),
    ]
    known = {path: nn.Tanh() for path in ("", "a", "b", "c", "d")}
    assert chosen_modules(KnockoutOptions(top=2), replays, known) == ["c", "a"]
    named = KnockoutOptions(top=1, paths=("d", "c"))
    assert chosen_modules(named, replays, known) == ["d", "c", "a"]
    with pytest.raises(CbTraceError, match="no module 'e'"):
        chosen_modules(KnockoutOptions(paths=("e",)), replays, known)


def test_the_words_of_the_option() -> None:
    assert parse_knockout("top:7") == KnockoutOptions(top=7)
    assert parse_knockout("top") == KnockoutOptions(paths=("top",))  # as a module may be called
    assert parse_knockout("h.0, top:2,lm_head") == KnockoutOptions(top=2, paths=("h.0", "lm_head"))
    with pytest.raises(CbTraceError, match="names no module"):
        parse_knockout(" ,")
    for text in ("top:", "top:0", "h.0,top:0"):
        with pytest.raises(CbTraceError, match="how many of the costliest"):
            parse_knockout(text)


def test_inputs_that_autograd_reaches_in_a_dataclass_are_refused() -> None:
    class Opening(nn.Module):
        def forward(self, held: Held) -> torch.Tensor:
            return held.value * 2

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.body = nn.Linear(4, 4), Opening()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.body(Held(self.first(x)))
            return out

    net = Around()
    knockout = Knockout(
        dict(net.named_modules()), lambda: net(torch.ones(2, 4)), CPU, FAST, lambda _: None
    )
    knockout.run([Job("body")], graph=False, known={})
    (record,) = knockout.outcomes
    assert record.skipped == "autograd reaches inputs of it that lie in a dataclass"


def test_a_module_works_on_beside_its_stand_in() -> None:
    module, ran = nn.Linear(3, 3), []
    first, second = torch.ones(1, 3), torch.zeros(1, 3)
    stand_in = StandIn(module)
    with torch.no_grad():
        stand_in.record(lambda: module(first))
        truth = module(first)
        module.register_forward_pre_hook(lambda *_: ran.append("hook"))
        module.bias.fill_(float("nan"))
        stand_in.install_beside()
        assert torch.equal(module(second), truth)
        stand_in.remove()
        assert module(second).isnan().all()
    assert "forward" not in vars(module)

    def own(x: torch.Tensor) -> torch.Tensor:
        ran.append("own")
        return x

    module.forward = own  # type: ignore[assignment, method-assign]
    stand_in.install_beside()
    assert torch.equal(module(second), truth)
    stand_in.remove()
    assert module.forward is own
    assert ran == ["hook", "hook", "hook", "own"]


class Doubling:
    """A forward that is no method."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


class Unbound(nn.Module):
    forward = Doubling()


class Static(nn.Module):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_forward_of_any_kind_works_on_beside_its_stand_in() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is not for new code
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4))  # type: ignore[no-untyped-call]
    net = nn.Sequential(Unbound(), Static(), traced)
    knockout = Knockout(
        dict(net.named_modules()), lambda: net(torch.ones(2, 4)), CPU, FAST, lambda _: None
    )
    with torch.no_grad():
        knockout.run([Job("0"), Job("1"), Job("2")], graph=False, known={})
    assert [(o.job.path, o.skipped) for o in knockout.outcomes] == [
        ("0", None), ("1", None), ("2", None),
    ]  # fmt: skip
    assert all(outcome.base_ns for outcome in knockout.outcomes)
