"""Backward work where it is hard to place: recorded steps on the CPU, with literal answers.

Every operator that a case looks at occurs in one place only, so its name says where it was called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from tests.capture.test_record import QUICK
from tests.test_conduct import rows

TRAIN = replace(QUICK, phase="train", replay=False, steps=1, bare_samples=1)
WHERE = """
    SELECT part.phase, module.path, part.method, count(DISTINCT op.op_id)
    FROM kernel_module AS part
    JOIN kernel USING (kernel_id)
    JOIN op USING (op_id)
    LEFT JOIN module USING (module_id)
    WHERE kernel.step = 0 AND op.name = 'aten::{}'
    GROUP BY ALL
    ORDER BY ALL
"""
LOST = """
    SELECT kernel.name, part.reason FROM kernel_module AS part JOIN kernel USING (kernel_id)
    WHERE part.module_id IS NULL AND part.ns > 0
"""
REPEATED = """
    SELECT path, phase, call_index FROM module_call JOIN module USING (module_id)
    WHERE step = 0 AND phase = 'recompute' ORDER BY start_ns
"""
CALL_OF_REPEATED = """
    SELECT module.path, module_call.phase, module_call.call_index
    FROM kernel_module AS part
    JOIN kernel USING (kernel_id)
    JOIN op USING (op_id)
    JOIN module_call USING (call_id)
    JOIN module ON module.module_id = module_call.module_id
    WHERE kernel.step = 0 AND op.name = 'aten::tanh' AND part.phase = 'recompute'
    GROUP BY ALL
    ORDER BY min(kernel.start_ns)
"""
Places = list[tuple[Any, ...]]


class Net(nn.Module):
    """``a``, then what the case puts between, then ``b``."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.a, self.between, self.b = nn.Linear(8, 12), between, nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.between(self.a(x)))
        return y


Where = Callable[[Workload], Callable[[str], Places]]


@pytest.fixture
def where(tmp_path: Path) -> Where:
    """Record a training step; then: phase, module, method and number of an operator's calls."""

    def recorded(work: Workload) -> Callable[[str], Places]:
        (tmp_path / "bundle").mkdir()
        record(work, tmp_path / "bundle", TRAIN)
        profile = ingest(tmp_path / "bundle", tmp_path / "p.duckdb").profile
        lost = rows(profile, LOST)
        assert lost == []
        return lambda name: rows(profile, WHERE.format(name))

    return recorded


def net(between: nn.Module, **more: Any) -> Workload:
    torch.manual_seed(0)
    return Workload("net", Net(between), (torch.randn(4, 8),), **more)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grads[0] * torch.cos(x)


class Applies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = Sine.apply(x)  # type: ignore[no-untyped-call]
        return y


def test_a_custom_function_is_of_the_module_that_applied_it(where: Where) -> None:
    found = where(net(Applies()))
    assert found("sin") == [("forward", "between", "range", 1)]
    assert found("cos") == [("backward", "between", "autograd", 1)]


class Checkpointed(nn.Module):
    """A function of its own that calls a module, checkpointed."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.fc, self.reentrant = nn.Linear(12, 12), reentrant

    def part(self, x: Tensor) -> Tensor:
        return torch.sin(self.fc(torch.tanh(x)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.part, x, use_reentrant=self.reentrant)
        return y


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_function_is_repeated_for_its_module(reentrant: bool, where: Where) -> None:
    found = where(net(Checkpointed(reentrant)))
    for name in ("sin", "tanh"):
        assert found(name) == [
            ("forward", "between", "range", 1), ("recompute", "between", "autograd", 1),
        ]  # fmt: skip
    assert found("cos") == found("tanh_backward") == [("backward", "between", "autograd", 1)]
    assert found("addmm") == [
        ("forward", "a", "range", 1), ("forward", "b", "range", 1),
        ("forward", "between.fc", "range", 1), ("recompute", "between.fc", "range", 1),
    ]  # fmt: skip
    assert found("mm") == [
        ("backward", "a", "autograd", 1), ("backward", "b", "autograd", 2),
        ("backward", "between.fc", "autograd", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_module_is_repeated_once_a_call(
    reentrant: bool, where: Where, tmp_path: Path
) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(12, 12), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = checkpoint(self.block, x, use_reentrant=reentrant)
            return x

    found = where(net(Twice()))
    assert found("tanh") == [
        ("forward", "between.block.1", "range", 2), ("recompute", "between.block.1", "range", 2),
    ]  # fmt: skip
    assert found("tanh_backward") == [("backward", "between.block.1", "autograd", 2)]
    assert rows(tmp_path / "p.duckdb", REPEATED) == [
        ("between.block", "recompute", 1), ("between.block.0", "recompute", 1),
        ("between.block.1", "recompute", 1), ("between.block", "recompute", 0),
        ("between.block.0", "recompute", 0), ("between.block.1", "recompute", 0),
    ]  # fmt: skip
    assert rows(tmp_path / "p.duckdb", CALL_OF_REPEATED) == [
        ("between.block.1", "forward", 1), ("between.block.1", "forward", 0),
    ]  # fmt: skip
    assert ("backward", "between.block.0", "autograd", 4) in found("mm")


def test_a_backward_differentiated_again_is_of_the_modules_it_went_through(where: Where) -> None:
    """A gradient penalty. Products: b's forward twice differentiated, and so on outwards."""
    work = net(nn.Tanh())
    x = work.args[0].requires_grad_()
    optimizer = torch.optim.SGD(work.model.parameters(), lr=0.1)

    def step() -> None:
        x.grad = None
        loss = work.model(x).exp().sum()
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        torch.autograd.backward(loss + slope.square().sum(), inputs=[*work.model.parameters()])
        optimizer.step()
        optimizer.zero_grad()

    found = where(replace(work, step=step))
    assert found("tanh") == [("forward", "between", "range", 1)]
    assert {(phase, path) for phase, path, *_ in found("tanh_backward")} == {
        ("backward", "between")
    }
    assert [(phase, path, count) for phase, path, _, count in found("mm")] == [
        # The slope's product; of the loss that by the weight; of the slope's product two.
        ("backward", "a", 1 + 1 + 2),
        ("backward", "b", 1 + 2 + 2),
    ]


def test_gradients_over_several_batches_and_their_clipping(where: Where) -> None:
    work = net(nn.Tanh())
    optimizer = torch.optim.AdamW(work.model.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(3):
            work.model(*work.args).sum().backward()
        nn.utils.clip_grad_norm_(work.model.parameters(), 1.0)
        optimizer.step()

    found = where(replace(work, step=step))
    assert found("tanh_backward") == [("backward", "between", "autograd", 3)]
    assert ("backward", "a", "parameter", 4) in found("add_")  # weight and bias, from the second on
    assert ("backward", "b", "parameter", 4) in found("add_")
    assert found("_foreach_norm") == [("optimizer", "", "step", 1)]
    split = found("_foreach_addcdiv_")
    assert [(phase, path) for phase, path, *_ in split] == [("optimizer", "a"), ("optimizer", "b")]


def test_casts_of_autocast_are_of_the_module_that_made_them(where: Where) -> None:
    work = net(nn.Tanh())
    optimizer = torch.optim.SGD(work.model.parameters(), lr=0.1)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = work.model(*work.args).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    found = where(replace(work, step=step))
    casts = {(phase, path) for phase, path, *_ in found("copy_")}
    assert casts >= {("forward", "a"), ("forward", "b"), ("backward", "a"), ("backward", "b")}
    assert casts <= {(phase, path) for phase in ("forward", "backward") for path in ("a", "b", "")}
    assert found("addmm") == [("forward", "a", "range", 1), ("forward", "b", "range", 1)]


def test_work_of_hooks_is_of_the_module_they_are_on(where: Where) -> None:
    work = net(nn.Tanh())
    model: Any = work.model
    model.between.register_full_backward_hook(lambda _m, _i, grads: (grads[0].sin(),))
    model.a.register_forward_hook(lambda _m, _i, out: out.exp())
    model.a.weight.register_hook(lambda grad: grad.neg())
    model.b.bias.register_post_accumulate_grad_hook(lambda p: setattr(p, "seen", p.grad.log2()))
    found = where(work)
    assert found("sin") == [("backward", "between", "autograd", 1)]
    assert found("exp") == [("forward", "a", "range", 1)]
    assert found("neg") == [("backward", "a", "parameter", 1)]
    assert found("log2") == [("backward", "b", "parameter", 1)]


def test_a_retained_graph_run_twice_is_the_same_modules(where: Where) -> None:
    work = net(nn.Tanh())

    def step() -> None:
        loss = work.model(*work.args).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        work.model.zero_grad()

    found = where(replace(work, step=step))
    assert found("tanh_backward") == [("backward", "between", "autograd", 2)]
    assert found("mm") == [("backward", "a", "autograd", 2), ("backward", "b", "autograd", 4)]


def test_two_optimizers_keep_their_time_to_themselves(tmp_path: Path) -> None:
    work = net(nn.Tanh())
    parts = [
        torch.optim.SGD(module.parameters(), lr=0.1)
        for module in (work.model.get_submodule("a"), work.model.get_submodule("b"))
    ]

    def step() -> None:
        work.model(*work.args).sum().backward()
        for optimizer in parts:
            optimizer.step()
            optimizer.zero_grad()

    (tmp_path / "bundle").mkdir()
    record(replace(work, step=step), tmp_path / "bundle", TRAIN)
    profile = ingest(tmp_path / "bundle", tmp_path / "p.duckdb").profile
    found = rows(profile, "SELECT DISTINCT reason FROM kernel_module WHERE phase = 'optimizer'")
    assert found == [("optimizer",)]
