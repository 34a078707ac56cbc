"""Profiled steps: one Kineto file with a range a step and a range a module call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from cb_trace.bundle import STEP_PREFIX
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.replay.timing import synchronize
from cb_trace.trace_file import export_trace

WARMUP_RANGE = "cb_warmup"


def profile_steps(
    step: Callable[[], object],
    device: torch.device,
    modules: Mapping[str, nn.Module],
    *,
    steps: int,
    target: Path,
) -> list[int]:
    """Profile steps into ``target`` and return the wall nanoseconds of each, profiler attached.

    A first step under its own name takes the profiler's start-up cost (CUPTI instruments at the
    first kernel). The device is synchronised between steps, outside their ranges.
    """
    with profiled(device, target), ModuleRanges(modules):
        _one(step, device, WARMUP_RANGE)
        return [_one(step, device, f"{STEP_PREFIX}{number}") for number in range(steps)]


@contextmanager
def profiled(device: torch.device, target: Path) -> Iterator[None]:
    """Profile the block and export it, cleaned, to ``target`` (``.json.gz``)."""
    profiler = new_profiler(device)
    with profiler:
        yield
        synchronize(device)
    export_trace(profiler, target)


def new_profiler(device: torch.device) -> profile:
    """A profiler that records what attribution needs and builds no Python events."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        record_shapes=True,
        acc_events=True,  # there is one cycle; without it torch 2.11 warns
        experimental_config=_experimental_config(),
    )


def _one(step: Callable[[], object], device: torch.device, name: str) -> int:
    begin = time.perf_counter_ns()
    with record_function(name):
        step()
    synchronize(device)
    return time.perf_counter_ns() - begin


def _experimental_config() -> Any:
    """Sync events for host-wait edges; trace_only saves memory. Versions differ, so probe."""
    make: Any = torch._C._profiler._ExperimentalConfig
    for names in (("enable_cuda_sync_events", "trace_only"), ("enable_cuda_sync_events",)):
        try:
            return make(**dict.fromkeys(names, True))
        except TypeError:
            continue
    return make()
