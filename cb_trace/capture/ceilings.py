"""Ceilings measured on a device: matrices, memory, and what a launch costs. Takes seconds.

Random data: with zeros a GPU draws less power and clocks higher, 15 % and more (shared facts,
measuring.md section 2).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from cb_trace.accounts import CeilingRecord
from cb_trace.decode import build
from cb_trace.errors import CbTraceError
from cb_trace.parts import whole
from cb_trace.replay.flush import CACHES, last_level_cache_bytes
from cb_trace.replay.graph import capture_graph
from cb_trace.replay.memory import free_bytes
from cb_trace.replay.timing import calls_per_sample, empty_window_ns, time_block

FORMAT = "cb-trace ceilings"
GRAPH_KERNELS = 200
Shape = tuple[int, int, int]
Progress = Callable[[str], None]

# Shapes near the best known ones for Hopper (stas00/ml-engineering), and square ones.
_CUDA_SHAPES: tuple[Shape, ...] = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (2048, 2048, 13312),
    (16384, 8192, 4096),
)
# Many CPUs have no bf16 unit and take seconds for a large product.
_CPU_SHAPES: dict[str, tuple[Shape, ...]] = {
    "fp32": ((512, 512, 512), (1024, 1024, 1024)),
    "bf16": ((256, 256, 256),),
}
_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp8": torch.float8_e4m3fn,
}


def measure_ceilings(
    device: torch.device, *, progress: Progress = lambda _: None
) -> list[CeilingRecord]:
    """Measure all that this device allows; what it cannot do is left out."""
    found: list[CeilingRecord] = []
    with torch.no_grad():
        for kind in ("bf16", "fp16", "tf32", "fp32", "fp8") if _cuda(device) else ("fp32", "bf16"):
            progress(f"matmul {kind}")
            found += _matmuls(device, kind)
        progress("copy and triad")
        found += _memory(device)
        progress("launches")
        found += _launches(device)
    return _chosen(found)


def write_ceilings(target: Path, device_name: str, ceilings: list[CeilingRecord]) -> None:
    """Write a file that :func:`read_ceilings` reads."""
    document = {
        "format": FORMAT,
        "version": 1,
        "device_name": device_name,
        "ceilings": [asdict(ceiling) for ceiling in ceilings],
    }
    try:
        with whole(target) as part:
            part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CbTraceError(f"cannot write {target}: {error.strerror}") from error


def read_ceilings(source: Path, device_name: str) -> list[CeilingRecord]:
    """Read ceilings of this very device model.

    :raises CbTraceError: no such file, not one of ours, or of another device.
    """
    try:
        document: Any = json.loads(source.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("another format")
        theirs = str(document["device_name"])
        ceilings = [build(CeilingRecord, item) for item in document["ceilings"]]
    except OSError as error:
        raise CbTraceError(f"cannot read {source}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise CbTraceError(
            f"{source} holds no ceilings", hint="write it with 'cb-trace doctor --measure -o FILE'"
        ) from error
    if theirs != device_name:
        raise CbTraceError(
            f"{source} is of {theirs}, and this is {device_name}", hint="use --ceilings measure"
        )
    return ceilings


# --- parts ------------------------------------------------------------------------------------


def _matmuls(device: torch.device, kind: str) -> Iterator[CeilingRecord]:
    shapes = _CUDA_SHAPES if _cuda(device) else _CPU_SHAPES[kind]
    for shape in shapes:
        try:
            with _precision(kind):
                seconds = _seconds(_product(device, kind, shape), device)
        except (RuntimeError, NotImplementedError):  # no such kernel here, or no memory for it
            continue
        m, n, k = shape
        yield CeilingRecord(
            kind="matmul",
            value=2 * m * n * k / seconds,
            unit="flop/s",
            dtype=kind,
            shape=f"{m}×{n}×{k}",
        )


def _product(device: torch.device, kind: str, shape: Shape) -> Callable[[], object]:
    m, n, k = shape
    a, b = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
    if kind == "fp8":
        a, b = a.to(_DTYPES[kind]), b.to(_DTYPES[kind])
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)
    a, b = a.to(_DTYPES[kind]), b.t().contiguous().to(_DTYPES[kind])
    out = torch.empty(m, n, dtype=a.dtype, device=device)
    return lambda: torch.mm(a, b, out=out)


@contextmanager
def _precision(kind: str) -> Iterator[None]:
    """Let fp32 matrices run as tf32, or forbid it."""
    if kind not in ("tf32", "fp32"):
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _memory(device: torch.device) -> list[CeilingRecord]:
    """A copy reads and writes a buffer; a triad reads two and writes a third."""
    size = _buffer_bytes(device)
    a, b, c = (torch.rand(size // 4, device=device) for _ in range(3))
    copy = _seconds(lambda: a.copy_(b), device)
    triad = _seconds(lambda: torch.add(b, c, alpha=3.0, out=a), device)
    shape = f"{size >> 20} MiB"
    return [
        CeilingRecord(kind="copy", value=2 * size / copy, unit="byte/s", shape=shape),
        CeilingRecord(kind="triad", value=3 * size / triad, unit="byte/s", shape=shape),
    ]


def _buffer_bytes(device: torch.device) -> int:
    """Well beyond every cache, and well within memory."""
    room = free_bytes(device) // 8
    if _cuda(device):
        return min(2 << 30, room)
    return max(16 << 20, min(max(128 << 20, 2 * last_level_cache_bytes(CACHES)), 512 << 20, room))


def _launches(device: torch.device) -> Iterator[CeilingRecord]:
    tiny = torch.zeros(1, device=device)

    def one() -> object:
        return tiny.add_(1)

    yield CeilingRecord(kind="empty_event_pair", value=float(empty_window_ns(device)), unit="ns")
    yield CeilingRecord(kind="eager_op", value=_seconds(one, device) * 1e9, unit="ns")
    graph = capture_graph(lambda: [one() for _ in range(GRAPH_KERNELS)], device)
    if graph.graph is not None:
        each = _seconds(graph.replay, device) / GRAPH_KERNELS
        yield CeilingRecord(kind="graph_kernel", value=each * 1e9, unit="ns")


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Median of one run, warm."""
    begin = time.perf_counter()
    for _ in range(3):
        run()
        if time.perf_counter() - begin > 0.3:
            break
    calls = calls_per_sample(run, device)
    timed = time_block(run, device, calls=calls, min_samples=10, min_seconds=0.15, max_seconds=0.8)
    return max(median(timed.ns), 1) * 1e-9


def _chosen(found: list[CeilingRecord]) -> list[CeilingRecord]:
    """Mark the best of each kind and dtype: fastest, or shortest where the unit is a time."""
    best: dict[tuple[str, str | None], CeilingRecord] = {}
    for one in found:
        known = best.get((one.kind, one.dtype))
        if known is None or (one.value < known.value) == (one.unit == "ns"):
            best[one.kind, one.dtype] = one
    return [replace(one, chosen=best[one.kind, one.dtype] is one) for one in found]


def _cuda(device: torch.device) -> bool:
    return device.type == "cuda"
