"""A tiny Kineto reader for these tests: whole files, brute force, no repair.

The product reads traces with ``cb_trace.trace``; a sibling stage may not depend on it, and a second
reading is a check on the first. Launch links are by correlation id alone, as in the design.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from cb_trace.attribution import TraceEvents
from cb_trace.columns import polars_schema
from tests.attribution.brute import innermost

DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
DEVICE |= {"Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset"}
LAUNCHES = {"cuda_runtime", "cuda_driver", "Runtime"}
OPS = {"cpu_op", "Operator"}
Row = dict[str, Any]


def nanoseconds(value: str | float) -> int:
    """Microseconds of a trace to integer nanoseconds (facts/ingest.md, "Exactness")."""
    if isinstance(value, int):
        return value * 1000
    number = float(value)
    whole = int(number)
    return whole * 1000 + round((number - whole) * 1000)


def read(path: Path, step_prefix: str = "ProfilerStep#") -> TraceEvents:
    """All frames of one file; module slices keep the nearest enclosing module as their parent."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = orjson.loads(text)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return events_of([e for e in events if e.get("ph") == "X"], step_prefix)


def events_of(slices: list[Row], step_prefix: str = "ProfilerStep#") -> TraceEvents:
    """The frames of a list of complete slices in Kineto's own form."""
    rows = [_common(number, event) for number, event in enumerate(slices)]
    threads: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (str(row["event"].get("pid")), str(row["event"].get("tid")))
        row["thread"] = threads.setdefault(key, len(threads))
    ops = [_op(row) for row in rows if row["cat"] in OPS]
    launches = [_launch(row) for row in rows if row["cat"] in LAUNCHES]
    for launch, at in zip(launches, innermost(launches, ops), strict=True):
        launch["op_id"] = None if at is None else ops[at]["op_id"]
    notes = [_annotation(row) for row in rows if row["cat"] == "user_annotation"]
    steps = _steps(notes, step_prefix)
    kernels = [_kernel(row) for row in rows if row["cat"] in DEVICE]
    _link(kernels, launches, steps)
    modules = _module_slices([row for row in rows if row["cat"] == "python_function"])
    return TraceEvents(
        kernel=_frame("kernel", kernels),
        launch=_frame("launch", launches),
        op=_frame("op", ops),
        annotation=_frame("annotation", notes),
        python_module=_frame("python_module", modules),
        step=_frame("step", steps),
    )


def _common(number: int, event: Row) -> Row:
    args = event.get("args")
    return {
        "id": number, "event": event, "cat": event.get("cat"), "name": event.get("name"),
        "args": args if isinstance(args, dict) else {},
        "start_ns": nanoseconds(event["ts"]), "dur_ns": nanoseconds(event.get("dur", 0)),
    }  # fmt: skip


def _kept(row: Row) -> Row:
    return {"trace_id": 0, **{key: row[key] for key in ("name", "thread", "start_ns", "dur_ns")}}


def _op(row: Row) -> Row:
    args = row["args"]
    return _kept(row) | {
        "op_id": row["id"],
        "sequence_number": args.get("Sequence number"),
        "forward_thread": args.get("Fwd thread id"),
    }


def _launch(row: Row) -> Row:
    correlation = row["args"].get("correlation")
    return _kept(row) | {
        "launch_id": row["id"], "category": row["cat"], "correlation": correlation,
        "kernel_name": row["args"].get("kernel"), **_size(row["args"]),
    }  # fmt: skip


def _size(args: Row) -> Row:
    """Grid and block as the tables have them: ``x,y,z``."""
    return {
        name: ",".join(map(str, args[name])) if name in args else None for name in ("grid", "block")
    }


def _annotation(row: Row) -> Row:
    return _kept(row) | {"annotation_id": row["id"], "layer": "user"}


def _kernel(row: Row) -> Row:
    args = row["args"]
    return _kept(row) | {
        "kernel_id": row["id"], "kind": DEVICE[row["cat"]], "category": row["cat"],
        "stream": args.get("stream"), "device": args.get("device"),
        "correlation": args.get("correlation"), "graph_node_id": args.get("graph node id"),
        **_size(args),
    }  # fmt: skip


def _steps(notes: list[Row], prefix: str) -> list[Row]:
    found = sorted((n for n in notes if n["name"].startswith(prefix)), key=_start)
    return [{**note, "step": step, "window_ns": note["dur_ns"]} for step, note in enumerate(found)]


def _start(row: Row) -> int:
    start: int = row["start_ns"]
    return start


def _link(kernels: list[Row], launches: list[Row], steps: list[Row]) -> None:
    by_correlation = {row["correlation"]: row for row in launches if row["correlation"]}
    for kernel in kernels:
        launch = by_correlation.get(kernel["correlation"])
        at = (launch or kernel)["start_ns"]
        inside = (s for s in steps if s["start_ns"] <= at < s["start_ns"] + s["dur_ns"])
        kernel["step"] = next((s["step"] for s in inside), None)
        if launch is not None:
            kernel["launch_id"], kernel["op_id"] = launch["launch_id"], launch["op_id"]


def _module_slices(frames: list[Row]) -> list[Row]:
    by_id = {row["args"].get("Python id"): row for row in frames}
    return [
        _kept(row)
        | {
            "python_id": row["args"]["Python id"],
            "parent_python_id": _module_above(row, by_id),
            "name": row["name"].removeprefix("nn.Module: "),
        }
        for row in frames
        if row["name"].startswith("nn.Module: ")
    ]


def _module_above(row: Row, by_id: dict[Any, Row]) -> int | None:
    above = by_id.get(row["args"].get("Python parent id"))
    while above is not None and not above["name"].startswith("nn.Module: "):
        above = by_id.get(above["args"].get("Python parent id"))
    return None if above is None else above["args"]["Python id"]


def _frame(table: str, rows: Iterable[Row]) -> pl.DataFrame:
    schema = polars_schema(table)
    given = list(rows)
    return pl.DataFrame({n: [r.get(n) for r in given] for n in schema}, schema=schema)
