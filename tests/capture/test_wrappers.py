"""Models in real wrappers, trained: canonical paths, and what cannot be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from cb_trace.bundle import Manifest
from cb_trace.capture.record import record
from cb_trace.providers.workload import Workload
from cb_trace.range_names import parameter_of_range, path_of_range
from cb_trace.replay.hooks import SHARDED
from cb_trace.replay.isolated import RECOMPUTES
from cb_trace.replay.tree import sharded
from tests.capture.test_ranges import hook_count
from tests.capture.test_record import QUICK, state
from tests.capture.test_train import TRAIN, events

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

PATHS = ["", "front", "block", "block.0", "block.1"]
PARAMETERS = [f"{path}.{name}" for path in ("front", "block.0") for name in ("weight", "bias")]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(8, 8)
        self.block: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(self.front(x))
        return out


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """A process group of this process."""
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(model: nn.Module, folder: Path) -> Manifest:
    """Record training steps, and see what the trace and the model hold afterwards."""
    hooks = hook_count(model)
    options = replace(TRAIN, replay=True, replay_seconds=5.0)
    manifest = record(Workload("m", model, (torch.randn(4, 8),)), folder, options)
    assert hook_count(model) == hooks
    assert [m.path for m in manifest.modules] == PATHS
    assert [p.name for p in manifest.parameters] == PARAMETERS
    found = events(folder)
    marks = Counter(parameter_of_range(e["name"]) for e in found)
    assert {name: marks[name] for name in PARAMETERS} == dict.fromkeys(PARAMETERS, 2)
    called = Counter(path_of_range(e["name"]) for e in found)
    assert {path for path, _ in called.items() if path is not None} == set(PATHS)
    assert {n.reason for n in manifest.notes}.isdisjoint(
        {"never called", "instrumentation changed the kernels", "work not counted"}
    )
    return manifest


def test_data_parallel(alone: None, tmp_path: Path) -> None:
    model = DistributedDataParallel(Net())
    before = state(model)
    manifest = trained(model, tmp_path)
    assert state(model) == before
    assert manifest.run.phases == ["forward", "backward", "optimizer"]
    assert {r.skipped for r in manifest.replays} == {None}
    assert {r.path for r in manifest.replays} == set(PATHS)


def test_fully_sharded(alone: None, tmp_path: Path) -> None:
    model, mesh = Net(), init_device_mesh("cpu", (1,))
    fully_shard(model.block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    before = {name: p.full_tensor().tolist() for name, p in model.named_parameters()}  # type: ignore[attr-defined]
    manifest = trained(model, tmp_path)
    after = {name: p.full_tensor().tolist() for name, p in model.named_parameters()}  # type: ignore[attr-defined]
    assert after == before
    assert manifest.run.phases == ["forward", "backward", "optimizer"]
    # Alone, a module would be called with its parameters in pieces.
    assert {r.skipped for r in manifest.replays} == {SHARDED}
    assert {r.path for r in manifest.replays} == set(PATHS)


def test_a_module_beside_the_sharded_one_is_replayed(alone: None) -> None:
    model = Net()
    fully_shard(model.block, mesh=init_device_mesh("cpu", (1,)))
    found = sharded(model)
    assert {path for path, m in model.named_modules() if id(m) not in found} == {"front"}
    assert sharded(Net()) == frozenset()


def test_checkpointed(tmp_path: Path) -> None:
    model = Net()
    model.block = checkpoint_wrapper(model.block)
    before = state(model)
    manifest = trained(model, tmp_path)
    assert state(model) == before
    assert manifest.run.phases == ["forward", "backward", "recompute", "optimizer"]
    called = Counter(path_of_range(e["name"]) for e in events(tmp_path))
    assert (called["block"], called["block.0"], called["front"]) == (4, 4, 2)
    # Alone, the backward of what holds a checkpointed block would run its forward again.
    assert {(r.path, r.phase) for r in manifest.replays if r.skipped} == {("", "backward")}
    assert {r.skipped for r in manifest.replays} == {None, RECOMPUTES}


def test_a_forward_of_a_wrapped_model_is_the_models_own(alone: None, tmp_path: Path) -> None:
    model = DistributedDataParallel(checkpoint_wrapper(Net()))
    options = replace(QUICK, replay=False)
    manifest = record(Workload("m", model, (torch.randn(4, 8),)), tmp_path, options)
    assert (manifest.modules[0].path, manifest.modules[0].class_name) == ("", "Net")
    called = Counter(path_of_range(e["name"]) for e in events(tmp_path))
    assert {path: called[path] for path in PATHS} == dict.fromkeys(PATHS, 2)
