"""Workloads that the command line loads by ``module:function``."""

from __future__ import annotations

import os
import sys
import threading

import torch
from torch import Tensor, nn

from cb_trace.providers import Workload


class Pair(nn.Module):
    """Two layers that can be replayed, and one whose replay raises."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(torch.relu(self.first(x)))
        return y


def pair(rows: int = 4) -> Workload:
    return Workload("pair", Pair(), (torch.ones(rows, 8),), settings={"rows": rows})


def broken() -> Workload:
    raise ValueError("no data today")


def fails_in_the_step() -> Workload:
    return Workload("odd", Pair(), (torch.ones(4, 9),))


def leaves() -> Workload:
    """Goes to another working folder and stays there."""
    model = Pair()
    model.second.register_forward_hook(lambda *_: os.chdir("/"))
    return Workload("leaves", model, (torch.ones(4, 8),))


def exits() -> Workload:
    raise SystemExit(0)


def exits_in_the_step() -> Workload:
    model = Pair()
    model.second.register_forward_hook(lambda *_: sys.exit("enough"))
    return Workload("exits", model, (torch.ones(4, 8),))


def without_data() -> Workload:
    return Workload("meta", nn.Linear(2, 2, device="meta"), (torch.ones(1, 2),))


def stopped() -> Workload:
    raise KeyboardInterrupt


class Waiting(nn.Module):
    """Says that it runs, in the step or alone, and never comes to an end."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.inner = where, Inner(where)

    def forward(self, x: Tensor) -> Tensor:
        if self.where == "step":
            _wait()
        Inner.in_step = True
        try:
            out: Tensor = self.inner(x)
        finally:
            Inner.in_step = False
        return out


class Inner(nn.Module):
    in_step = False

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def forward(self, x: Tensor) -> Tensor:
        if self.where == "alone" and not Inner.in_step:
            _wait()
        return x * 2


def _wait() -> None:
    print("waiting", file=sys.stderr, flush=True)
    threading.Event().wait()


def waiting(where: str = "step") -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Waiting(where), (torch.ones(3),)
