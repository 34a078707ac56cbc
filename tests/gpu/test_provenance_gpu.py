"""Each compiled graph tells of its own kernels, however many were compiled before it.

torch 2.11 keeps the kernel map of a backward until the next forward is compiled.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.providers.workload import Workload

pytestmark = pytest.mark.gpu


def kernels_of(width: int, folder: Path, device: torch.device) -> list[tuple[str, int]]:
    """(phase, number of kernels) of the graphs of a small model's training step."""
    folder.mkdir()
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh()).to(device)
    workload = Workload(name="toy", model=model, args=(torch.ones(2, width, device=device),))
    options = RecordOptions(
        device=str(device), phase="train", mode="compile", replay=False, compare_plain=False,
        warmup=1, steps=1, bare_samples=1, bare_seconds=0.0,
    )  # fmt: skip
    manifest = record(workload, folder, options)
    return [(graph.phase, len(graph.kernels)) for graph in manifest.graphs]


def test_a_graph_holds_no_kernel_of_one_compiled_before(
    tmp_path: Path, device: torch.device
) -> None:
    first = kernels_of(16, tmp_path / "first", device)
    assert [phase for phase, _ in first] == ["forward", "backward"]
    assert kernels_of(32, tmp_path / "second", device) == first
