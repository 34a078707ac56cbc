"""kernel_diff: a module's kernels in context against its kernels alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.store.profiles import BLOCK_0, FC_0, Rows, base_rows, opened, replay

OPS = {0: "aten::mm", 1: "aten::gelu", 2: "aten::copy_"}
Kernel = tuple[int | None, str, int]  # operator, name, duration


def traced(context: dict[int, list[Kernel]], alone: list[list[Kernel]]) -> dict[str, Rows]:
    """Context kernels by module in each of two steps; alone, iterations of a replay of Block 0."""
    kernels: Rows = []
    parts: Rows = []
    played: Rows = []
    for step in (0, 1):
        for module_id, listed in context.items():
            for listed_kernel in listed:
                kernels.append(row(len(kernels), 0, listed_kernel, step=step))
                parts.append({"kernel_id": len(kernels) - 1, "module_id": module_id, "share": 1.0,
                              "phase": "forward", "ns": listed_kernel[2]})  # fmt: skip
    for iteration, listed in enumerate(alone):
        for position, listed_kernel in enumerate(listed):
            kernels.append(row(len(kernels), 1, listed_kernel))
            played.append({"replay_id": 0, "iteration": iteration, "position": position,
                           "kernel_id": len(kernels) - 1})  # fmt: skip
    return base_rows() | {
        "trace": [{"trace_id": 0, "run_id": "r", "role": "context"},
                  {"trace_id": 1, "run_id": "r", "role": "isolated"}],
        "step": [{"trace_id": 0, "step": 0}, {"trace_id": 0, "step": 1}],
        "op": [{"op_id": k, "trace_id": 0, "name": name} for k, name in OPS.items()],
        "kernel": kernels, "kernel_module": parts, "replay_kernel": played,
        "replay": [replay(0, BLOCK_0, 1_000)],
    }  # fmt: skip


def row(kernel_id: int, trace_id: int, kernel: Kernel, **more: Any) -> dict[str, Any]:
    return {"kernel_id": kernel_id, "trace_id": trace_id, "op_id": kernel[0], "name": kernel[1],
            "dur_ns": kernel[2], "start_ns": kernel_id * 100_000, **more}  # fmt: skip


def diff(tmp_path: Path, rows: dict[str, Rows]) -> list[tuple[Any, ...]]:
    with opened(tmp_path / "p.duckdb", rows) as profile:
        return profile.execute(
            "SELECT op, status, context_kernel, isolated_kernel, context_kernels, "
            "isolated_kernels, context_us, isolated_us FROM kernel_diff WHERE path = 'blocks.0'"
        ).fetchall()


def test_the_four_cases_children_included(tmp_path: Path) -> None:
    context: dict[int, list[Kernel]] = {
        FC_0: [(0, "gemm_a", 4_000), (2, "cast", 1_000)],
        BLOCK_0: [(1, "gelu", 2_000)],
    }
    alone: list[Kernel] = [(0, "gemm_b", 5_000), (1, "gelu", 1_000), (None, "Memset", 500)]
    assert diff(tmp_path, traced(context, [alone, alone])) == [
        ("aten::mm", "changed", "gemm_a", "gemm_b", 1.0, 1.0, 4.0, 5.0),
        ("aten::copy_", "only here", "cast", None, 1.0, 0.0, 1.0, 0.0),
        ("aten::gelu", "same", "gelu", "gelu", 1.0, 1.0, 2.0, 1.0),
        (None, "only there", None, "Memset", 0.0, 1.0, 0.0, 0.5),
    ]


def test_a_kernel_that_runs_more_often_on_one_side_is_split(tmp_path: Path) -> None:
    context: dict[int, list[Kernel]] = {FC_0: [(0, "gemm", 4_000), (0, "gemm", 6_000)]}
    assert diff(tmp_path, traced(context, [[(0, "gemm", 3_000)]])) == [
        ("aten::mm", "same", "gemm", "gemm", 1.0, 1.0, 4.0, 3.0),
        ("aten::mm", "only here", "gemm", None, 1.0, 0.0, 6.0, 0.0),
    ]


def test_leftovers_of_one_operator_pair_in_order(tmp_path: Path) -> None:
    context: dict[int, list[Kernel]] = {FC_0: [(0, "a1", 1_000), (0, "a2", 2_000)]}
    alone: list[Kernel] = [(0, "b1", 3_000), (0, "b2", 4_000)]
    assert [r[1:4] for r in diff(tmp_path, traced(context, [alone]))] == [
        ("changed", "a1", "b1"),
        ("changed", "a2", "b2"),
    ]


def test_only_replayed_modules_have_rows(tmp_path: Path) -> None:
    rows = traced({FC_0: [(0, "gemm", 4_000)]}, [[(0, "gemm", 4_000)]])
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute("SELECT DISTINCT path FROM kernel_diff").fetchall()
    assert found == [("blocks.0",)]


def test_another_grid_is_another_choice_of_kernel(tmp_path: Path) -> None:
    rows = traced({FC_0: [(0, "gemm", 4_000)]}, [[(0, "gemm", 3_000)]])
    for kernel in rows["kernel"]:
        kernel |= {"grid": "[8, 1, 1]" if kernel["trace_id"] else "[4, 1, 1]", "block": "[1, 1, 1]"}
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute(
            "SELECT status, context_kernel, isolated_kernel, context_grid, isolated_grid "
            "FROM kernel_diff WHERE path = 'blocks.0'"
        ).fetchall()
    assert found == [("changed", "gemm", "gemm", "[4, 1, 1]", "[8, 1, 1]")]


def test_a_kernel_without_operator_matches_by_name(tmp_path: Path) -> None:
    context: dict[int, list[Kernel]] = {FC_0: [(None, "gemm", 4_000), (None, "odd", 1_000)]}
    assert diff(tmp_path, traced(context, [[(0, "gemm", 3_000)]])) == [
        ("aten::mm", "same", "gemm", "gemm", 1.0, 1.0, 4.0, 3.0),
        (None, "only here", "odd", None, 1.0, 0.0, 1.0, 0.0),
    ]


def test_a_kernel_owned_in_part_is_only_here(tmp_path: Path) -> None:
    rows = traced({FC_0: [(0, "gemm", 4_000)]}, [[(0, "gemm", 3_000)]])
    for part in rows["kernel_module"]:
        part |= {"share": 0.5, "ns": 2_000}
    assert diff(tmp_path, rows) == [
        ("aten::mm", "only here", "gemm", None, 0.5, 0.0, 2.0, 0.0),
        ("aten::mm", "only there", None, "gemm", 0.0, 1.0, 0.0, 3.0),
    ]


def test_calls_of_one_measurement_each_bring_their_kernels(tmp_path: Path) -> None:
    rows = traced({FC_0: [(0, "gemm", 4_000), (0, "gemm", 6_000)]}, [[(0, "gemm", 3_000)]] * 2)
    rows["replay"][0]["calls"] = 2
    assert diff(tmp_path, rows) == [
        ("aten::mm", "same", "gemm", "gemm", 2.0, 2.0, 10.0, 6.0),
    ]
