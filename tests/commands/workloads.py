"""Workloads that the command line loads by ``module:function``."""

from __future__ import annotations

import torch
from torch import nn

from cb_trace.providers import Workload


class Pair(nn.Module):
    """Two layers that can be replayed, and one whose replay raises."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(torch.relu(self.first(x)))
        return y


def pair(rows: int = 4) -> Workload:
    return Workload("pair", Pair(), (torch.ones(rows, 8),), settings={"rows": rows})


def broken() -> Workload:
    raise ValueError("no data today")


def fails_in_the_step() -> Workload:
    return Workload("odd", Pair(), (torch.ones(4, 9),))


def stopped() -> Workload:
    raise KeyboardInterrupt
