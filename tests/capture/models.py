"""A small model that holds every kind of state a recording may disturb."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
