"""Kernels of isolated calls: profiled runs, each in a range of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from cb_trace.bundle import TraceRecord, file_sha256
from cb_trace.range_names import replay_range
from cb_trace.replay.isolated import IsolatedCall, Kind
from cb_trace.replay.profiler import warming
from cb_trace.replay.timing import Run, synchronize
from cb_trace.trace_file import clean_trace

WARMUP_RANGE = "cb_warmup"


@contextmanager
def kernel_session(device: torch.device, target: Path, traces: list[TraceRecord]) -> Iterator[None]:
    """Profile the block into ``target`` and add its record to ``traces``, also after Ctrl-C.

    Shapes and stacks stay out: the ranges say all that is needed, and the file stays small.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    # acc_events: torch 2.11 warns without it, though a session of one cycle loses nothing.
    profiler = profile(activities=activities, acc_events=True)
    interrupted: KeyboardInterrupt | None = None
    with warming(profiler) as state:
        _first_kernel(device)
        state.start()
        try:
            yield
        except KeyboardInterrupt as stop:
            interrupted = stop
        synchronize(device)
    _export(profiler, target)
    digest = file_sha256(target)
    traces.append(TraceRecord(file=target.name, role="isolated", sha256=digest))
    if interrupted is not None:
        raise interrupted


def profile_call(
    ready: IsolatedCall, device: torch.device, kind: Kind, replay_id: int, count: int
) -> None:
    """Run a call, or its backward, ``count`` times in ranges, the device synchronised between.

    Restoring inputs, flushing the cache and a backward's forward lie outside the ranges.
    """
    phase, condition = kind
    if phase == "backward":
        run: Run = ready.backward(condition).run_here
        before: Run = ready.sweep if condition == "cold" else _nothing
    else:
        run = ready.runner(condition)
        before = ready.flush if condition == "cold" else ready.prepare
    for iteration in range(-1, count):
        before()
        synchronize(device)
        name = replay_range(replay_id, iteration) if iteration >= 0 else WARMUP_RANGE
        with record_function(name):
            run()
        synchronize(device)


def _nothing() -> None:
    return None


def _first_kernel(device: torch.device) -> None:
    """The first kernel under a profiler pays for its start; let it be none of a module's."""
    torch.zeros(1, device=device).add_(1)
    synchronize(device)


def _export(profiler: profile, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cb-trace-") as folder:
        raw = Path(folder) / "raw.json"
        profiler.export_chrome_trace(str(raw))
        clean_trace(raw, target)
