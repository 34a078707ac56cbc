"""What of a Kineto file may go into a bundle: its events, and the header keys named here.

PyTorch writes the machine's host name and the file's path into the header (seen in 2.13), and
anything a program added with ``add_metadata_json``; none of it leaves the machine. Standard
library only; both recording packages export through :func:`export_trace`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

from cb_trace.parts import scratch_folder

HEADER_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "trace_id",
    "record_shapes",
    "with_flops",
    "profile_memory",
    "with_stack",
    "with_modules",
    "displayTimeUnit",
    "baseTimeNanoseconds",
)

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_END = re.compile(rb"\n\s*\]\s*,?")
_WINDOW = 1 << 16
# Inductor names the file of each generated kernel: the name says which, its folder where we are.
_KERNEL_FOLDER = re.compile(rb'("kernel_file"\s*:\s*")[^"]*/')


class Exporter(Protocol):
    """A profiler that has stopped."""

    def export_chrome_trace(self, path: str) -> None: ...


def export_trace(profiler: Exporter, target: Path) -> None:
    """Write a stopped profiler's trace to ``target`` (``.json.gz``), cleaned."""
    with scratch_folder() as folder:
        raw = folder / "raw.json"
        profiler.export_chrome_trace(str(raw))
        clean_trace(raw, target)


def clean_trace(raw: Path, target: Path) -> None:
    """Write the Kineto file ``raw`` (plain JSON) to ``target`` (gzip) with a clean header.

    The events keep their bytes, but for the folder in ``kernel_file``; the file's own name stands
    for its path in ``traceName``.

    :raises ValueError: ``raw`` is no Kineto file.
    """
    size = raw.stat().st_size
    with raw.open("rb") as source:
        start = _EVENTS.search(source.read(_WINDOW))
        if start is None:
            raise ValueError(f"{raw.name} holds no traceEvents in its first {_WINDOW} bytes")
        source.seek(0)
        header = _object(source.read(start.start()))
        source.seek(max(start.end(), size - _WINDOW))
        stop, tail = _tail(source.read(), max(start.end(), size - _WINDOW))
        kept = {key: value for key, value in (header | tail).items() if key in HEADER_KEYS}
        source.seek(start.end())
        _write(source, stop - start.end(), kept | {"traceName": target.name}, target)


def _write(source: Any, length: int, header: dict[str, Any], target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    # No name and no time in the gzip header either: equal recordings give equal files.
    with part.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as out:
        out.write(json.dumps(header)[:-1].encode() + b', "traceEvents": [')
        while length > 0:
            line = source.readline(length)
            length -= len(line)
            out.write(_KERNEL_FOLDER.sub(rb"\1", line) if b'"kernel_file"' in line else line)
        out.write(b"\n]}\n")
    shutil.move(part, target)


def _object(text: bytes) -> dict[str, Any]:
    """Parse the inside of a JSON object that was cut before its events or after them."""
    inner = text.strip().removeprefix(b"{").strip().strip(b",")
    parsed: dict[str, Any] = json.loads(b"{" + inner + b"}")
    return parsed


def _tail(end: bytes, offset: int) -> tuple[int, dict[str, Any]]:
    """Where the events end in the file, and what stands behind them."""
    for match in _END.finditer(end):
        rest = end[match.end() :].strip()
        try:
            return offset + match.start(), _object(rest.removesuffix(b"}"))
        except ValueError:
            continue
    raise ValueError("the events have no end")
