"""Profiles whose trace is a file that HTA can read, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cb_trace.bundle import file_sha256, stored_path
from cb_trace.columns import SCHEMA_VERSION
from cb_trace.store import append, create
from tests.frames import frame
from tests.kineto import Event, annotation, kernel, launch, op, write_trace

Rows = dict[str, list[dict[str, Any]]]


def events(*, fraction: float = 0.0) -> list[Event]:
    """Two steps of one matmul and one add each, and a memset whose launch is not in the file.

    ``fraction`` is added to every kernel's start and taken from its duration, so that HTA rounds.
    """
    found = [kernel("Memset (Device)", 1 + fraction, 4 - fraction, 99, stream=7)]
    found[0]["cat"] = "gpu_memset"
    for step, at in enumerate((10, 210)):
        found += [
            annotation(f"ProfilerStep#{step}", at, 190),
            op("aten::mm", at + 10, 40), launch(at + 20, 5, 2 * step + 1),
            kernel("gemm", at + 60 + fraction, 50 - fraction, 2 * step + 1),
            op("aten::add", at + 60, 30), launch(at + 70, 5, 2 * step + 2),
            kernel("add", at + 112 + fraction, 10 - fraction, 2 * step + 2),
        ]  # fmt: skip
    return found


def rows(*, fraction_ns: int = 0) -> Rows:
    """What our loader makes of :func:`events`, with one module that launches the matmul."""
    kernels = [_kernel(0, "Memset (Device)", 1_000, 4_000, fraction_ns)]
    found: Rows = {"op": [], "launch": [], "step": [], "module_call": []}
    for step, at in enumerate((10_000, 210_000)):
        first = 2 * step + 1
        kernels.append(_kernel(first, "gemm", at + 60_000, 50_000, fraction_ns))
        kernels.append(_kernel(first + 1, "add", at + 112_000, 10_000, fraction_ns))
        for number, name, begin, dur in (
            (first, "aten::mm", at + 10_000, 40_000),
            (first + 1, "aten::add", at + 60_000, 30_000),
        ):
            found["op"].append(_host(op_id=number, name=name, start_ns=begin, dur_ns=dur))
            found["launch"].append(
                _host(launch_id=number, name="cudaLaunchKernel", start_ns=begin + 10_000,
                      dur_ns=5_000, correlation=number, op_id=number)
            )  # fmt: skip
        found["step"].append(
            _host(step=step, name=f"ProfilerStep#{step}", start_ns=at, dur_ns=190_000)
        )
        found["module_call"].append(
            _host(call_id=step, module_id=1, step=step, start_ns=at + 5_000, dur_ns=48_000)
        )
    shares = [
        {"kernel_id": number, "module_id": 1, "share": 1.0, "ns": 1, "phase": "forward"}
        for number in (1, 3)
    ]
    return found | {"kernel": kernels, "kernel_module": shares}


def _kernel(number: int, name: str, at: int, dur: int, late: int) -> dict[str, Any]:
    launched = "Memset" not in name
    return {
        "kernel_id": number, "trace_id": 0, "kind": "kernel" if launched else "memset",
        "name": name, "stream": 7, "start_ns": at + late, "dur_ns": dur - late,
        "correlation": number if launched else 99, "launch_id": number if launched else None,
    }  # fmt: skip


def _host(**given: Any) -> dict[str, Any]:
    return {"trace_id": 0, "thread": 0, **given}


def write_profile(
    folder: Path,
    found: list[Event],
    ours: Rows,
    *,
    resolution_ns: int = 1_000,
    device_type: str | None = "cuda",
    given: Path | None = None,
) -> Path:
    """A profile with a trace file beside it.

    :param given: the trace file, where it is not to be written from ``found``.
    """
    profile, file = folder / "p.duckdb", given or write_trace(folder / "trace.json", found)
    run = {"run_id": "r", "schema_version": SCHEMA_VERSION, "device_type": device_type}
    trace = {
        "trace_id": 0, "run_id": "r", "role": "foreign", "rank": 0, "sha256": file_sha256(file),
        "path": stored_path(file, profile), "resolution_ns": resolution_ns,
    }  # fmt: skip
    with create(profile) as draft:
        for table, filled in {"run": [run], "trace": [trace], **ours}.items():
            append(draft.connection, table, frame(table, *filled))
    return profile
