"""Look at this machine: which half of cb-trace works here, and what its figures are worth.

Findings carry no host name, user or path: people paste them into issues.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from cb_trace.commands.options import default_device, installed, quieten_profiler
from cb_trace.parts import scratch_folder
from cb_trace.version import VERSION

if TYPE_CHECKING:
    import torch

    from cb_trace.capture.environment import Environment

READING = ("polars", "duckdb", "pyarrow")
NOISY_RATIO = 0.2
_RANGE = "cb:probe"
_TIMED_RUNS = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about this machine."""

    topic: str
    value: str
    state: Literal["ok", "limited", "missing"] = "ok"
    remark: str = ""


def findings() -> Iterator[Finding]:
    """Everything worth knowing before a recording, cheapest first."""
    yield Finding("cb-trace", VERSION)
    yield Finding("python", platform.python_version())
    yield _reading_half()
    if not installed("torch"):
        yield Finding("recording half", "no torch", "missing", "profiles can be read, not made")
        return
    yield Finding("recording half", f"torch {_version_of('torch')}")
    yield from _recording_half()


def _reading_half() -> Finding:
    missing = [name for name in READING if not installed(name)]
    if missing:
        text = f"no {', '.join(missing)}"
        return Finding("reading half", text, "missing", "bundles can be made, not read (-o x.zip)")
    return Finding("reading half", ", ".join(f"{name} {_version_of(name)}" for name in READING))


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def _recording_half() -> Iterator[Finding]:
    quieten_profiler()
    import torch

    from cb_trace.capture.environment import environment

    device = torch.device(default_device())
    work = _Work(device)
    yield from _device(environment(device, work.run))
    yield from _processors()
    yield from _profiler(device, work)
    yield _noise(work)


class _Work:
    """A module small enough to run anywhere, for the probes."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self.device = device
        self._layer = torch.nn.Linear(256, 256).to(device)
        self._input = torch.ones(64, 256, device=device)

    def run(self) -> None:
        import torch

        with torch.no_grad():
            self._layer(self._input)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _device(where: Environment) -> Iterator[Finding]:
    if where.device_type == "cpu":
        remark = "costs are operators' own time; no kernels, no CUDA graph"
        yield Finding("device", where.device_name, "limited", remark)
        return
    yield Finding("device", where.device_name)
    yield Finding("CUDA", where.cuda_version or "unknown")
    yield Finding("driver", where.driver_version or "unknown")
    if where.l2_bytes:
        yield Finding("L2 cache", f"{where.l2_bytes / 2**20:.0f} MiB")
    if where.sm_clock_mhz is None:
        remark = "a change of clock during a recording goes unseen"
        yield Finding("SM clock", "unknown", "limited", remark)
    else:
        yield Finding("SM clock", f"{where.sm_clock_mhz} MHz under load")
    if shutil.which("nvidia-smi") is None:
        yield Finding("nvidia-smi", "not found", "limited", "no driver version, no clocks")


def _processors() -> Iterator[Finding]:
    import torch

    threads, usable = torch.get_num_threads(), len(os.sched_getaffinity(0))
    text = f"{threads} of {usable} usable processors"
    if threads > usable:
        yield Finding("CPU threads", text, "limited", "threads wait for each other: set fewer")
    else:
        yield Finding("CPU threads", text)


def _profiler(device: torch.device, work: _Work) -> Iterator[Finding]:
    try:
        trace = _probe(device, work)
    except Exception as error:  # a broken profiler is a finding, whatever it raises
        reason = str(error).partition("\n")[0]
        yield Finding("profiler", f"failed: {reason[:80]}", "missing", "nothing can be recorded")
        return
    events = trace["traceEvents"]
    names = {str(event.get("name", "")) for event in events}
    categories = {event.get("cat") for event in events}
    yield _seen("module ranges", _RANGE in names, "nothing can be attributed")
    stacks = any(name.startswith("nn.Module: ") for name in names)
    yield _seen("nn.Module slices", stacks, "traces made here with_stack hold no modules")
    if device.type == "cuda":
        yield Finding("CUPTI", str(trace.get("cupti_version", "unknown")))
        yield _seen("kernels", "kernel" in categories, "no device time: is CUPTI in use elsewhere?")


def _seen(topic: str, there: bool, otherwise: str) -> Finding:
    return Finding(topic, "recorded") if there else Finding(topic, "absent", "missing", otherwise)


def _probe(device: torch.device, work: _Work) -> dict[str, Any]:
    """The trace of one run of a module."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with scratch_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=activities, with_stack=True) as profiler, record_function(_RANGE):
            work.run()
        target = folder / "probe.json"
        profiler.export_chrome_trace(str(target))
        trace: dict[str, Any] = json.loads(target.read_text("utf-8", "replace"))
    return trace


def _noise(work: _Work) -> Finding:
    """The spread of a fixed piece of work: what the machine alone does to a timing."""
    times = []
    for _ in range(_TIMED_RUNS):
        start = time.perf_counter_ns()
        work.run()
        times.append(time.perf_counter_ns() - start)
    low, middle, high = statistics.quantiles(times[_TIMED_RUNS // 10 :], n=4)
    ratio = (high - low) / middle
    text = f"{100 * ratio:.0f}% between the quartiles of {middle / 1000:,.1f} µs"
    if ratio > NOISY_RATIO:
        return Finding(
            "timing noise", text, "limited", "is something else running? figures will be noisy"
        )
    return Finding("timing noise", text)
