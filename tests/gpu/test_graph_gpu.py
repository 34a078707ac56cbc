"""A capture that breaks leaves the device, and its random numbers, as they were."""

from __future__ import annotations

import pytest
import torch

from cb_trace.replay.graph import capture_graph

pytestmark = pytest.mark.gpu


def test_a_broken_capture_says_why_and_leaves_random_numbers_alone(device: torch.device) -> None:
    source = torch.ones(8, device=device)
    torch.manual_seed(3)
    expected = torch.rand(4, device=device)
    torch.manual_seed(3)

    def reads_back() -> float:
        return float(source.sum().item())  # a copy to the host cannot be captured

    captured = capture_graph(reads_back, device)
    assert captured.graph is None
    assert captured.reason is not None
    assert "previous error" not in captured.reason
    assert torch.equal(torch.rand(4, device=device), expected)
    again = capture_graph(lambda: source.mul_(1.0), device)
    assert again.reason is None
