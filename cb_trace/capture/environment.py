"""Where a recording was made: device and versions; no path, host or user."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from cb_trace.replay.timing import synchronize


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
    """Describe a device; ``load`` is run over and over while its clock is read."""
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
    driver, clock = _nvidia_smi(device, load)
    return Environment(
        device_type="cuda",
        device_name=str(properties.name),
        torch_version=torch.__version__,
        python_version=platform.python_version(),
        cuda_version=torch.version.cuda,
        driver_version=driver,
        sm_clock_mhz=clock,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        cpu_threads=torch.get_num_threads(),
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in names if name), platform.machine())


def _nvidia_smi(
    device: torch.device, load: Callable[[], object] | None
) -> tuple[str | None, int | None]:
    """Driver version and SM clock, the clock with the device at work; None where unknown."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm", "--format=csv,noheader,nounits"]
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    query.append(f"--id=GPU-{uuid}" if uuid is not None else f"--id={device.index or 0}")
    try:
        with subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
            while load is not None and reader.poll() is None:
                load()
                synchronize(device)
            answer = reader.communicate(timeout=30)[0].decode()
    except (OSError, subprocess.SubprocessError):
        return None, None
    driver, _, clock = answer.strip().partition(",")
    clock = clock.strip()
    return driver.strip() or None, int(clock) if load and clock.isdecimal() else None
