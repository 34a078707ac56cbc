"""The backward of a module alone: with the gradients it had, as often as wanted."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cb_trace.capture.tree import module_tree
from cb_trace.range_names import replay_range
from cb_trace.replay.captures import Captures
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.gradients import NO_ROOM, OutputGradients
from cb_trace.replay.isolated import IsolatedCall, Sampling, SkippedError, isolated
from cb_trace.replay.series import Series
from cb_trace.replay.tree import modules_by_path
from cb_trace.replay.walk import Replayer, ReplayOptions

CPU = torch.device("cpu")


class Net(nn.Module):
    """A layer with a residual, one that writes in place, one that gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Linear(4, 2)
        self.aside = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.first(x))
        self.aside(y).detach()
        out: Tensor = self.last(y) + y[:, :2]
        return out


def captured(model: nn.Module, x: Tensor) -> Captures:
    records = module_tree(model).records
    signatures = {r.path: r.signature for r in records}
    found = Captures(modules_by_path(model, records), signatures, CPU, dedup=False, max_bytes=None)
    with found.first_pass():
        model(x).square().sum().backward()
    return found


def test_gradients_are_those_of_the_step() -> None:
    model, x = Net(), torch.randn(5, 3)
    calls = {call.path: call for call in captured(model, x).calls}
    wanted = {path: [p.grad for p in m.parameters()] for path, m in model.named_modules()}
    for path in ("", "first", "last"):
        call = calls[path]
        assert call.backward
        with isolated(call, CPU, CacheFlush(CPU)) as ready:
            again = ready.backward("hot")
            for _ in range(2):  # the graph is kept
                got = again.run()
                assert isinstance(got, tuple)
                of_parameters = got[-len(wanted[path]) :]
                for one, other in zip(of_parameters, wanted[path], strict=True):
                    assert (one is None) == (other is None)
                    assert one is None or torch.allclose(one, other)
    assert not calls["aside"].backward
    assert calls["act"].backward  # its input's gradient, no parameter's


def test_rows_of_both_phases_have_samples_and_ranges(tmp_path: Path) -> None:
    model, x = Net(), torch.randn(5, 3)

    def step() -> None:
        model(x).square().sum().backward()
        model.zero_grad(set_to_none=True)

    options = ReplayOptions(budget_seconds=2.0, profiled_calls=2)
    work = Replayer(model, step, module_tree(model).records, CPU, options, lambda _: None)
    work.capture()
    work.time()
    backward = {r.path: r for r in work.records if (r.phase, r.condition) == ("backward", "hot")}
    assert set(backward) == {"", "first", "act", "last"}
    assert {r.path for r in work.records if r.phase == "forward"} == {*backward, "aside"}
    assert all(r.samples_ns for r in work.records if not r.skipped)
    traces = work.profile(tmp_path)
    assert len(traces) == 2  # last was taken for a double of aside, until a backward reached it
    texts = [gzip.decompress((tmp_path / trace.file).read_bytes()) for trace in traces]
    events = [event for text in texts for event in json.loads(text)["traceEvents"]]
    (span,) = [e for e in events if e.get("name") == replay_range(backward["last"].replay_id, 1)]
    inside = {
        e["name"] for e in events
        if e.get("cat") == "cpu_op" and e["tid"] == span["tid"]
        and span["ts"] <= e["ts"] and e["ts"] + e["dur"] <= span["ts"] + span["dur"]
    }  # fmt: skip
    assert "AddmmBackward0" in inside
    assert "aten::mm" in inside
    assert "aten::addmm" not in inside  # the forward is outside
    assert all(p.grad is None for p in model.parameters())


def test_a_forward_without_grad_has_no_backward() -> None:
    model, x = Net(), torch.randn(5, 3)
    records = module_tree(model).records

    def step() -> object:
        with torch.no_grad():
            return model(x)

    work = Replayer(model, step, records, CPU, ReplayOptions(budget_seconds=0.5), lambda _: None)
    work.capture()
    work.time()
    assert {r.phase for r in work.records} == {"forward"}


def test_gradients_that_do_not_fit_are_a_reason() -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    found = OutputGradients()
    found.watch([y, "text"], lambda _: None)
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert (found.copies, found.reason, found.received) == ({}, NO_ROOM, True)


def test_a_backward_that_runs_forwards_again_is_not_timed_as_one() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given: torch.Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return given

    model, x = Again(), torch.randn(5, 3, requires_grad=True)
    calls = {call.path: call for call in captured(model, x).calls}
    with (
        isolated(calls[""], CPU, CacheFlush(CPU)) as ready,
        pytest.raises(SkippedError, match="runs forwards again"),
    ):
        ready.backward("hot")
    model.zero_grad()


def test_a_backward_that_cannot_run_again_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Net(), torch.randn(5, 3)
    call = next(c for c in captured(model, x).calls if c.path == "last")
    with isolated(call, CPU, CacheFlush(CPU)) as ready:
        monkeypatch.setattr(IsolatedCall, "runner", lambda *_: lambda: torch.ones(5, 2))
        sampling = Sampling(3, 0.0, 9.0, 0.1)
        with pytest.raises(SkippedError, match="no gradient reached its output"):
            ready.measure(("backward", "hot"), sampling, Series())


@dataclass
class Scored:
    """What some modules give: no container that pytree knows."""

    score: Tensor
    name: str = "none"


class Scoring(nn.Linear):
    def forward(self, x: Tensor) -> Scored:  # type: ignore[override]
        return Scored(super().forward(x))


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scoring(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        score: Tensor = self.inner(x).score
        return score


def test_the_backward_through_a_dataclass_is_seen_and_runs_alone() -> None:
    model = Scorer()
    call = next(c for c in captured(model, torch.randn(5, 3)).calls if c.path == "inner")
    assert call.backward
    with isolated(call, CPU, CacheFlush(CPU)) as ready:
        got = ready.backward("hot").run()
    assert isinstance(got, tuple)
    assert torch.allclose(got[0], model.inner.weight.grad)  # type: ignore[arg-type]
