"""A small model that holds every kind of state a recording may disturb."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cb_trace.providers.workload import Workload


class Branch(nn.Module):
    """Keyword-only; in-place; random in training."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)

    def forward(self, *, x: Tensor, scale: float = 1.0) -> Tensor:
        out: Tensor = self.drop(self.act(self.lin(x))) * scale
        return out


class Everything(nn.Module):
    """Batch norm, buffers, tied weights, a module called twice, one never called, a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("mean", torch.full((8,), float("nan")), persistent=False)
        self.norm = nn.BatchNorm1d(8)
        self.branches = nn.ModuleList(Branch() for _ in range(2))
        self.twice = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.twice.weight
        self.never = nn.Linear(3, 3)
        self.alias = self.twice

    count: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        x = self.norm(x)
        for number, branch in enumerate(self.branches):
            x = branch(x=x, scale=0.5 + number)
        out: Tensor = self.tied(self.twice(self.twice(x)))
        return out


def everything() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A provider; in training mode."""
    return Everything(), (torch.randn(16, 8),)


def training() -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Tensor], Callable[[], object]]:
    """A provider whose step trains, gradients left where they are."""
    model = Everything()
    x = torch.randn(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> object:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return None

    return model, (), {}, step


def raising() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A provider whose model does not take its input."""
    return nn.Linear(3, 3), (torch.ones(1, 4),)


class Tower(nn.Module):
    """One side: a projection of its own sizes, then a head whose weight the other side shares."""

    def __init__(self, width: int, head: nn.Linear | None) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 24)
        self.act = nn.GELU()
        self.head = nn.Linear(24, 16)
        if head is not None:
            self.head.weight = head.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.act(self.inner(x)))
        return out


class Block(nn.Module):
    """What is checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 40)
        self.down = nn.Linear(40, 16)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(torch.relu(self.up(x)))
        return out


class Towers(nn.Module):
    """Two towers with a shared weight, a module called twice, one frozen, one checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.left = Tower(12, None)
        self.right = Tower(20, self.left.head)
        self.twice = nn.Linear(16, 16)
        self.frozen = nn.Linear(16, 16)
        self.frozen.requires_grad_(False)
        self.again = Block()
        self.out = nn.Linear(16, 3)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x = self.left(a) * self.right(b)
        x = self.frozen(self.twice(self.twice(x)))
        # Nothing random in it, and a CUDA graph cannot capture the reading of a generator's state.
        x = checkpoint(self.again, x, use_reentrant=False, preserve_rng_state=False)
        out: Tensor = self.out(x)
        return out


def towers() -> Workload:
    """A provider with its own loss and optimizer."""
    torch.manual_seed(3)
    return Workload(
        "towers",
        Towers(),
        (torch.randn(48, 12), torch.randn(48, 20)),
        loss=lambda out: out.square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    )


class Coded(nn.Module):
    """Called through methods besides forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def encode(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        out: Tensor = self.inner(x) * scale
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x)


class Caller(nn.Module):
    """Calls ``encode`` of its child, never its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.coder = Coded()
        self.used = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.coder.encode(x, scale=2.0), self.used.weight)


def caller_in_bf16() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A provider whose model is of another dtype by itself, with a method to wrap."""
    return Caller().bfloat16(), (torch.ones(2, 4, dtype=torch.bfloat16),)
