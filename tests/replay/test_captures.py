"""Which calls are kept, which stand for others, and what happens when memory is short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cb_trace.capture.tree import module_tree
from cb_trace.errors import CbTraceError
from cb_trace.replay.flush import last_level_cache_bytes
from cb_trace.replay.likes import DEVICE, Seen
from cb_trace.replay.memory import CaptureBudget, free_bytes
from cb_trace.replay.tree import configuration_key, modules_by_path
from tests.replay.support import CPU, alone, captures, replayer


class Twice(nn.Module):
    """Two equal layers, one called twice; one never called."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(self.a(x)))  # type: ignore[no-any-return]


def test_calls_with_equal_inputs_are_counted_and_likes_are_kept_once() -> None:
    model = Twice().requires_grad_(False)
    found = captures(model, lambda: model(torch.ones(2, 4)))
    assert [(c.path, c.index, c.calls) for c in found.calls] == [
        ("", 0, 1),
        ("a", 0, 2),
        ("b", 0, 1),
    ]
    assert [c.path for c in found.to_measure()] == ["", "a"]
    assert [c.inputs is not None for c in found.calls] == [True, True, False]


def test_the_order_of_the_step_has_every_call_by_the_one_that_stands_for_it() -> None:
    class Mixed(Twice):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(self.b(self.a(x)), self.a(x[:1]))  # type: ignore[no-any-return]

    def added(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x if y is None else x + y

    model = Mixed().requires_grad_(False)
    model.a.forward = added  # type: ignore[assignment, method-assign]
    found = captures(model, lambda: model(torch.ones(2, 4)))
    once = [("", 0), ("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    assert [(c.path, c.index) for c in found.order] == once
    assert {id(c) for c in found.order} == {id(c) for c in found.calls}
    found = captures(model, lambda: [model(torch.ones(2, 4)) for _ in range(2)])
    assert [(c.path, c.index) for c in found.order] == once * 2
    assert len(found.calls) == 5


def test_without_dedup_every_module_is_kept() -> None:
    model = Twice().requires_grad_(False)
    found = captures(model, lambda: model(torch.ones(2, 4)), dedup=False)
    assert [c.path for c in found.to_measure()] == ["", "a", "b"]
    assert all(c.inputs is not None for c in found.calls)


def test_calls_with_other_shapes_or_state_are_kept_apart() -> None:
    layer = nn.Linear(4, 4).requires_grad_(False)

    def step() -> None:
        layer(torch.ones(2, 4))
        layer(torch.ones(3, 4))
        with torch.inference_mode():
            layer(torch.ones(3, 4))
        layer(torch.ones(2, 4))

    found = captures(layer, step).calls
    assert [(c.index, c.calls) for c in found] == [(0, 2), (1, 1), (2, 1)]


def test_modules_in_another_layout_or_mode_are_no_likes() -> None:
    layer, other = nn.Linear(4, 4), nn.Linear(4, 4)
    assert configuration_key(layer) == configuration_key(other)
    other.weight = nn.Parameter(other.weight.detach().t())
    assert configuration_key(layer) != configuration_key(other)
    assert configuration_key(layer) != configuration_key(nn.Linear(4, 4).eval())


def _three() -> nn.Sequential:
    layers = [nn.Linear(256, 256), nn.Linear(256, 128), nn.Linear(128, 256)]
    return nn.Sequential(*layers).requires_grad_(False)


def test_as_many_passes_as_memory_needs() -> None:
    model, x = _three(), torch.ones(4, 256)  # inputs: 4, 4, 4 and 2 KiB
    steps = []

    def step() -> object:
        steps.append(1)
        return model(x)

    found = captures(model, step, limit=5000)
    groups = [
        [(call.path, call.inputs is not None) for call in group]
        for group in found.in_memory(found.to_measure(), model, step)
    ]
    assert groups == [[("", True)], [("0", True)], [("1", True)], [("2", True)]]
    assert (len(steps), found.passes) == (4, 4)


def test_what_never_fits_is_skipped_with_the_reason() -> None:
    model, x = _three(), torch.ones(4, 256)
    found = captures(model, lambda: model(x), limit=3000)
    assert {c.path: c.reason for c in found.calls} == {
        "": "inputs of 4096 bytes exceed the memory budget",
        "0": "inputs of 4096 bytes exceed the memory budget",
        "1": "inputs of 4096 bytes exceed the memory budget",
        "2": None,
    }


def test_without_a_step_there_is_one_pass() -> None:
    model, x = _three(), torch.ones(4, 256)
    found = captures(model, lambda: model(x), limit=5000)
    groups = list(found.in_memory(found.to_measure(), model, None))
    assert [call.reason for call in groups[1]] == [
        "inputs did not fit in memory, and no later pass saw the call"
    ] * 3


BYTES = {"": 2048, "late": 2048, "early": 2048, "head": 2048, "halves.0": 1024}


class Halves(nn.Module):
    """Likes are called in another order than registered; halves lie in storages of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.late, self.early, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8)
        self.halves = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.late(self.early(x).relu()).view(2, 8, 32)
        parts = [half(part) for half, part in zip(self.halves, y, strict=True)]
        return self.head(torch.cat(parts).view(8, 64))  # type: ignore[no-any-return]


def _too_large(nbytes: int) -> str:
    return f"inputs of {nbytes} bytes exceed the memory budget"


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("limit", [0, 1000, 1023, 1024, 1500, 2047, 2048, 4096, 9000])
def test_under_every_budget_what_is_skipped_is_skipped_for_its_size(
    limit: int, *, train: bool
) -> None:
    model, x = Halves().requires_grad_(train), torch.ones(8, 64)

    def step() -> None:
        out = model(x).sum()
        if train:
            torch.autograd.backward(out)

    work = replayer(model, step, max_capture_bytes=limit)
    work.capture()
    work.time()
    found = {r.path: r.skipped for r in work.records if r.phase == "forward"}
    needed = {**BYTES, "halves.1": 1024 if limit >= 1024 else 2048}  # by its like, or alone
    assert found == {p: None if n <= limit else _too_large(n) for p, n in needed.items()}


def test_a_like_measured_apart_is_skipped_for_its_own_size() -> None:
    model, x = Halves().requires_grad_(False), torch.ones(8, 64)
    found = captures(model, lambda: model(x), limit=1500)
    seen = {(path, 0): Seen([1000]) for path in (*BYTES, "halves.1")}
    seen["halves.1", 0] = Seen([9_000_000])
    assert found.part(seen, 10_000_000, DEVICE, {})
    measured = [c for group in found.in_memory(found.to_measure(), model, None) for c in group]
    reasons = {c.path: c.reason for c in measured if c.path.startswith("halves")}
    assert reasons == {"halves.0": None, "halves.1": _too_large(2048)}


def test_what_a_later_pass_finds_out_is_the_reason() -> None:
    class Writes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight += 1
            return super().forward(x)

    model, x = _three(), torch.ones(4, 256)
    model.append(Writes(256, 256).requires_grad_(False))
    found = captures(model[1:], lambda: model(x), limit=5000)
    groups = found.in_memory(found.to_measure(), model, lambda: model(x))
    assert {c.path: c.reason for group in groups for c in group} == {
        "1": None,
        "2": None,
        "3": "writes to its parameters",
    }


def test_without_a_step_inputs_that_fitted_and_were_not_kept_are_said_so() -> None:
    model = Twice()

    def step() -> None:
        model.b(torch.ones(2, 4))
        torch.autograd.backward(model.a(torch.ones(2, 4)).sum())  # unlike b, which has no backward

    found = captures(model, step)
    groups = found.in_memory(found.to_measure(), model, None)
    assert {c.path: c.reason for group in groups for c in group} == {
        "b": None,
        "a": "inputs were not kept, and no later pass saw the call",
    }


def test_hooks_are_gone_and_the_model_untouched() -> None:
    model = Twice()
    captures(model, lambda: model(torch.ones(2, 4)))
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_recomputed_forward_is_no_call_of_its_own() -> None:
    layer = nn.Linear(4, 4)

    def step() -> None:
        x = torch.ones(2, 4, requires_grad=True)
        out = checkpoint(layer, x, use_reentrant=False)
        torch.autograd.backward(out.sum())

    assert [(c.index, c.calls) for c in captures(layer, step).calls] == [(0, 1)]


def test_budget_places_on_the_device_then_nowhere() -> None:
    budget = CaptureBudget(CPU, 100)
    assert budget.place({CPU: 60}) is not None
    assert budget.place({CPU: 60}) is None
    assert budget.place({CPU: 40}) is not None
    assert budget.taken == {"own": 100, "ram": 0}
    assert (budget.fits_alone(100), budget.fits_alone(101)) == (True, False)
    assert 0 < CaptureBudget(CPU, None).limit <= free_bytes(CPU)


def test_wrappers_are_opened_and_replicas_refused() -> None:
    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self._orig_mod = inner

    inner = nn.Linear(2, 2)
    model = Wrapper(nn.Sequential(Wrapper(inner)))
    found = modules_by_path(model, module_tree(model).records)
    assert list(found) == ["", "0"]
    assert found["0"] is inner
    with pytest.raises(CbTraceError, match="DataParallel"):
        modules_by_path(nn.DataParallel(inner), [])


def test_the_last_level_cache_is_read_from_the_system(tmp_path: Path) -> None:
    for number, (level, size) in enumerate([("1", "32K"), ("3", "36864K"), ("2", "1M")]):
        index = tmp_path / f"index{number}"
        index.mkdir()
        (index / "level").write_text(f"{level}\n")
        (index / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(tmp_path) == 36 << 20
    assert last_level_cache_bytes(tmp_path / "absent") == 0


class Again(nn.Module):
    """Calls itself, and its forward by another name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, times: int) -> Any:
        x = self.layer(x)
        return self(x, times - 1) if times else x

    def encode(self, x: torch.Tensor) -> Any:
        return self(x, 0)


def test_a_call_inside_a_call_of_the_same_module_is_part_of_it() -> None:
    model = nn.ModuleDict({"again": Again().requires_grad_(False)})
    again: Any = model["again"]
    found = captures(model, lambda: (again(torch.ones(2, 4), 2), again(torch.ones(2, 4), 0)))
    assert [(c.path, c.places, c.calls) for c in found.calls] == [
        ("again", [0], 1), ("again", [3], 1), ("again.layer", [0, 1, 2, 3], 4),
    ]  # fmt: skip
    wrapped = captures(model, lambda: again.encode(torch.ones(2, 4)), wrap=("encode",))
    assert [(c.path, c.method, c.places) for c in wrapped.calls] == [
        ("again", "encode", [0]), ("again.layer", "__call__", [0]),
    ]  # fmt: skip


class Decoder(nn.Module):
    """Keeps what it was given: every call attends to more."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x if self.kept is None else torch.cat([self.kept, x])
        return x @ self.kept.t()


def test_calls_that_find_another_cache_are_other_calls() -> None:
    decoder = Decoder()

    def step() -> None:
        decoder.kept = None
        for _ in range(3):
            decoder(torch.ones(1, 4))

    found = captures(decoder, step).calls
    assert [(c.index, c.calls) for c in found] == [(0, 1), (1, 1), (2, 1)]
    assert [alone(call).shape[1] for call in found] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripted_modules_are_calls_and_what_is_inside_them_is_none() -> None:
    x = torch.randn(4, 8)
    scripted: Any = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    trace: Any = torch.jit.trace
    traced = trace(nn.Linear(8, 8), x)
    model = nn.Sequential(scripted, traced)
    made = replayer(model, lambda: model(x))
    made.capture()
    made.time()
    assert [(r.path, r.skipped, r.samples_ns != []) for r in made.records] == [
        ("", None, True), ("0", None, True), ("1", None, True),
    ]  # fmt: skip
    assert not scripted._forward_hooks
    assert not traced._forward_pre_hooks


@pytest.mark.usefixtures("compiler")
def test_what_the_model_has_compiled_stays_compiled() -> None:
    ran: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        def run(*args: Any) -> Any:
            ran.append(1)
            return graph(*args)

        return run

    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.scale = torch.compile(lambda x: x * 2, backend=backend)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale(self.inner(x))  # type: ignore[no-any-return]

    model = Inside().requires_grad_(False)
    x = torch.ones(2, 4)
    model(x)
    captures(model, lambda: model(x))
    assert len(ran) == 2
    model(x)
    assert len(ran) == 3
