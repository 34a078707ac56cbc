"""Counted work from a bundle to the tables, with what its context trace adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cb_trace.accounts import CeilingRecord, CostRecord, MemoryRecord
from cb_trace.conduct import ingest
from cb_trace.errors import CbTraceError
from cb_trace.store import open_profile
from tests.bundles import run_record, write_net_bundle

FC = CostRecord(
    path="fc", phase="forward", call_index=0, calls=1, flops=3_000_000_000,
    flops_extended=3_000_000_000, bytes_compulsory=12_000_000, bytes_requested=15_000_000,
    flops_by_dtype={"bf16": 2_000_000_000, "tf32": 1_000_000_000},
)  # fmt: skip
NET = CostRecord(
    path="", phase="forward", call_index=0, calls=1, flops=3_000_000_000,
    flops_extended=3_000_001_000, bytes_compulsory=12_000_000, bytes_requested=16_000_000,
    uncounted={"aten::add": 1}, flops_by_dtype={"bf16": 3_000_000_000},
)  # fmt: skip
HELD = MemoryRecord(path="fc", phase="forward", scope="context", peak_bytes=64,
                    saved_for_backward_bytes=32, output_bytes=16)  # fmt: skip
MATMUL = CeilingRecord(kind="matmul", value=200e12, unit="flop/s", dtype="bf16", shape="8×8×8")


def rows(folder: Path, sql: str, **changes: Any) -> list[tuple[Any, ...]]:
    given = {"costs": [NET, FC], "memories": [HELD], "ceilings": [MATMUL]} | changes
    write_net_bundle(folder / "net", **given)
    report = ingest(folder / "net", folder / "net.duckdb")
    with open_profile(report.profile) as connection:
        return connection.execute(sql).fetchall()


def test_the_linear_on_the_h200(tmp_path: Path) -> None:
    """3 GFLOP in a kernel of 30 µs are 100 TFLOP/s: a tenth of the dense peak, half of measured."""
    found = rows(
        tmp_path,
        "SELECT path, flops_per_s, mfu_ratio, matmul_ratio, dtype, bound, flag FROM roofline "
        "ORDER BY path DESC",
    )
    assert found == [
        ("fc", 1e14, pytest.approx(100 / 989.5), 0.5, "bf16", "compute", None),
        ("", 6e13, pytest.approx(60 / 989.5), pytest.approx(0.3), "bf16", None,
         "operators that no formula covers, 40 % of its kernel time: aten::add"),
    ]  # fmt: skip


def test_tables_hold_what_the_manifest_said(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        "SELECT flops, dtype, dtype_ratio, uncounted_ops, bytes_compulsory, bytes_requested "
        "FROM cost WHERE module_id = 1",
    )
    assert found == [(3_000_000_000, "bf16", pytest.approx(2 / 3), 0, 12_000_000, 15_000_000)]
    with open_profile(tmp_path / "net.duckdb") as profile:

        def ask(sql: str) -> list[tuple[Any, ...]]:
            return profile.execute(sql).fetchall()

        uncounted = ask("SELECT module_id, name, calls, kernel_ns FROM uncounted_op")
        held = ask(
            "SELECT peak_context_bytes, saved_context_bytes, output_bytes FROM memory_by_module "
            "WHERE path = 'fc'"
        )
        peaks = ask(
            "SELECT source, value FROM ceiling WHERE kind = 'matmul' AND dtype = 'bf16' "
            "ORDER BY value"
        )
    assert uncounted == [(0, "aten::add", 1, 20_000)]
    assert held == [(64, 32, 16)]
    assert peaks == [("measured", 2e14), ("NVIDIA H200 Tensor Core GPU datasheet", 989.5e12)]


def test_a_recording_from_before_has_no_roofline(tmp_path: Path) -> None:
    found = rows(tmp_path, "SELECT * FROM roofline", costs=[], memories=[], ceilings=[])
    assert found == []


def test_an_unknown_device_brings_no_datasheet(tmp_path: Path) -> None:
    run = run_record(device_name="Some GPU")
    assert rows(tmp_path, "SELECT DISTINCT source FROM ceiling", run=run) == [("measured",)]


def test_a_cost_of_no_module_is_said_in_one_line(tmp_path: Path) -> None:
    odd = CostRecord(path="gone", phase="forward", call_index=0, calls=1, flops=1,
                     flops_extended=1, bytes_compulsory=0, bytes_requested=0)  # fmt: skip
    with pytest.raises(CbTraceError, match="contradicts itself: 'gone'"):
        rows(tmp_path, "", costs=[odd])


def test_a_number_that_fits_no_column_is_said_in_one_line(tmp_path: Path) -> None:
    odd = CostRecord(path="", phase="forward", call_index=0, calls=1, flops=2**64,
                     flops_extended=1, bytes_compulsory=0, bytes_requested=0)  # fmt: skip
    with pytest.raises(CbTraceError, match="contradicts itself"):
        rows(tmp_path, "", costs=[odd])
