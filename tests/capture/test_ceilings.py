"""Ceilings on this machine at toy sizes, their file, and what a recording keeps of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cb_trace.accounts import CeilingRecord
from cb_trace.capture import ceilings
from cb_trace.capture.ceilings import measure_ceilings, read_ceilings, write_ceilings
from cb_trace.capture.counting import Counting
from cb_trace.errors import CbTraceError

CPU = torch.device("cpu")
RECORDS = [
    CeilingRecord(kind="matmul", value=2e12, unit="flop/s", dtype="bf16", shape="8×8×8"),
    CeilingRecord(kind="empty_event_pair", value=180.0, unit="ns"),
]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[CeilingRecord]:
    monkeypatch.setattr(
        ceilings, "_CPU_SHAPES", {"fp32": ((8, 8, 8), (16, 32, 64)), "bf16": ((8, 8, 8),)}
    )
    monkeypatch.setattr(ceilings, "_buffer_bytes", lambda _: 1 << 20)
    return measure_ceilings(CPU)


def test_every_kind_that_a_cpu_has_is_measured(measured: list[CeilingRecord]) -> None:
    assert [(c.kind, c.dtype, c.shape, c.unit) for c in measured] == [
        ("matmul", "fp32", "8×8×8", "flop/s"), ("matmul", "fp32", "16×32×64", "flop/s"),
        ("matmul", "bf16", "8×8×8", "flop/s"), ("copy", None, "1 MiB", "byte/s"),
        ("triad", None, "1 MiB", "byte/s"), ("empty_event_pair", None, None, "ns"),
        ("eager_op", None, None, "ns"),
    ]  # fmt: skip
    assert all(c.value > 0 for c in measured)


def test_the_best_of_a_kind_is_chosen(measured: list[CeilingRecord]) -> None:
    fp32 = [c for c in measured if c.dtype == "fp32"]
    assert [c.chosen for c in fp32] == [c.value == max(x.value for x in fp32) for c in fp32]
    assert all(c.chosen for c in measured if c.dtype != "fp32")


def test_settings_are_as_before(measured: list[CeilingRecord]) -> None:
    assert measured
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_file_of_ceilings_comes_back(tmp_path: Path) -> None:
    write_ceilings(tmp_path / "c.json", "A device", RECORDS)
    assert read_ceilings(tmp_path / "c.json", "A device") == RECORDS
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_ceilings_of_another_device_are_refused(tmp_path: Path) -> None:
    write_ceilings(tmp_path / "c.json", "A device", RECORDS)
    with pytest.raises(CbTraceError, match="is of A device, and this is Another"):
        read_ceilings(tmp_path / "c.json", "Another")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "other"}', '{"format": "cb-trace ceilings"}',
             '{"format": "cb-trace ceilings", "device_name": "d", "ceilings": [{"kind": "x"}]}'],
)  # fmt: skip
def test_what_is_no_ceilings_file_is_said_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CbTraceError, match="holds no ceilings"):
        read_ceilings(tmp_path / "c.json", "d")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match="cannot read"):
        read_ceilings(tmp_path / "c.json", "d")


def test_on_a_cpu_recording_notes_no_device_memory() -> None:
    counting = Counting(CPU)
    counting.warmed_up()
    assert counting.notes() == []
