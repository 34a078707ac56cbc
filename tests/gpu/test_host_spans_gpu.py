"""On a GPU: host times of a training step, whose backward runs on threads of autograd's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cb_trace.capture.tree import module_tree
from cb_trace.replay.host_spans import HostSpans, clock_cost
from cb_trace.replay.timing import open_window, synchronize

pytestmark = pytest.mark.gpu


class Net(nn.Module):
    """A block that the backward runs again, and one that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.once = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.once(checkpoint(self.again, x, use_reentrant=False))
        return out


def test_a_forward_that_the_backward_repeats_is_the_step_s(device: torch.device) -> None:
    model, x = Net().to(device), torch.randn(8, 64, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    spans = HostSpans(module_tree(model).modules, step, device)
    for _ in range(2):
        spans.block()
    assert spans.reason is None
    records = {record.path: record for record in spans.records()}
    assert {path: record.calls for path, record in records.items()} == {
        None: 1, "": 1, "again": 1, "again.0": 1, "again.1": 1, "once": 1,
    }  # fmt: skip
    assert median(records[None].ns) > median(records["once"].ns)  # backward and optimizer


def test_times_of_many_small_modules_sum_to_the_step_without_clocks(device: torch.device) -> None:
    parts = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Identity()) for _ in range(40)]
    model, x = nn.Sequential(*parts).to(device).eval(), torch.randn(2, 8, device=device)

    def step() -> object:
        with torch.no_grad():
            return model(x)

    def wall_ns() -> int:
        synchronize(device)
        begin = time.perf_counter_ns()
        step()
        return time.perf_counter_ns() - begin

    spans, walls = HostSpans(module_tree(model).modules, step, device), []
    for _ in range(6):
        walls += [wall_ns() for _ in range(12)]
        spans.block()
    sums = [sum(sample) for sample in zip(*(r.ns for r in spans.records()), strict=True)]
    print(f"{clock_cost()}, bare {median(walls)} ns, host spans {median(sums)} ns")
    assert 0.9 < median(sums) / median(walls) < 1.1


def test_a_window_tells_how_long_the_host_waited_for_the_device(device: torch.device) -> None:
    synchronize(device)
    spin: Callable[[int], None] = torch.cuda._sleep
    window = open_window(lambda: spin(20_000_000), device)  # some 10 ms
    assert window.ns > 5_000_000
    assert 0.5 * window.ns < window.waited_ns < window.ns + 1_000_000
