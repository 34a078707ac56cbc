"""Clocks around forwards: whose time is whose, what is put back, and what is said instead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cb_trace.bundle import HostSpanRecord
from cb_trace.capture.tree import module_tree
from cb_trace.replay import host_spans
from cb_trace.replay.host_spans import END, STEP, ClockCost, Clocks, HostSpans, Part, parts_of

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

CPU = torch.device("cpu")
X = torch.ones(2, 4)


class Again(nn.Module):
    """Calls itself."""

    def forward(self, x: Tensor, times: int = 2) -> Tensor:
        out: Tensor = self(x, times - 1) if times else x + 1
        return out


class Sleep(nn.Module):
    """Takes 5 ms at the least."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.005)
        return x


class Raise(nn.Module):
    """Always raises, with a call of a module open."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        raise LookupError("as ever")


class Inner(nn.Module):
    """Holds a module that somebody else holds too."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared, self.sleep = shared, Sleep()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.shared(self.sleep(x))
        return out


class Net(nn.Module):
    """Nested, shared, twice called, recursive and raising modules, and one never called."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.inner = Inner(self.shared)
        self.again = Again()
        self.bad = Raise()
        self.never = nn.ReLU()
        self.scripted = torch.jit.trace(nn.Tanh(), X)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(self.shared(self.shared(x)))
        try:
            self.bad(x)
        except LookupError:
            x = self.again(x)
        out: Tensor = self.scripted(x)
        return out


def spans(model: nn.Module, step: Callable[[], object], **more: Any) -> HostSpans:
    return HostSpans(module_tree(model).modules, step, CPU, **more)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def test_calls_of_a_step_are_those_of_the_model(net: Net) -> None:
    found = spans(net, lambda: net(X))
    found.block(samples=4, max_seconds=60)
    records = {record.path: record for record in found.records()}
    assert {path: record.calls for path, record in records.items()} == {
        None: 1, "": 1, "shared": 3, "inner": 1, "inner.sleep": 1, "again": 3, "bad": 1,
        "bad.inner": 1,
    }  # fmt: skip
    assert all(len(record.ns) == 4 for record in records.values())
    assert {record.dropped for record in records.values()} == {0}


def test_time_is_the_innermost_module_s_own(net: Net) -> None:
    walls: list[int] = []

    def step() -> None:
        begin = time.perf_counter_ns()
        net(X)
        walls.append(time.perf_counter_ns() - begin)

    found = spans(net, step)
    found.block(samples=3, max_seconds=60)
    records = {record.path: record for record in found.records()}
    ns = {path: record.ns for path, record in records.items()}
    assert min(ns["inner.sleep"]) >= 4_900_000  # less than 0.1 ms is the clock's
    assert min(ns["inner"]) < 4_900_000
    own = [sum(sample) for sample in zip(*ns.values(), strict=True)]
    del ns[None]
    inside = [sum(sample) for sample in zip(*ns.values(), strict=True)]
    assert all(sum_ <= wall for sum_, wall in zip(inside, walls[-3:], strict=True))
    assert all(sum_ >= 4_900_000 for sum_ in own)


def test_forwards_are_put_back(net: Net) -> None:
    own = net.shared.forward
    vars(net.shared)["forward"] = own  # an instance may have one already
    before = net(X)
    seen: list[bool] = []

    def step() -> Tensor:
        seen.append("forward" in vars(net) and vars(net.shared)["forward"] is not own)
        out: Tensor = net(X)
        return out

    spans(net, step).block(samples=3)
    assert seen == [False] * 3 + [True] * 4  # without clocks; once unmeasured, and three with
    assert vars(net.shared)["forward"] is own
    with_forward = [name for name, m in net.named_modules() if "forward" in vars(m)]
    assert [name for name in with_forward if name != "scripted"] == ["shared"]
    assert torch.equal(net(X), before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no more\ndata")])
def test_what_stops_a_step_leaves_no_clock(net: Net, error: BaseException) -> None:
    def step() -> None:
        net(X)
        if "forward" in vars(net):
            raise error

    found = spans(net, step)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            found.block()
    else:
        found.block()
        assert found.reason is not None
        assert found.reason.startswith("the step fails with clocks around its modules: ")
        assert "no more" in found.reason
        found.block()  # and not again
    assert found.records() == []
    assert "forward" not in vars(net)


def test_signatures_stay_readable(net: Net) -> None:
    import inspect

    seen: list[list[str]] = []
    found = spans(net, lambda: seen.append(list(inspect.signature(net.again.forward).parameters)))
    found.block(samples=3)
    assert seen == [["x", "times"]] * len(seen)


def test_a_forward_on_another_thread_is_nobody_s_part(net: Net) -> None:
    def step() -> None:
        thread = threading.Thread(target=net.shared, args=(X,))
        thread.start()
        thread.join()

    found = spans(net, step)
    found.block(samples=3)
    assert found.reason == "a module runs on another thread than the step"
    assert found.records() == []


class Compiled(nn.Module):
    """A module that calls another from compiled code, or a compiled function."""

    def __init__(self, *, around: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        called = self.inner if around else torch.relu
        self._call = torch.compile(lambda x: called(x) + 1, backend="eager")

    def forward(self, x: Tensor) -> Tensor:
        return self._call(self.inner(x))


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_clocks_in_compiled_code_would_make_another_step_of_it() -> None:
    found = made(Compiled(around=True))
    assert found.reason == "a part of the step runs compiled, and not as it is with clocks in it"
    assert found.records() == []


@pytest.mark.usefixtures("compiler")
def test_compiled_functions_that_call_no_module_are_part_of_their_module() -> None:
    found = made(Compiled(around=False))
    assert found.reason is None
    assert [record.path for record in found.records()] == [None, "", "inner"]


def made(net: nn.Module) -> HostSpans:
    """One block of a net that has run before."""

    def step() -> object:
        with torch.no_grad():
            return net(X)

    step()
    found = HostSpans(dict(net.named_modules()), step, torch.device("cpu"))
    found.block(samples=3)
    return found


def test_gradients_are_those_without_clocks() -> None:
    first = nn.Linear(4, 4)
    model = nn.Sequential(first, nn.Linear(4, 4))
    grads: list[Tensor] = []

    def step() -> None:
        model.zero_grad()
        checkpoint(model, X, use_reentrant=False).sum().backward()
        assert first.weight.grad is not None
        grads.append(first.weight.grad.clone())

    found = spans(model, step)
    found.block(samples=3)
    assert len(grads) == 7
    assert all(torch.equal(grads[0], grad) for grad in grads)
    assert found.reason is None


def test_methods_that_count_as_a_call() -> None:
    class Generating(nn.Module):
        def generate(self, x: Tensor) -> Tensor:
            out: Tensor = self(x)
            return out

        def forward(self, x: Tensor) -> Tensor:
            return x

    model = Generating()
    found = spans(model, lambda: model.generate(X), wrap=("generate",))
    found.block(samples=3)
    assert [(r.path, r.calls) for r in found.records()] == [(None, 1), ("", 2)]
    assert "generate" not in vars(model)


# The step takes 100 ns; in it module 0 from 10 to 60, there module 1 from 20 to 30 and from 30 to
# 35, and in the second of these module 1 again from 31 to 33.
LOG = [
    STEP, 0, 0, 10, 1, 20, 30, END, 1, 30, 1, 31, 33, END, 35, END, 60, END, 100, END,
]  # fmt: skip


def test_parts_of_a_log() -> None:
    assert parts_of(LOG) == {
        STEP: Part(own_ns=50, calls=1, inner=1),
        0: Part(own_ns=35, calls=1, inner=2),
        1: Part(own_ns=15, calls=3, inner=1),
    }
    assert parts_of([]) == {}


def test_what_a_clock_costs_is_taken_off_but_never_more_than_there_is() -> None:
    cost = ClockCost(inside_ns=2.0, outside_ns=5.5)
    found = {place: part.ns(cost) for place, part in parts_of(LOG).items()}
    assert found == {STEP: 42, 0: 22, 1: 4}  # 50−2−5.5, 35−2−11, 15−6−5.5: halves to even
    assert Part(own_ns=3, calls=2).ns(cost) == 0
    assert ClockCost(0, 0).of_step(5, 10) == ClockCost(0, 0)
    assert cost.of_step(0, 10) == cost


@pytest.mark.parametrize(("longer", "times"), [(-40, 1), (75, 1), (150, 2), (600, 8), (9_999, 8)])
def test_clocks_cost_more_in_a_step_than_in_a_loop(longer: float, times: int) -> None:
    assert ClockCost(2.0, 5.5).of_step(10, longer) == ClockCost(2.0 * times, 5.5 * times)


def test_a_clock_costs_something() -> None:
    cost = host_spans.clock_cost()
    assert 0 <= cost.inside_ns < 100_000
    assert 0 < cost.outside_ns < 100_000
    assert host_spans.clock_cost() is cost


class ScriptedHost:
    """Says of each step in turn whether the host ran at full speed."""

    def __init__(self, clear: str) -> None:
        self._clear = iter(clear)

    def seek(self) -> bool:
        return next(self._clear) == "."

    def full(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("clear", "kept", "dropped"),
    [
        ("...." + "....", 4, 0),
        ("...." + ".#...", 4, 1),
        ("...." + "#" * 16, 16, 0),  # nothing else is there
        ("...." + "#" * 16 + "...." + "....", 4, 16),
    ],
)
def test_steps_of_a_slowed_host_do_not_count(
    monkeypatch: pytest.MonkeyPatch, clear: str, kept: int, dropped: int
) -> None:
    host = ScriptedHost(clear)
    monkeypatch.setattr(host_spans, "host_of", lambda _: host)
    model = nn.Identity()
    found = spans(model, lambda: model(X))
    for _ in range(2 if len(clear) > 20 else 1):
        found.block(samples=4, max_seconds=60)
    assert [(len(r.ns), r.dropped) for r in found.records()] == [(kept, dropped)] * 2


def test_a_block_ends_in_time_with_three_steps_at_the_least() -> None:
    model = nn.Identity()
    found = spans(model, lambda: model(X))
    found.block(samples=50, max_seconds=0)
    found.block(samples=3, max_seconds=60)
    (step, root) = found.records()
    assert (step.path, root.path) == (None, "")
    assert len(step.ns) == len(root.ns) == 6


def test_no_block_no_record() -> None:
    assert spans(nn.Identity(), lambda: None).records() == []


def test_a_step_that_calls_no_module_has_all_the_time() -> None:
    found = spans(nn.Identity(), lambda: None)
    found.block(samples=3)
    (record,) = found.records()
    assert record == HostSpanRecord(path=None, calls=1, ns=record.ns)


def test_clocks_are_read_on_the_thread_that_made_them() -> None:
    clocks = Clocks()
    clocked = clocks.around(0, lambda: None)
    assert parts_of(clocks.run(clocked))[0].calls == 1
    assert not clocks.elsewhere


def test_the_windows_are_of_the_same_steps() -> None:
    model = nn.Sequential(Sleep(), nn.Linear(4, 4))
    spans = HostSpans(dict(model.named_modules()), lambda: model(X), CPU)
    assert spans.window() is None
    spans.block(samples=4, max_seconds=0.2)
    spans.block(samples=3, max_seconds=0.2)
    window = spans.window()
    assert window is not None
    count = len(spans.records()[0].ns)
    assert len(window.host_ns) == len(window.closing_ns) == len(window.window_ns) == count
    for host, closing, whole in zip(
        window.host_ns, window.closing_ns, window.window_ns, strict=True
    ):
        assert 5_000_000 <= host < host + closing <= whole
    assert 0 < window.empty_ns < 5_000_000
