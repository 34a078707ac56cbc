"""Training, compiled and graphed recordings on the GPU: what a bundle holds for attribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from cb_trace.bundle import Manifest
from cb_trace.capture.modes import CHANGED, COMPILED_AGAIN
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.errors import CbTraceError
from cb_trace.providers import load
from cb_trace.providers.workload import Workload
from cb_trace.range_names import parameter_of_range, path_of_range, replay_range
from cb_trace.replay.hooks import SHARDED
from tests.capture.models import towers
from tests.capture.test_record import state
from tests.capture.test_train import events

pytestmark = pytest.mark.gpu

QUICK = RecordOptions(
    device="cuda", warmup=2, steps=2, bare_samples=5, bare_seconds=0.1, replay=False
)
Event = dict[str, Any]


def on_device(workload: Workload, device: torch.device) -> Workload:
    args = pytree.tree_map(lambda value: value.to(device), workload.args)
    return replace(workload, model=workload.model.to(device), args=args)


def recorded(
    folder: Path, workload: Workload, device: torch.device, **options: Any
) -> tuple[Manifest, list[Event]]:
    """Record the workload, and see that its model is as before."""
    before = state(workload.model)
    manifest = record(workload, folder, replace(QUICK, device=str(device), **options))
    assert state(workload.model) == before
    return manifest, events(folder)


def kernels(found: list[Event]) -> list[Event]:
    return [e for e in found if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]


def names(found: list[Event]) -> Counter[str]:
    return Counter(e["name"] for e in kernels(found))


def test_train(tmp_path: Path, device: torch.device) -> None:
    manifest, found = recorded(tmp_path, on_device(towers(), device), device, phase="train")
    assert manifest.run.phases == ["forward", "backward", "recompute", "optimizer"]
    marks = Counter(parameter_of_range(e["name"]) for e in found if e["cat"] == "user_annotation")
    assert all(marks[p.name] == 2 * p.trainable for p in manifest.parameters)
    on_host = [e for e in found if e["cat"] == "user_annotation"]
    steps = [e for e in on_host if e["name"].startswith("ProfilerStep#")]
    threads = {e["tid"] for e in on_host if parameter_of_range(e["name"]) is not None}
    assert {e["tid"] for e in steps}.isdisjoint(threads)  # the autograd thread is another
    first = min(e["ts"] for e in steps)
    assert all(e["ts"] >= first for e in kernels(found))  # the warm-up step is not recorded


@pytest.fixture
def _no_padding() -> Iterator[None]:
    """Inductor pads the product with three columns where its own timing finds that faster, so two
    compilations beside other work on the device may differ.
    """
    from torch._inductor import config

    with config.patch(shape_padding=False):
        yield


@pytest.mark.usefixtures("_no_padding")
@pytest.mark.parametrize("phase", ["forward", "train"])
def test_compile(phase: str, tmp_path: Path, device: torch.device) -> None:
    manifest, found = recorded(
        tmp_path, on_device(towers(), device), device, phase=phase, mode="compile"
    )
    wanted = ["forward"] if phase == "forward" else ["forward", "backward"]
    assert [g.phase for g in manifest.graphs] == wanted
    calls = Counter(e["name"] for e in found)
    assert all(calls[f"## Call CompiledFxGraph {g.key} ##"] >= 2 for g in manifest.graphs)
    ran = names(found)
    generated = Counter(
        k.name for g in manifest.graphs for k in g.kernels if k.name.startswith("triton")
    )
    assert generated
    assert all(ran[name] == 2 * count for name, count in generated.items())
    nodes = [n for g in manifest.graphs for k in g.kernels for n in k.nodes]
    known = {m.path for m in manifest.modules}
    assert {n.path for n in nodes} <= {*known, None}
    assert sum(n.path is None for n in nodes) <= 0.02 * len(nodes)
    timed = {(s.kind, s.deployment) for s in manifest.step_samples}
    assert ("graph" in {t.role for t in manifest.traces}) == (("bare", "graph") in timed)
    unwanted = {CHANGED, COMPILED_AGAIN, "compile provenance unavailable"}
    assert [n.detail for n in manifest.notes if n.reason in unwanted] == []


@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("mode", ["cudagraph", "compile+cudagraph"])
def test_graph(mode: str, phase: str, tmp_path: Path, device: torch.device) -> None:
    workload = load("nanogpt", settings={"layers": 1}, device=str(device))
    manifest, found = recorded(
        tmp_path, workload, device, phase=phase, mode=mode, compare_plain=False
    )
    assert [t.role for t in manifest.traces] == ["context", "capture", "sequence"]
    kinds = {(s.kind, s.deployment) for s in manifest.step_samples}
    timed = {("bare", "graph"), ("profiled", "graph"), ("bare_after", "graph")}
    assert kinds == {*timed, ("sequence", "graph")}
    launches = [e for e in found if e["name"] == "cudaGraphLaunch"]
    assert len(launches) == 2
    reference = events(tmp_path, "capture.json.gz")
    roots = [
        e for e in reference if path_of_range(e["name"]) == "" and e["cat"] != "gpu_user_annotation"
    ]
    assert len(roots) == 1
    assert (
        sum(
            e["name"].startswith("ProfilerStep#")
            for e in reference
            if e["cat"] == "user_annotation"
        )
        == 1
    )
    once, twice = names(reference), names(found)
    computing = {n for n in once if not n.startswith(("Memcpy", "Memset"))}
    assert computing
    assert {n: twice[n] for n in computing} == {n: 2 * once[n] for n in computing}
    assert bool(manifest.graphs) == ("compile" in mode)


@pytest.mark.parametrize("mode", ["eager", "cudagraph"])
def test_a_training_step_is_captured_after_replays(
    mode: str, tmp_path: Path, device: torch.device
) -> None:
    """Nothing of the replays, nor of the pass that counts, keeps what ran on another stream."""
    workload = load("nanogpt", settings={"layers": 1}, device=str(device))
    manifest, _ = recorded(
        tmp_path, workload, device, phase="train", mode=mode, dtype="bf16", replay=True,
        replay_seconds=5.0, profiled_calls=1,
    )  # fmt: skip
    roles = {t.role for t in manifest.traces}
    assert "sequence" in roles, manifest.notes
    assert ("graph" in roles) == (mode == "eager")  # else it is the context
    assert ("bare", "graph") in {(s.kind, s.deployment) for s in manifest.step_samples}
    assert {r.phase for r in manifest.replays if r.samples_ns} == {"forward", "backward"}


@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")  # one rank has nothing to shard
def test_sharded_modules_keep_their_paths_and_are_not_replayed(
    tmp_path: Path, device: torch.device
) -> None:
    from torch import distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        inner = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
        model = FullyShardedDataParallel(inner, device_id=device, use_orig_params=True)
        workload = Workload("fsdp", model, (torch.randn(4, 8, device=device),))
        options = replace(QUICK, phase="train", replay=True, graph=False)
        manifest = record(workload, tmp_path, options)
    finally:
        dist.destroy_process_group()
    assert [m.path for m in manifest.modules] == ["", "0", "1", "1.0", "1.1"]
    assert manifest.run.phases == ["forward", "backward", "optimizer"]
    assert {r.skipped for r in manifest.replays} == {SHARDED}


def test_a_step_that_cannot_be_captured_is_an_error(tmp_path: Path, device: torch.device) -> None:
    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x.sum().item()

    workload = Workload("looks", Looks(), (torch.ones(4, device=device),))
    with pytest.raises(CbTraceError, match="the step of looks cannot be captured"):
        record(workload, tmp_path, replace(QUICK, mode="cudagraph"))


def test_modules_compiled_alone(tmp_path: Path, device: torch.device) -> None:
    workload = load("nanogpt", settings={"layers": 1}, device=str(device))
    manifest, _ = recorded(
        tmp_path, workload, device, mode="compile", replay=True, replay_seconds=60.0,
        profiled_calls=1, compare_plain=False,
    )  # fmt: skip
    taken = {r.replay_id for r in manifest.replays if r.samples_ns}
    measured = {(r.path, r.condition) for r in manifest.replays if r.measured_id in taken}
    for path in ("", "h.0", "h.0.mlp", "ln_f"):  # ln_f is alike a norm before it: one measurement
        assert {(path, how) for how in ("hot", "cold", "graph", "eager")} <= measured


def test_the_backward_alone_is_launched_inside_its_ranges(
    tmp_path: Path, device: torch.device
) -> None:
    workload = on_device(towers(), device)
    manifest, _ = recorded(
        tmp_path, workload, device, phase="train", replay=True, replay_seconds=10.0, graph=False
    )
    own = [r for r in manifest.replays if r.measured_id == r.replay_id and r.phase == "backward"]
    hot = {r.path: r for r in own if r.condition == "hot"}
    assert hot["out"].samples_ns
    assert {"hot", "cold"} <= {r.condition for r in own}
    found = [e for t in manifest.traces if t.role == "isolated" for e in events(tmp_path, t.file)]
    (span,) = [
        e for e in found
        if e["name"] == replay_range(hot["out"].replay_id, 0) and e["cat"] == "user_annotation"
    ]  # fmt: skip
    launched = {
        e["args"].get("correlation") for e in found
        if e["cat"] in {"cuda_runtime", "cuda_driver"} and e["tid"] == span["tid"]
        and span["ts"] <= e["ts"] <= span["ts"] + span["dur"]
    }  # fmt: skip
    assert sum(e["args"].get("correlation") in launched for e in kernels(found)) >= 2
