"""What attribution rests on, shown on the GPU from the recording alone: no reading half there.

The towers in every mode and phase; and a model of distinct sizes, compiled, in which the sizes of a
kernel's tensors say whose it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from cb_trace.bundle import CompiledGraph, CompiledKernel, CompiledNode, Manifest, Mode
from cb_trace.providers.workload import Workload
from cb_trace.range_names import path_of_range
from tests.capture.models import towers
from tests.capture.test_train import events
from tests.distinct import PRODUCTS, SIZES, WIDTHS, net, product_owner, widths
from tests.gpu.test_modes import Event, kernels, names, on_device, recorded

pytestmark = pytest.mark.gpu

PHASES = ("forward", "train")
PLAIN: dict[str, Any] = {"compare_plain": False}


def within(inner: Event, outer: Event) -> bool:
    ends = outer["ts"] + outer["dur"]
    return bool(inner["tid"] == outer["tid"] and outer["ts"] <= inner["ts"] < ends)


def innermost(event: Event, around: list[Event]) -> Event | None:
    found = [e for e in around if e is not event and within(event, e)]
    return max(found, key=lambda e: (e["ts"], -e["dur"]), default=None)


def launches(found: list[Event]) -> dict[int, Event]:
    """Runtime and driver calls by correlation id."""
    calls = (e for e in found if e["cat"] in {"cuda_runtime", "cuda_driver"})
    return {e["args"]["correlation"]: e for e in calls if "correlation" in e["args"]}


def by_module(found: list[Event]) -> dict[str | None, Counter[str]]:
    """Kernel names by the module range innermost around their launches, forward or repeated."""
    calls = launches(found)
    ranges = [e for e in found if e["cat"] == "user_annotation" and e["name"].startswith("cb:")]
    modules: dict[str | None, Counter[str]] = {}
    for kernel in kernels(found):
        around = innermost(calls[kernel["args"]["correlation"]], ranges)
        path = None if around is None else path_of_range(around["name"])
        modules.setdefault(path, Counter())[kernel["name"]] += 1
    return modules


def times(count: int, modules: dict[str | None, Counter[str]]) -> dict[str | None, Counter[str]]:
    return {p: Counter({n: count * k for n, k in c.items()}) for p, c in modules.items()}


# --- CUDA graphs: each module has the eager step's kernels --------------------------------------


@pytest.mark.parametrize("phase", PHASES)
def test_a_graph_has_the_kernels_of_the_eager_step_module_by_module(
    phase: str, tmp_path: Path, device: torch.device
) -> None:
    work = on_device(towers(), device)
    (tmp_path / "eager").mkdir()
    (tmp_path / "graph").mkdir()
    _, eager = recorded(tmp_path / "eager", work, device, phase=phase)
    manifest, graph = recorded(tmp_path / "graph", work, device, phase=phase, mode="cudagraph")
    assert [t.role for t in manifest.traces][:2] == ["context", "capture"]
    captured = events(tmp_path / "graph", "capture.json.gz")
    once = by_module(captured)
    steps = 2
    assert times(steps, once) == by_module(eager)
    # Graph replays add nothing and lose nothing but what only a capture does.
    assert computing(graph) == Counter({n: steps * k for n, k in computing(captured).items()})
    assert {"left.inner", "left.head", "right.head", "twice", "frozen", "again.up"} <= set(once)


def computing(found: list[Event]) -> Counter[str]:
    return Counter({n: k for n, k in names(found).items() if not n.startswith(("Mem", "mem"))})


# --- the towers in every mode and phase ----------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("mode", get_args(Mode))
def test_the_towers_in_every_mode(
    mode: str, phase: str, tmp_path: Path, device: torch.device
) -> None:
    manifest, found = recorded(
        tmp_path, on_device(towers(), device), device, phase=phase, mode=mode, **PLAIN
    )
    assert (manifest.run.mode, manifest.run.phases[0]) == (mode, "forward")
    assert ("backward" in manifest.run.phases) == (phase == "train")
    assert kernels(found)
    if "compile" in mode:
        assert holes(manifest) == []
        found_products = products(manifest)
        # Done again where the partitioner keeps no output of a checkpoint: versions differ.
        assert found_products.pop(("again.down", "recompute"), 1) == 1
        assert found_products == wanted(phase)
    reasons = {n.reason for n in manifest.notes}
    assert not reasons & {"compile provenance unavailable", "compile provenance incomplete"}


def holes(manifest: Manifest) -> list[CompiledKernel]:
    """Generated kernels of no known module."""
    every = (k for g in manifest.graphs for k in g.kernels)
    return [k for k in every if not any(n.path is not None for n in k.nodes)]


def products(manifest: Manifest) -> Counter[tuple[str | None, str]]:
    """Matrix products by module and phase, from the graphs' nodes."""
    found: Counter[tuple[str | None, str]] = Counter()
    for graph in manifest.graphs:
        seen = {n.name: n for k in graph.kernels for n in k.nodes}
        found.update((n.path, n.phase) for n in seen.values() if is_product(n))
    return found


def is_product(node: CompiledNode) -> bool:
    return node.target.startswith(("aten.mm.", "aten.addmm."))


def wanted(phase: str) -> dict[tuple[str, str], int]:
    forward = dict.fromkeys(
        ("left.inner", "left.head", "right.inner", "right.head", "frozen", "again.up", "again.down",
         "out"), 1,
    ) | {"twice": 2}  # fmt: skip
    one = {"left.inner", "right.inner", "frozen"}  # an input or a weight needs no gradient
    backward = {path: count * (1 if path in one else 2) for path, count in forward.items()}
    found = {(path, "forward"): count for path, count in forward.items()}
    if phase == "train":
        found |= {(path, "backward"): count for path, count in backward.items()}
        found["again.up", "recompute"] = 1
    return found


# --- distinct sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_sizes_of_a_kernel_tell_its_recorded_owners(
    dtype: str, phase: str, tmp_path: Path, device: torch.device
) -> None:
    work: Workload = on_device(net(), device)
    manifest, found = recorded(
        tmp_path, work, device, phase=phase, mode="compile", dtype=dtype, **PLAIN
    )
    graphs = {g.key: g for g in manifest.graphs}
    assert [g.phase for g in graphs.values()] == ["forward", "backward"][: len(graphs)]
    owners: set[str] = set()
    for graph in graphs.values():
        runs = list(runs_of(graph, found))
        assert len(runs) == 2
        for run in runs:
            owners |= check_products(graph, run)
            check_fused(graph, run)
    assert owners == set(SIZES.values())


def runs_of(graph: CompiledGraph, found: list[Event]) -> Iterator[list[Event]]:
    """The outermost operators in each run of a graph, in order."""
    marks = [e for e in found if e["name"] == f"## Call CompiledFxGraph {graph.key} ##"]
    for mark in marks:
        if mark["cat"] == "gpu_user_annotation":
            continue
        inside = sorted(
            (e for e in found if e["cat"] == "cpu_op" and e is not mark and within(e, mark)),
            key=lambda e: (e["ts"], -e["dur"]),
        )
        outer: list[Event] = []
        for event in inside:
            if not outer or event["ts"] >= outer[-1]["ts"] + outer[-1]["dur"]:
                outer.append(event)
        yield outer


def check_products(graph: CompiledGraph, run: list[Event]) -> set[str]:
    """Library products: in order the recorded ones, each with the owner that its sizes tell."""
    seen = [e["args"]["Input Dims"] for e in run if e["name"] in PRODUCTS]
    by_size = [product_owner(dims, backward=graph.phase == "backward") for dims in seen]
    known = [
        main_node(kernel).path
        for kernel in graph.kernels
        if kernel.name.startswith("extern_kernels")
    ]
    assert known == by_size
    return set(by_size)


def main_node(kernel: CompiledKernel) -> CompiledNode:
    return next(n for n in kernel.nodes if is_product(n))


def check_fused(graph: CompiledGraph, run: list[Event]) -> None:
    """Generated kernels: in order the recorded ones; their new nodes fit their tensors' widths."""
    seen = [e for e in run if e["name"].startswith("triton_")]
    known = [k for k in graph.kernels if k.name.startswith("triton_")]
    assert [e["name"] for e in seen] == [k.name for k in known]
    before: set[str] = set()
    for event, kernel in zip(seen, known, strict=True):
        first = [n for n in kernel.nodes if n.name not in before] or kernel.nodes
        before |= {n.name for n in kernel.nodes}
        size = widths(event["args"]["Input Dims"])
        possible = set().union(*(WIDTHS[w] for w in size))
        paths = {n.path for n in first}
        assert size, event
        assert paths - {None} <= possible | {""}, (kernel.name, paths, size)
        assert paths & possible, (kernel.name, paths, size)
