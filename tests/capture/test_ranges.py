"""Module ranges in a real trace: one a call, nested, closed whatever happens, hooks gone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cb_trace.capture import profiled as profiled_module
from cb_trace.capture.profiled import profile_steps, profiled
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.capture.tree import module_tree
from cb_trace.range_names import path_of_range, range_name
from tests.capture.models import Everything

CPU = torch.device("cpu")
Slice = dict[str, Any]


@contextmanager
def recording(target: Path) -> Iterator[None]:
    """Profile the whole block."""
    with profiled(CPU, target) as start:
        start()
        yield


def slices(file: Path) -> list[Slice]:
    """User annotations of a trace, with exact integer nanoseconds, in start order."""
    text = gzip.decompress(file.read_bytes())
    events = json.loads(
        text,
        parse_float=lambda s: round(float(s.partition(".")[0]) * 1000) + int(s.partition(".")[2]),
    )
    found = [e for e in events["traceEvents"] if e.get("cat") == "user_annotation"]
    return sorted(found, key=lambda e: int(e["ts"]))


def inside(inner: Slice, outer: Slice) -> bool:
    return bool(
        outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    )


def hook_count(model: nn.Module) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._forward_hooks_always_called)
        for m in model.modules()
    )


def test_profiled_steps_hold_one_range_a_call(tmp_path: Path) -> None:
    model, x = Everything(), torch.randn(4, 8)
    tree = module_tree(model)
    with ModuleRanges(tree.modules) as ranges:
        samples = profile_steps(lambda: model(x), CPU, steps=2, target=tmp_path / "t.json.gz")
    assert ranges.called == set(tree.modules) - {"branches", "never"}
    assert not ranges.recomputed
    assert len(samples) == 2
    assert hook_count(model) == 0
    found = slices(tmp_path / "t.json.gz")
    steps = [s for s in found if s["name"].startswith("ProfilerStep#")]
    assert [s["name"] for s in steps] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert all(any(inside(s, step) for step in steps) for s in found)  # not the first step
    for step, sample in zip(steps, samples, strict=True):
        assert sample >= step["dur"] > 0
        calls = [s for s in found if inside(s, step) and s is not step]
        assert Counter(path_of_range(s["name"]) for s in calls) == {
            "": 1, "norm": 1, "twice": 2, "tied": 1,
            **{f"branches.{n}{leaf}": 1 for n in (0, 1) for leaf in ("", ".lin", ".act", ".drop")},
        }  # fmt: skip
        root = next(s for s in calls if path_of_range(s["name"]) == "")
        assert all(inside(s, root) for s in calls)
        branch = next(s for s in calls if path_of_range(s["name"]) == "branches.1")
        assert inside(
            next(s for s in calls if path_of_range(s["name"]) == "branches.1.act"), branch
        )


@pytest.mark.parametrize("back_to_back", [False, True])
def test_steps_back_to_back_have_their_ranges_and_nothing_waits_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_to_back: bool
) -> None:
    order: list[str] = []
    monkeypatch.setattr(profiled_module, "synchronize", lambda _: order.append("wait"))

    def step() -> None:
        order.append("step")
        torch.ones(2).add(1)

    target = tmp_path / "t.json.gz"
    samples = profile_steps(step, CPU, steps=4, target=target, back_to_back=back_to_back)
    found = slices(target)
    assert [s["name"] for s in found] == [f"ProfilerStep#{number}" for number in range(4)]
    for before, after in pairwise(found):
        assert before["ts"] + before["dur"] <= after["ts"]
    assert [sample > 0 for sample in samples] == [True] * 4
    each = ["step"] if back_to_back else ["step", "wait"]
    assert order == ["step", "wait", *each * 4, "wait"]  # at the end of all in any case


class Shy(nn.Module):
    """Raises half way, inside a child."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(2, 2))
        self.after = nn.ReLU()
        self.inner[1].register_forward_hook(self._fail)
        self.error = error

    def _fail(self, *_: object) -> None:
        raise self.error("stop")

    def forward(self, x: Tensor) -> Tensor:
        with suppress(self.error):
            self.inner(x)
        out: Tensor = self.after(x)
        return out


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_call_that_raises_closes_its_range(tmp_path: Path, error: type[BaseException]) -> None:
    model = Shy(error)
    tree = module_tree(model)
    with recording(tmp_path / "t.json.gz"), ModuleRanges(tree.modules):
        model(torch.ones(1, 2))
        nn.functional.relu(torch.ones(1))
    found = {path_of_range(s["name"]): s for s in slices(tmp_path / "t.json.gz")}
    assert set(found) == {"", "inner", "inner.0", "inner.1", "after"}
    assert inside(found["inner.1"], found["inner"])
    assert inside(found["after"], found[""])
    if error is ValueError:  # an interrupt runs no hooks: the root's closes what it left open
        assert not inside(found["after"], found["inner"])


def test_an_interrupted_step_leaves_no_range_open(tmp_path: Path) -> None:
    model = nn.Sequential(Shy(KeyboardInterrupt))
    model[0].forward = lambda x: (_ for _ in ()).throw(KeyboardInterrupt)
    tree = module_tree(model)
    with recording(tmp_path / "t.json.gz"):
        with pytest.raises(KeyboardInterrupt), ModuleRanges(tree.modules):
            model(torch.ones(1, 2))
        with torch.profiler.record_function("later"):
            torch.ones(1)
    assert hook_count(model) == 1  # the model's own
    found = {s["name"]: s for s in slices(tmp_path / "t.json.gz")}
    assert set(found) == {range_name(""), range_name("0"), "later"}
    assert found["later"]["ts"] >= found[range_name("")]["ts"] + found[range_name("")]["dur"]


class Countdown(nn.Module):
    """Calls itself through __call__."""

    def forward(self, n: int) -> Tensor:
        return torch.ones(1) if n == 0 else self(n - 1) + 1


def test_recursion_nests(tmp_path: Path) -> None:
    model = Countdown()
    with recording(tmp_path / "t.json.gz"), ModuleRanges(module_tree(model).modules):
        model(3)
    found = slices(tmp_path / "t.json.gz")
    assert len(found) == 4
    assert all(inside(inner, outer) for outer, inner in pairwise(found))


def test_odd_names_come_back(tmp_path: Path) -> None:
    model = nn.ModuleDict()
    model._modules["a\\b é%"] = nn.ReLU()
    with recording(tmp_path / "t.json.gz"), ModuleRanges(module_tree(model).modules):
        model._modules["a\\b é%"](torch.ones(1))
    assert [path_of_range(s["name"]) for s in slices(tmp_path / "t.json.gz")] == ["a\\b é%"]


def test_work_of_other_hooks_is_inside(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)

    def busy(*_: object) -> None:
        with torch.profiler.record_function("hook"):
            torch.ones(1)

    model.register_forward_pre_hook(busy)
    model.register_forward_hook(busy)
    with recording(tmp_path / "t.json.gz"), ModuleRanges(module_tree(model).modules):
        model(torch.ones(1, 2))
    root, *hooks = slices(tmp_path / "t.json.gz")
    assert [h["name"] for h in hooks] == ["hook", "hook"]
    assert all(inside(h, root) for h in hooks)
