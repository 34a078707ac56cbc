"""A small profile with answers that can be worked out by hand.

Net holds blocks (a ModuleList, never called) of two equal Blocks, each with a Linear, and a head.
One step of 100 µs: Linear 0 owns 20, Linear 1 30, each Block 5 of its own, head 10, the root 25 of
idle; 5 are unattributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.store import append, create, open_profile
from tests.frames import frame

Rows = list[dict[str, Any]]

NET, BLOCKS, BLOCK_0, FC_0, BLOCK_1, FC_1, HEAD = range(7)
MODULES = [
    ("", "Net", None),
    ("blocks", "ModuleList", NET),
    ("blocks.0", "Block", BLOCKS),
    ("blocks.0.fc", "Linear", BLOCK_0),
    ("blocks.1", "Block", BLOCKS),
    ("blocks.1.fc", "Linear", BLOCK_1),
    ("head", "Linear", NET),
]


def base_rows() -> dict[str, Rows]:
    """The rows that every test starts from, by table."""
    return {
        "run": [{"run_id": "r", "schema_version": SCHEMA_VERSION, "workload": "net"}],
        "module": [
            {"module_id": k, "run_id": "r", "path": path, "class": name, "parent_id": parent,
             "depth": path.count(".") + 1 if path else 0, "ordinal": k}
            for k, (path, name, parent) in enumerate(MODULES)
        ],
        "partition": [
            part(FC_0, "busy", 20_000), part(FC_1, "busy", 30_000), part(BLOCK_0, "busy", 5_000),
            part(BLOCK_1, "busy", 5_000), part(HEAD, "busy", 10_000),
            part(NET, "idle_host", 25_000), part(None, "unattributed", 5_000),
        ],
        "module_context": [
            context(NET, 70_000, ts_ns=1_000), context(BLOCK_0, 25_000), context(FC_0, 20_000),
            context(BLOCK_1, 35_000), context(FC_1, 30_000), context(HEAD, 10_000),
            context(BLOCKS, 60_000, calls=0.0),
        ],
    }  # fmt: skip


def part(module_id: int | None, kind: str, ns: int, **more: Any) -> dict[str, Any]:
    return {"run_id": "r", "module_id": module_id, "phase": "forward", "deployment": "eager",
            "kind": kind, "ns": ns, "low_ns": ns, "high_ns": ns, **more}  # fmt: skip


def context(module_id: int, ns: int, **more: Any) -> dict[str, Any]:
    return {"run_id": "r", "module_id": module_id, "phase": "forward", "calls": 1.0, "kernels": 2.0,
            "kernel_ns": ns, "busy_ns": ns, "exposed_ns": ns, "trace_id": 0, **more}  # fmt: skip


def replay(replay_id: int, module_id: int, median_ns: int | None, **more: Any) -> dict[str, Any]:
    """A measurement with bounds 10 % apart and half of its time on the device."""
    figures = {} if median_ns is None else {
        "median_ns": median_ns, "low_ns": median_ns * 95 // 100, "high_ns": median_ns * 105 // 100,
        "busy_ns": median_ns // 2, "kernel_ns": median_ns // 2, "samples": 30,
    }  # fmt: skip
    return {"run_id": "r", "replay_id": replay_id, "module_id": module_id, "phase": "forward",
            "condition": "hot", "call_index": 0, "calls": 1, "measured_id": replay_id,
            **figures, **more}  # fmt: skip


def write_profile(path: Path, rows: dict[str, Rows]) -> Path:
    with create(path) as draft:
        for table, content in rows.items():
            append(draft.connection, table, frame(table, *content))
    return path


@contextmanager
def opened(path: Path, rows: dict[str, Rows]) -> Iterator[DuckDBPyConnection]:
    connection = open_profile(write_profile(path, rows))
    try:
        yield connection
    finally:
        connection.close()
