"""How and where a recording was made: device and versions; no path, host or user."""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from cb_trace.bundle import Phase, RunRecord
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.step import dtype_name
from cb_trace.providers.workload import Workload
from cb_trace.replay.clock import Clock, clock_of
from cb_trace.replay.timing import synchronize
from cb_trace.version import VERSION

LOAD_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The fields of a run record that describe the machine."""

    device_type: Literal["cuda", "cpu"]
    device_name: str
    torch_version: str
    python_version: str
    cuda_version: str | None = None
    driver_version: str | None = None
    sm_clock_mhz: int | None = None
    l2_bytes: int | None = None
    cpu_threads: int | None = None


def environment(device: torch.device, load: Callable[[], object] | None = None) -> Environment:
    """Describe a device; ``load`` is run over and over before its clock is read."""
    cpu = device.type == "cpu"
    if cpu:
        return Environment(
            device_type="cpu",
            device_name=_cpu_name(),
            torch_version=torch.__version__,
            python_version=platform.python_version(),
            cpu_threads=torch.get_num_threads(),
        )
    properties = torch.cuda.get_device_properties(device)
    clock = clock_of(device)
    return Environment(
        device_type="cuda",
        device_name=str(properties.name),
        torch_version=torch.__version__,
        python_version=platform.python_version(),
        cuda_version=torch.version.cuda,
        driver_version=clock.driver_version,
        sm_clock_mhz=_under_load(clock, device, load) if load else None,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        cpu_threads=torch.get_num_threads(),
    )


def run_record(
    workload: Workload,
    options: RecordOptions,
    where: Environment,
    provider: str | None,
    phases: Sequence[Phase] = ("forward",),
) -> RunRecord:
    """The run's record: how and where it was made."""
    return RunRecord(
        run_id=secrets.token_hex(8),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        workload=workload.name,
        provider=provider,
        settings=dict(workload.settings),
        mode=options.mode,
        phases=list(phases),
        dtype=dtype_name(workload.model, options.dtype),
        seed=options.seed,
        wrap=list(options.wrap),
        autocast=options.dtype,
        tool_version=VERSION,
        **asdict(where),
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in names if name), platform.machine())


def _under_load(clock: Clock, device: torch.device, load: Callable[[], object]) -> int | None:
    """The SM clock once the device has been at work for a while."""
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        load()
        synchronize(device)
    return clock.read().sm_clock_mhz
