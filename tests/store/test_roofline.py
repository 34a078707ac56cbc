"""The roofline and memory views on hand-made rows: literal answers.

The device does 100 TFLOP/s of bf16 by its datasheet and 80 measured, 4 TB/s and 3.2. The step and
its modules are those of ``profiles``; head (10 µs, all busy) is the module under test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cb_trace.store import named_query
from tests.store.profiles import (
    BLOCK_0,
    FC_0,
    FC_1,
    HEAD,
    NET,
    Rows,
    base_rows,
    opened,
    part,
)

BF16_SHEET, BF16_MEASURED = 100e12, 80e12


def cost(module_id: int, **more: Any) -> dict[str, Any]:
    return {"run_id": "r", "module_id": module_id, "phase": "forward", "call_index": 0, "calls": 1,
            "flops": 0, "flops_extended": 0, "uncounted_ops": 0, "bytes_compulsory": 0,
            "bytes_requested": 0, **more}  # fmt: skip


def matmul(module_id: int, flops: int, **more: Any) -> dict[str, Any]:
    return cost(module_id, flops=flops, flops_extended=flops, dtype="bf16", dtype_ratio=1.0, **more)


def ceilings(*, sheet: bool = True, measured: bool = True) -> Rows:
    rows: Rows = []
    if sheet:
        rows += [
            {"source": "sheet", "kind": "matmul", "dtype": "bf16", "value": BF16_SHEET},
            {"source": "sheet", "kind": "memory", "value": 4e12},
        ]
    if measured:
        rows += [
            {"source": "measured", "kind": "matmul", "dtype": "bf16", "value": 60e12},
            {"source": "measured", "kind": "matmul", "dtype": "bf16", "value": BF16_MEASURED},
            {"source": "measured", "kind": "copy", "value": 3.0e12},
            {"source": "measured", "kind": "triad", "value": 3.2e12},
        ]
    return [{"run_id": "r", **row} for row in rows]


def kernels(module_id: int, **more: Any) -> dict[str, Any]:
    return {"run_id": "r", "module_id": module_id, "phase": "forward", "kernel_ns": 10_000,
            "communication_ns": 0, "short_ns": 0, **more}  # fmt: skip


def roofline(folder: Path, rows: dict[str, Rows], *columns: str, path: str = "head") -> Any:
    tables = base_rows() | {"ceiling": ceilings()} | rows
    with opened(folder / "p.duckdb", tables) as profile:
        found = profile.execute(
            f"SELECT {', '.join(columns)} FROM roofline WHERE path = ? AND deployment = 'eager'",
            [path],
        ).fetchall()
    assert len(found) == 1
    return found[0] if len(columns) > 1 else found[0][0]


def test_rates_intensity_and_mfu(tmp_path: Path) -> None:
    # 600 MFLOP and 4 MB in 10 µs: 60 TFLOP/s and 0.4 TB/s
    rows = {"cost": [matmul(HEAD, 600_000_000, bytes_compulsory=4_000_000,
                            bytes_requested=6_000_000)]}  # fmt: skip
    assert roofline(
        tmp_path, rows, "flops_per_s", "bytes_per_s", "intensity", "reuse", "mfu_ratio",
        "matmul_ratio", "bandwidth_ratio", "copy_ratio", "dtype", "flag",
    ) == (6e13, 4e11, 150.0, 1.5, 0.6, 0.75, 0.1, 0.125, "bf16", None)  # fmt: skip


def test_a_matmul_near_its_ceiling_is_bound_by_compute(tmp_path: Path) -> None:
    rows = {"cost": [matmul(HEAD, 600_000_000, bytes_compulsory=4_000_000)]}
    assert roofline(tmp_path, rows, "bound", "bound_why") == (
        "compute", "75 % of the matmul ceiling",
    )  # fmt: skip


def test_a_copy_near_its_ceiling_is_bound_by_bandwidth(tmp_path: Path) -> None:
    rows = {"cost": [cost(HEAD, bytes_compulsory=24_000_000, bytes_requested=24_000_000)]}
    assert roofline(tmp_path, rows, "bound", "bound_why", "mfu_ratio") == (
        "bandwidth", "75 % of the memory ceiling", None,
    )  # fmt: skip


def test_far_from_both_ceilings_there_is_no_bound(tmp_path: Path) -> None:
    rows = {"cost": [matmul(HEAD, 80_000_000, bytes_compulsory=3_200_000)]}
    assert roofline(tmp_path, rows, "bound", "bound_why") == (
        None, "none is near: 10 % of the matmul ceiling, 10 % of the memory ceiling",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("classes", "bound"),
    [({"short_ns": 5_000}, "latency"), ({"short_ns": 4_999}, None),
     ({"communication_ns": 5_000, "short_ns": 9_000}, "communication")],
)  # fmt: skip
def test_short_kernels_and_collectives(
    tmp_path: Path, classes: dict[str, int], bound: str | None
) -> None:
    rows = {"cost": [matmul(HEAD, 80_000_000)], "kernel_class": [kernels(HEAD, **classes)]}
    assert roofline(tmp_path, rows, "bound") == bound


@pytest.mark.parametrize(
    ("kind", "bound"),
    [("idle_host", "host"), ("idle_sync", "sync"), ("idle_copy", "sync"), ("idle_gap", "compute")],
)
def test_half_of_the_cost_idle_decides(tmp_path: Path, kind: str, bound: str) -> None:
    rows = base_rows() | {"cost": [matmul(HEAD, 600_000_000)]}
    rows["partition"] += [part(HEAD, kind, 10_000)]
    assert roofline(tmp_path, rows, "bound") == bound


def test_an_impossible_mfu_is_an_error_and_no_number(tmp_path: Path) -> None:
    rows = {"cost": [matmul(HEAD, 1_040_000_000)]}
    assert roofline(tmp_path, rows, "mfu_ratio", "matmul_ratio", "bound", "flag") == (
        None, None, None,
        "error: 104 % of the datasheet's peak; count, time or peak is wrong",
    )  # fmt: skip


def test_an_unknown_device_has_no_mfu(tmp_path: Path) -> None:
    rows = {"cost": [matmul(HEAD, 600_000_000)], "ceiling": ceilings(sheet=False)}
    assert roofline(tmp_path, rows, "mfu_ratio", "bandwidth_ratio", "matmul_ratio", "bound") == (
        None, None, 0.75, "compute",
    )  # fmt: skip


def test_without_any_ceiling_only_rates_are_known(tmp_path: Path) -> None:
    rows: dict[str, Rows] = {"cost": [matmul(HEAD, 600_000_000)], "ceiling": []}
    assert roofline(tmp_path, rows, "flops_per_s", "mfu_ratio", "bound", "bound_why") == (
        6e13, None, None, "no ceiling of this device is known",
    )  # fmt: skip


def test_no_flops_are_never_zero_mfu(tmp_path: Path) -> None:
    rows = {"cost": [cost(HEAD, flops_extended=1_000)]}
    assert roofline(tmp_path, rows, "mfu_ratio", "flag") == (
        None, "no operator that torch's counter knows: see flops_extended",
    )  # fmt: skip


def test_uncounted_operators_are_flagged_with_their_time(tmp_path: Path) -> None:
    rows = {
        "cost": [matmul(HEAD, 600_000_000, uncounted_ops=3)],
        "kernel_class": [kernels(HEAD)],
        "uncounted_op": [
            {"run_id": "r", "module_id": HEAD, "phase": "forward", "name": name, "calls": calls,
             "kernel_ns": ns}
            for name, calls, ns in (("my::small", 2, 500), ("my::large", 1, 2_000))
        ],
    }  # fmt: skip
    assert roofline(tmp_path, rows, "mfu_ratio", "uncounted_calls", "uncounted_share", "flag") == (
        0.6, 3, 0.25,
        "operators that no formula covers, 25 % of its kernel time: my::large, my::small",
    )  # fmt: skip


def test_cpu_time_is_scaled_to_the_bare_step(tmp_path: Path) -> None:
    rows = base_rows() | {"cost": [matmul(HEAD, 600_000_000)]}
    rows["run"][0] |= {"device_type": "cpu", "dilation": 2.0}
    assert roofline(tmp_path, rows, "busy_us", "flops_per_s") == (5.0, 1.2e14)


def test_a_fused_kernel_counts_by_its_share(tmp_path: Path) -> None:
    rows = base_rows() | {"cost": [matmul(HEAD, 600_000_000)]}
    rows["module_context"][5] |= {"busy_ns": 10_000, "kernel_ns": 5_000}
    assert roofline(tmp_path, rows, "busy_us") == 5.0


def test_a_container_has_the_work_of_what_it_holds(tmp_path: Path) -> None:
    rows = {
        "cost": [
            matmul(BLOCK_0, 100, bytes_compulsory=10),
            matmul(FC_0, 90, bytes_compulsory=8),  # inside block 0: not twice
            matmul(FC_1, 40, bytes_compulsory=4, calls=2),
        ]
    }
    columns = ("calls", "flops", "bytes_compulsory")
    assert roofline(tmp_path, rows, *columns, path="blocks") == (3, 180.0, 18.0)


def test_calls_of_other_sizes_sum_up(tmp_path: Path) -> None:
    rows = {"cost": [matmul(HEAD, 100, calls=3), matmul(HEAD, 7, call_index=3)]}
    assert roofline(tmp_path, rows, "calls", "flops") == (4, 307.0)


def test_the_step_leaves_recomputed_flops_out_of_mfu(tmp_path: Path) -> None:
    rows = base_rows() | {
        "cost": [matmul(HEAD, n, phase=phase, bytes_compulsory=n)
                 for phase, n in (("forward", 100), ("backward", 200), ("recompute", 100))],
    }  # fmt: skip
    rows["module_context"] += [
        {**row, "phase": "step"} for row in rows["module_context"] if row["module_id"] == HEAD
    ]
    tables = rows | {"ceiling": ceilings()}
    with opened(tmp_path / "p.duckdb", tables) as profile:
        found = profile.execute(
            "SELECT phase, flops, bytes_compulsory, calls FROM roofline WHERE path = 'head'"
        ).fetchall()
    assert {phase: figures for phase, *figures in found} == {
        "forward": [100.0, 100.0, 1], "step": [300.0, 400.0, 1],
    }  # fmt: skip


def test_memory_stands_beside_parameters(tmp_path: Path) -> None:
    rows = base_rows()
    rows["module"][HEAD] |= {"parameter_bytes": 400, "buffer_bytes": 8}
    held = {"run_id": "r", "module_id": HEAD, "phase": "forward", "output_bytes": 64}
    rows["memory"] = [
        {**held, "scope": "context", "peak_bytes": 128, "saved_for_backward_bytes": 32},
        {**held, "scope": "isolated", "peak_bytes": 96, "saved_for_backward_bytes": 16},
        {**held, "scope": "isolated", "phase": "backward", "peak_bytes": 72},  # alone only
        {**held, "module_id": NET, "scope": "context", "peak_bytes": 500},
    ]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute(
            "SELECT * EXCLUDE (run_id, class) FROM memory_by_module WHERE path IN ('head', '')"
        ).fetchall()
        first = profile.sql(named_query("memory").sql).fetchall()[0][0]
    assert found == [
        ("", "forward", None, None, 500, None, None, None, 64),
        ("head", "backward", 400, 8, None, 72, None, None, 64),
        ("head", "forward", 400, 8, 128, 96, 32, 16, 64),
    ]
    assert first == ""


def test_the_query_lists_the_costliest_first(tmp_path: Path) -> None:
    tables = base_rows() | {
        "cost": [matmul(HEAD, 600_000_000), matmul(FC_1, 300_000_000)],
        "ceiling": ceilings(),
    }
    with opened(tmp_path / "p.duckdb", tables) as profile:
        profile.execute("SET VARIABLE n = 3")
        found = profile.sql(named_query("roofline").sql).fetchall()
    # the containers hold the work of what is in them
    assert [row[1] for row in found] == ["", "blocks", "blocks.1"]
    assert [row[6] for row in found] == [0.9, 0.3, 0.3]
