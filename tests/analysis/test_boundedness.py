"""Kernel time by class and by uncounted operator, on hand-made rows."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from cb_trace.analysis.boundedness import kernel_class, uncounted_time
from tests.frames import frame

NET, BLOCK, FC = range(3)
MODULE = frame(
    "module",
    {"module_id": NET, "path": ""},
    {"module_id": BLOCK, "path": "b", "parent_id": NET},
    {"module_id": FC, "path": "b.fc", "parent_id": BLOCK},
)


def kernels(*rows: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The kernels, one a row, and all of each given to the row's ``of`` (FC by default)."""
    held = [
        {"kernel_id": k, "kind": "kernel", "name": "gemm", "step": 0, "dur_ns": 10_000,
         "launch_id": k, "grid": "200,1,1", **{n: v for n, v in row.items() if n != "of"}}
        for k, row in enumerate(rows)
    ]  # fmt: skip
    shares = [
        {"kernel_id": k, "module_id": row.get("of", FC), "phase": "forward",
         "ns": held[k]["dur_ns"]}
        for k, row in enumerate(rows)
    ]  # fmt: skip
    return frame("kernel", *held), frame("kernel_module", *shares)


def classes(*rows: dict[str, Any], processors: int | None = 132, steps: int = 1) -> dict[Any, Any]:
    found = kernel_class(*kernels(*rows), MODULE, steps=steps, processors=processors, run_id="r")
    return {(m, phase): tuple(ns) for _, m, phase, *ns in found.iter_rows()}


@pytest.mark.parametrize(
    ("row", "short_ns"),
    [
        ({}, 0),
        ({"dur_ns": 4_999}, 4_999),
        ({"dur_ns": 5_000}, 0),
        ({"grid": "131,1,1"}, 10_000),
        ({"grid": "66,2,1"}, 0),
        ({"grid": None}, 0),
        ({"grid": "odd"}, 0),
    ],
)
def test_a_kernel_is_short_by_time_or_by_wave(row: dict[str, Any], short_ns: int) -> None:
    assert classes(row)[FC, "forward"][2] == short_ns


def test_without_the_device_only_time_tells() -> None:
    assert classes({"grid": "1,1,1"}, processors=None)[FC, "forward"][2] == 0


def test_collectives_are_told_by_name() -> None:
    rows = [{"name": "ncclDevKernel_AllReduce_Sum_bf16"}, {"name": "gemm"}]
    assert classes(*rows)[FC, "forward"] == (20_000, 10_000, 0)


def test_parents_hold_their_children_and_steps_are_averaged() -> None:
    found = classes({}, {"of": BLOCK}, {"of": NET, "step": 1}, {"step": None}, steps=2)
    assert {key: ns[0] for key, ns in found.items()} == {
        (FC, "forward"): 5_000, (BLOCK, "forward"): 10_000, (NET, "forward"): 15_000,
        (FC, "step"): 5_000, (BLOCK, "step"): 10_000, (NET, "step"): 15_000,
    }  # fmt: skip


def uncounted(*names: str, module_id: int = FC) -> pl.DataFrame:
    rows = [{"run_id": "r", "module_id": module_id, "phase": "forward", "name": name, "calls": 1}
            for name in names]  # fmt: skip
    return frame("uncounted_op", *rows)


def spent(table: pl.DataFrame, *rows: dict[str, Any], ops: list[tuple[str, int, int]]) -> Any:
    kernel, shares = kernels(*rows)
    launch = frame(
        "launch", *({"launch_id": k, "thread": 0, "start_ns": 100 * k} for k in range(len(rows)))
    )
    op = frame(
        "op", *({"name": n, "thread": 0, "start_ns": start, "dur_ns": ns} for n, start, ns in ops)
    )
    found = uncounted_time(
        table, kernel=kernel, launch=launch, op=op, kernel_module=shares, module=MODULE, steps=1
    )
    return {(m, name): ns for m, name, ns in found.select("module_id", "name", "kernel_ns").rows()}


def test_kernels_launched_inside_the_operator_count_at_any_depth() -> None:
    ops = [("my::op", 90, 20), ("aten::mul", 95, 10), ("aten::add", 190, 20)]
    assert spent(uncounted("my::op", "never::ran"), {}, {}, {}, ops=ops) == {
        (FC, "my::op"): 10_000, (FC, "never::ran"): 0,
    }  # fmt: skip


def test_the_end_of_an_operator_is_not_inside_it() -> None:
    assert spent(uncounted("my::op"), {}, {}, ops=[("my::op", 90, 10)])[FC, "my::op"] == 0


def test_a_parent_has_the_time_of_operators_below_it() -> None:
    ops = [("my::op", 0, 50)]
    assert spent(uncounted("my::op", module_id=NET), {}, ops=ops) == {(NET, "my::op"): 10_000}


def test_cpu_kernels_have_no_launch() -> None:
    row = {"kind": "cpu", "launch_id": None, "thread": 0, "start_ns": 10, "dur_ns": 7}
    assert spent(uncounted("my::op"), row, ops=[("my::op", 0, 50)]) == {(FC, "my::op"): 7}


def test_nothing_uncounted_is_an_empty_table() -> None:
    assert spent(uncounted(), {}, ops=[("aten::add", 0, 50)]) == {}
