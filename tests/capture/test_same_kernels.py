"""A recording says so where looking changed what runs, or where that cannot be told."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cb_trace.bundle import Note
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.cli import run
from cb_trace.providers.workload import Workload
from tests.capture.test_record import QUICK

CHANGED, VARY = "instrumentation changed the kernels", "kernels vary"


class Noticing(nn.Module):
    """Does more while somebody's hook is on it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return torch.cos(out) if self.inner._forward_hooks else out


class Fickle(nn.Module):
    """Does more with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = count()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(next(self.calls)):
            x = torch.sin(x)
        return x


def noticing() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A provider."""
    return Noticing(), (torch.ones(2, 4),)


def compared(model: nn.Module, folder: Path, options: RecordOptions) -> list[Note]:
    workload = Workload("m", model, (torch.ones(2, 4),))
    manifest = record(workload, folder, replace(options, replay=False))
    return [note for note in manifest.notes if note.reason in {CHANGED, VARY}]


@pytest.mark.parametrize("phase", ["forward", "train"])
def test_a_model_that_notices_is_noted(phase: str, tmp_path: Path) -> None:
    options = replace(QUICK, phase=phase)  # type: ignore[arg-type]
    (note,) = compared(Noticing(), tmp_path, options)
    assert note.reason == CHANGED
    assert "aten::cos: 2 recorded, 0 plain" in note.detail
    assert note.count == 2 or phase == "train"


def test_nobody_compares_where_that_is_not_wanted(tmp_path: Path) -> None:
    assert compared(Noticing(), tmp_path, replace(QUICK, compare_plain=False)) == []


def test_a_step_that_varies_by_itself_is_no_fault_of_ours(tmp_path: Path) -> None:
    (note,) = compared(Fickle(), tmp_path, QUICK)
    assert note.reason == VARY


def test_other_models_have_no_note(tmp_path: Path) -> None:
    assert compared(nn.Sequential(nn.Linear(4, 4), nn.Dropout()), tmp_path, QUICK) == []


def test_it_is_said_while_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["capture", f"{__name__}:noticing", "--device", "cpu", "--steps", "1"]
    assert run([*arguments, "-o", str(tmp_path / "b.zip")]) == 0
    assert f"note: {CHANGED}: aten::cos: 1 recorded, 0 plain" in capsys.readouterr().err
