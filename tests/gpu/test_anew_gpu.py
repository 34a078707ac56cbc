"""The bare step as a CUDA graph is timed in several captures, which live side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.capture.anew import Anew
from cb_trace.capture.bare import BLOCKS, CAPTURES
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.providers.workload import Workload
from cb_trace.replay.graph import GraphCapture, capture_step

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)


def workload() -> Workload:
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).to(DEVICE)
    return Workload("toy", model, (torch.randn(256, 512, device=DEVICE),), {})


def test_blocks_of_the_graph_are_of_several_captures(tmp_path: Path) -> None:
    manifest = record(
        workload(),
        tmp_path,
        RecordOptions(device="cuda", replay=False, steps=1),
        provider=None,
    )
    blocks = {s.deployment: len(s.blocks) for s in manifest.step_samples if s.kind == "bare"}
    assert blocks == {"eager": BLOCKS, "graph": BLOCKS * CAPTURES}


def test_another_capture_lies_elsewhere_until_there_is_no_room() -> None:
    model, (x,) = workload().model, workload().args

    def step() -> object:
        with torch.no_grad():
            return model(x)

    first = capture_step(step, DEVICE)
    again = Anew(first, lambda: capture_step(step, DEVICE, again=True), DEVICE)
    one, other = again(), again()
    assert one is not None
    assert other is not None
    assert one is not other
    one()
    other()
    torch.cuda.synchronize(DEVICE)
    whole = torch.cuda.get_device_properties(DEVICE).total_memory
    large = GraphCapture(first.graph, pool_bytes=whole)
    assert Anew(large, lambda: capture_step(step, DEVICE, again=True), DEVICE)() is None
    failed = Anew(first, lambda: GraphCapture(reason="cannot be captured: it is a test"), DEVICE)
    assert failed() is None
