"""A small profile with round figures, written by hand through the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.store import append, create
from tests.frames import frame

RUN = "run-1"
Row = dict[str, Any]

# path, class, parent, self busy ns, hot replay (median, low, high) or why there is none
MODULES: list[tuple[str, str, int | None, int, tuple[int, int, int] | str | None]] = [
    ("", "GPT", None, 50_000, (900_000, 880_000, 920_000)),
    ("h", "ModuleList", 0, 0, None),
    ("h.0", "Block", 1, 20_000, (1_000_000, 980_000, 1_020_000)),
    ("h.0.attn", "Attention", 2, 300_000, (600_000, 590_000, 610_000)),
    ("h.0.mlp", "MLP", 2, 400_000, (402_000, 390_000, 415_000)),
    ("head", "Linear", 0, 100_000, "RuntimeError: boom"),
]
IDLE_HOST_NS, UNATTRIBUTED_NS, STEP_NS = 100_000, 30_000, 1_000_000


def write_profile(target: Path, **changes: list[Row]) -> Path:
    """Write the profile; ``changes`` are rows to add, by table, or ``run`` to replace."""
    tables = {**_tables(), "run": changes.pop("run")} if "run" in changes else _tables()
    names = {**tables, **changes}
    merged = {name: [*tables.get(name, []), *changes.get(name, [])] for name in names}
    merged.setdefault("cost_bounds", _cost_bounds(merged["partition"], merged["module"]))
    with create(target, force=True) as draft:
        for table, rows in merged.items():
            append(draft.connection, table, _frame(table, rows))
    return target


def _cost_bounds(partition: list[Row], module: list[Row]) -> list[Row]:
    """Costs are known to 1 %, as the step is; in the graph exactly."""
    parents = {row["module_id"]: row.get("parent_id") for row in module}
    costs: dict[tuple[int, str, str], int] = {}
    for row in partition:
        above = row.get("module_id")
        while above is not None:
            place = (above, row["phase"], row["deployment"])
            costs[place] = costs.get(place, 0) + row["ns"]
            above = parents[above]
    return [
        {"run_id": RUN, "module_id": module_id, "phase": phase, "deployment": deployment,
         "low_ns": ns - wide, "high_ns": ns + wide}
        for (module_id, phase, deployment), ns in costs.items()
        for wide in (0 if deployment == "graph" else ns // 100,)
    ]  # fmt: skip


def _frame(table: str, rows: list[Row]) -> pl.DataFrame:
    return frame(table, *rows)


def run_row(**changes: Any) -> Row:
    return {
        "run_id": RUN,
        "workload": "nanogpt",
        "mode": "eager",
        "phases": "forward",
        "dtype": "bf16",
        "device_type": "cuda",
        "device_name": "NVIDIA H200",
        "torch_version": "2.13.0",
        "schema_version": SCHEMA_VERSION,
        "step_bare_ns": STEP_NS,
        "step_bare_low_ns": 990_000,
        "step_bare_high_ns": 1_010_000,
        "step_profiled_ns": 1_200_000,
        "dilation": 1.2,
        **changes,
    }


def _tables() -> dict[str, list[Row]]:
    return {
        "run": [run_row()],
        "module": [_module(number) for number in range(len(MODULES))],
        "module_context": [
            {
                "run_id": RUN, "module_id": number, "phase": "forward", "calls": 1.0,
                "kernels": 2.0, "kernel_ns": busy, "busy_ns": busy, "exposed_ns": busy,
                "ts_ns": 1_000 * number, "dur_ns": 500, "trace_id": 0,
            }
            for number, (*_, busy, _replay) in enumerate(MODULES)
            if busy
        ],
        "partition": _partition(),
        "replay": _replays(),
        "trace": [{"trace_id": 0, "run_id": RUN, "role": "context", "path": "gone.json"}],
    }  # fmt: skip


def _module(number: int) -> Row:
    path, class_name, parent, *_ = MODULES[number]
    return {
        "module_id": number,
        "run_id": RUN,
        "path": path,
        "class": class_name,
        "parent_id": parent,
        "depth": 0 if path == "" else path.count(".") + 1,
        "ordinal": number,
    }


def _partition() -> list[Row]:
    busy = [(number, "busy", ns) for number, (*_, ns, _) in enumerate(MODULES) if ns]
    rest = [(0, "idle_host", IDLE_HOST_NS), (None, "unattributed", UNATTRIBUTED_NS)]
    return [
        {
            "run_id": RUN,
            "module_id": number,
            "phase": "forward",
            "deployment": "eager",
            "kind": kind,
            "ns": ns,
        }
        for number, kind, ns in [*busy, *rest]
    ]


def _replays() -> list[Row]:
    rows = []
    for number, (*_, measured) in enumerate(MODULES):
        if measured is None:
            continue
        row: Row = {
            "replay_id": number,
            "run_id": RUN,
            "module_id": number,
            "phase": "forward",
            "condition": "hot",
            "call_index": 0,
            "calls": 1,
            "measured_id": number,
        }
        if isinstance(measured, str):
            row["skipped"] = measured
        else:
            row |= dict(zip(("median_ns", "low_ns", "high_ns"), measured, strict=True))
        rows.append(row)
    return rows
