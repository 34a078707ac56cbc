"""Profiled steps: one Kineto file with a range a step and a range a module call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from cb_trace.range_names import STEP_PREFIX
from cb_trace.replay.profiler import warming
from cb_trace.replay.timing import synchronize
from cb_trace.trace_file import export_trace


def profile_steps(
    step: Callable[[], object],
    device: torch.device,
    *,
    steps: int,
    target: Path,
    back_to_back: bool = False,
) -> list[int]:
    """Profile steps into ``target`` and return the wall nanoseconds of each, profiler attached.

    A first step, which is not recorded, takes the profiler's start-up cost (CUPTI instruments at
    the first kernel). The device is synchronised between steps, outside their ranges; not where
    they run ``back_to_back``, and then the times are the host's alone.
    """
    with profiled(device, target) as start:
        step()
        synchronize(device)
        start()
        wait = None if back_to_back else device
        return [_one(step, wait, f"{STEP_PREFIX}{number}") for number in range(steps)]


@contextmanager
def profiled(device: torch.device, target: Path) -> Iterator[Callable[[], None]]:
    """A profiler that warms up until the function it gives is called, and records from then on.

    At the end of the block it is exported, cleaned, to ``target`` (``.json.gz``).
    """
    profiler = new_profiler(device)
    with warming(profiler) as state:
        yield state.start
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


def _one(step: Callable[[], object], wait: torch.device | None, name: str) -> int:
    begin = time.perf_counter_ns()
    with record_function(name):
        step()
    if wait is not None:
        synchronize(wait)
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
