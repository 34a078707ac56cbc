"""Our own CPU recordings: a kernel row is a stretch of an operator's self time."""

from __future__ import annotations

from pathlib import Path

import duckdb

from tests.kineto import annotation, event, op, write_trace
from tests.trace.conftest import Loader

EVENTS = [
    annotation("ProfilerStep#0", 5, 40),
    op("linear", 10, 30), op("empty", 20, 0), op("addmm", 15, 10), op("copy_", 18, 2),
    op("linear", 60, 5),
    event("cpu_op", "backward", 12, 8, tid=7),
]  # fmt: skip


def test_stretches_of_self_time(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(write_trace(tmp_path / "t.json", EVENTS), cpu_kernels=True)
    found = profile.execute(
        "SELECT k.name, k.start_ns / 1000, k.dur_ns / 1000, step, k.stream = k.thread, tid "
        "FROM kernel k JOIN thread USING (thread) ORDER BY kernel_id"
    ).fetchall()
    main, other = "100", "7"
    assert found == [
        ("linear", 10, 5, 0, True, main),
        ("backward", 12, 8, 0, True, other),
        ("addmm", 15, 3, 0, True, main),
        ("copy_", 18, 2, 0, True, main),
        ("addmm", 20, 5, 0, True, main),
        ("linear", 25, 15, 0, True, main),
        ("linear", 60, 5, None, True, main),
    ]
    assert report.kernels == 7
    shape = profile.execute(
        "SELECT DISTINCT kind, category, launch_id, k.name = op.name, flaw "
        "FROM kernel k JOIN op USING (op_id)"
    ).fetchall()
    assert shape == [("cpu", "cpu_op", None, True, None)]
    assert report.kernels_without_launch == 0


def test_a_foreign_cpu_trace_has_no_kernels(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    assert load(write_trace(tmp_path / "t.json", EVENTS)).kernels == 0
    assert profile.execute("SELECT count(*) FROM kernel").fetchall() == [(0,)]
