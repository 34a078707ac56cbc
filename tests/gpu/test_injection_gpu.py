"""On a GPU: the two versions of every injection run the kernels that they are meant to run.

What the terms make of them is for the reading half: ``benchmarks/injection.py record`` here, and
``check`` where that is installed.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.injection import record_one
from benchmarks.injection_models import INJECTIONS, SPIN_NS, Place
from cb_trace.bundle import Role, open_bundle, readable
from cb_trace.capture.compiled import CompiledModel, fresh_compiler
from cb_trace.capture.modes import DEVICE_WORK
from cb_trace.capture.profiled import profile_steps

pytestmark = pytest.mark.gpu

Kernels = list[dict[str, Any]]


def kernels_of(file: Path) -> Kernels:
    """Device work of a trace, by start."""
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return sorted((e for e in events if e.get("cat") in DEVICE_WORK), key=lambda e: float(e["ts"]))


def one_step(name: str, version: str, device: torch.device, folder: Path) -> Kernels:
    """The kernels of one step as the recorder would run it."""
    torch.manual_seed(0)
    made = INJECTIONS[name](Place(device), version)
    model = CompiledModel(made.model, {})
    compiled = made.mode == "compile"

    def step() -> object:
        with torch.no_grad():
            return made.model(*made.args)

    with (
        fresh_compiler(device) if compiled else nullcontext(),
        model.installed() if compiled else nullcontext(),
    ):
        step()
        step()
        target = folder / f"{version}.json.gz"
        profile_steps(step, device, steps=1, target=target)
    return kernels_of(target)


def both(name: str, device: torch.device, folder: Path) -> tuple[Kernels, Kernels]:
    return one_step(name, "baseline", device, folder), one_step(name, "injected", device, folder)


def names(kernels: Kernels) -> Counter[str]:
    return Counter(kernel["name"] for kernel in kernels)


def overlap_us(kernels: Kernels) -> float:
    """How long kernels run beside those that started before."""
    total, covered = 0.0, 0.0
    for kernel in kernels:
        begin, end = float(kernel["ts"]), float(kernel["ts"]) + float(kernel["dur"])
        total += max(0.0, min(covered, end) - begin)
        covered = max(covered, end)
    return total


@pytest.mark.parametrize("name", ["nothing", "copy", "spin", "cache"])
def test_both_versions_run_the_same_kernels(
    name: str, device: torch.device, tmp_path: Path
) -> None:
    base, injected = both(name, device, tmp_path)
    assert names(base) == names(injected)
    assert len(base) >= 2


def test_the_copy_runs_beside_the_module(device: torch.device, tmp_path: Path) -> None:
    base, injected = both("copy", device, tmp_path)
    assert len({k["args"]["stream"] for k in base}) == 1
    assert len({k["args"]["stream"] for k in injected}) == 2
    assert overlap_us(base) < 5
    assert overlap_us(injected) > 150  # two copies of some 500 µs


def test_the_device_waits_for_the_spinning_host(device: torch.device, tmp_path: Path) -> None:
    kernels = one_step("spin", "injected", device, tmp_path)
    first, second = kernels[0], kernels[-1]
    gap_us = float(second["ts"]) - float(first["ts"]) - float(first["dur"])
    assert gap_us >= SPIN_NS / 1000


def test_the_chain_is_one_kernel_where_it_is_compiled(device: torch.device, tmp_path: Path) -> None:
    base, injected = both("fusion", device, tmp_path)
    assert (len(base), len(injected)) == (3, 1)


def test_the_elementwise_head_is_fused(device: torch.device, tmp_path: Path) -> None:
    base, injected = both("gemv", device, tmp_path)
    assert len(base) >= 2
    assert len(injected) < len(base)


def test_the_replay_alone_runs_another_kernel(device: torch.device, tmp_path: Path) -> None:
    found: dict[str, dict[Role, set[str]]] = {}
    for version in ("baseline", "injected"):
        bundle = open_bundle(record_one(tmp_path, "kernel_choice", version, str(device)))
        found[version] = roles = {}
        for record in bundle.manifest.traces:
            with readable(bundle.trace_file(record)) as file:
                roles[record.role] = {k["name"] for k in kernels_of(file) if k["cat"] == "kernel"}
    assert found["baseline"]["context"] == found["injected"]["context"]
    gemm = found["baseline"]["context"]
    assert gemm <= found["baseline"]["isolated"]
    assert not gemm & found["injected"]["isolated"]
