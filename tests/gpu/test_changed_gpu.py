"""On a GPU: modules taken out of compiled steps, and modules on half of their batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from cb_trace.capture.compiled import CompiledModel, fresh_compiler, settle
from cb_trace.capture.owners import Owners
from cb_trace.capture.provenance import Provenance
from cb_trace.capture.tree import module_tree
from cb_trace.capture.variants import CompiledWay
from cb_trace.replay.knockout import Job, KnockoutOptions, knock_out, speed_up

pytestmark = pytest.mark.gpu

OPTIONS = KnockoutOptions(paths=("1",), budget_seconds=4)


class Step:
    """Four equal layers with a pointwise module behind each."""

    def __init__(self, device: torch.device) -> None:
        parts = [nn.Sequential(nn.Linear(4096, 4096, bias=False), nn.GELU()) for _ in range(4)]
        self.net = nn.Sequential(*parts).to(device, torch.bfloat16).eval()
        self.x = torch.randn(8192, 4096, device=device, dtype=torch.bfloat16)
        self.tree = module_tree(self.net)

    def __call__(self) -> object:
        with torch.no_grad():
            return self.net(self.x)


@pytest.fixture
def step(device: torch.device) -> Step:
    return Step(device)


@pytest.fixture
def way(step: Step, device: torch.device) -> Iterator[CompiledWay]:
    owners = Owners(step.tree)
    provenance = Provenance(owners)
    with fresh_compiler(device), CompiledModel(step.net, {}).installed():
        with provenance.collecting():
            settle(step)
        with CompiledWay(step.net, step, {}, owners, provenance.graphs()) as made:
            yield made


def lost(base_ns: list[int], changed_ns: list[int]) -> float:
    """What the step lost, of its length."""
    losses = sorted(b - k for b, k in zip(base_ns, changed_ns, strict=True))
    return losses[len(losses) // 2] / sorted(base_ns)[len(base_ns) // 2]


def test_one_of_four_layers_taken_out_of_compiled_code(
    step: Step, way: CompiledWay, device: torch.device
) -> None:
    records = knock_out(
        step.tree.modules, step, device, "forward", OPTIONS, [], graph=True, progress=print, way=way
    )
    assert [(r.deployment, r.skipped) for r in records] == [("eager", None), ("graph", None)]
    found = {r.deployment: lost(r.base_ns, r.knocked_ns) for r in records}
    assert all(0.2 < part < 0.3 for part in found.values()), found
    assert "forward" not in vars(step.net[1])


def test_a_layer_on_half_of_its_batch_saves_an_eighth(step: Step, device: torch.device) -> None:
    records = speed_up(
        step.tree.modules, step, device, [Job("1", 2)], OPTIONS, graph=True, progress=print
    )
    assert [(r.deployment, r.skipped) for r in records] == [("eager", None), ("graph", None)]
    assert all(0.09 < lost(r.base_ns, r.faster_ns) < 0.16 for r in records)


def test_a_compiled_layer_on_half_of_its_batch_saves_an_eighth(
    step: Step, way: CompiledWay, device: torch.device
) -> None:
    records = speed_up(
        step.tree.modules, step, device, [Job("1", 2)], OPTIONS, graph=True, progress=print,
        way=way,
    )  # fmt: skip
    assert [(r.deployment, r.skipped) for r in records] == [("eager", None), ("graph", None)]
    assert all(0.08 < lost(r.base_ns, r.faster_ns) < 0.17 for r in records)
