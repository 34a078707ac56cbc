"""Hand-made Kineto traces: a few events as literals, written as Kineto would."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]

CPU_PID, CPU_TID, GPU_PID, STREAM = 100, 100, 0, 7


def event(cat: str, name: str, ts_us: float, dur_us: float, **args: Any) -> Event:
    """A complete slice on the main CPU thread; ``pid`` and ``tid`` may be given by name."""
    pid, tid = args.pop("pid", CPU_PID), args.pop("tid", CPU_TID)
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
        "ts": ts_us, "dur": dur_us, "args": args,
    }  # fmt: skip


def launch(ts_us: float, dur_us: float, correlation: int, **args: Any) -> Event:
    """A cudaLaunchKernel call."""
    return event("cuda_runtime", "cudaLaunchKernel", ts_us, dur_us, correlation=correlation, **args)


def kernel(name: str, ts_us: float, dur_us: float, correlation: int, **args: Any) -> Event:
    """A kernel on the default stream of device 0."""
    stream = args.pop("stream", STREAM)
    given = {"device": 0, "stream": stream, "correlation": correlation, **args}
    return event("kernel", name, ts_us, dur_us, pid=GPU_PID, tid=stream, **given)


def op(name: str, ts_us: float, dur_us: float, **args: Any) -> Event:
    """A CPU operator."""
    return event("cpu_op", name, ts_us, dur_us, **args)


def annotation(name: str, ts_us: float, dur_us: float, **args: Any) -> Event:
    """A user annotation: a module range, a step, anything a record_function made."""
    return event("user_annotation", name, ts_us, dur_us, **args)


def module_slice(
    name: str, ts_us: float, dur_us: float, python_id: int, parent: int | None, **args: Any
) -> Event:
    """A python_function slice of a module call, as with_stack writes it."""
    given = {"Python id": python_id, "Python parent id": parent, "Python module id": 0, **args}
    return event("python_function", f"nn.Module: {name}", ts_us, dur_us, **given)


def write_trace(path: Path, events: list[Event], **header: Any) -> Path:
    """Write a document; compressed where the name ends in .gz."""
    document = {"schemaVersion": 1, "deviceProperties": [], **header, "traceEvents": events}
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
