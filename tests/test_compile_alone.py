"""A step compiled by Inductor on the CPU: from the model to what that promises and delivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from tests.capture.test_record import QUICK
from tests.test_conduct import rows

# PyTorch's own import of its compiler (2.13).
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.slow,  # the compiler's own time, module by module
]


class Scale(nn.Module):
    """Pointwise: alone the compiler has nothing to fuse it with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


def test_every_module_is_measured_both_ways_and_held_against_the_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), Scale()).eval()
    (tmp_path / "bundle").mkdir()
    options = replace(QUICK, mode="compile", replay=True, replay_seconds=60.0, compare_plain=False)
    record(Workload("tiny", model, (torch.randn(4, 16),)), tmp_path / "bundle", options)
    profile = ingest(tmp_path / "bundle", tmp_path / "tiny.duckdb").profile
    found = rows(
        profile,
        "SELECT path, innermost, eager_us > 0 AND compiled_us > 0, "
        "abs(promise_us - (eager_us - compiled_us)) < 0.001, "
        "abs(delivery_us - (eager_us - cost_us)) < 0.001 FROM compile_opportunity",
    )
    assert found == [
        ("", False, True, True, True), ("0", True, True, True, True), ("1", True, True, True, True),
    ]  # fmt: skip
    total = "SELECT sum(promise_us) FROM compile_opportunity WHERE innermost"
    (promised,) = rows(profile, f"SELECT round(({total}), 3)")[0]
    assert isinstance(promised, float)
