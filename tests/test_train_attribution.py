"""Each module's backward in a training step against steps in which only it needs gradients."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor, nn

from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from tests.capture.models import towers
from tests.capture.test_record import QUICK
from tests.test_conduct import rows

TRAIN = replace(QUICK, phase="train", replay=False, steps=1, bare_samples=1)
MODULES = (
    "", "left.inner", "left.act", "left.head", "right.inner", "right.act", "right.head", "twice",
    "frozen", "again", "again.up", "again.down", "out",
)  # fmt: skip
CONTAINERS = {"left", "right"}  # their forward does nothing but call
# Operators that compute; views and the like have next to no time, and then no row.
COMPUTES = (
    "aten::mm", "aten::sum", "aten::add", "aten::add_", "aten::mul", "aten::gelu_backward",
    "aten::threshold_backward",
)  # fmt: skip


def workload() -> Workload:
    """The towers, with inputs that need gradients: they pass through every module."""
    work = towers()
    work.model.register_forward_pre_hook(begin)
    return work


def begin(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients begin here, if they have not yet."""
    return tuple(x if x.requires_grad else x.detach().requires_grad_() for x in args)


def backward_kernels(work: Workload, folder: Path) -> dict[str, Counter[str]]:
    """Computing operators of the backward by module."""
    (folder / "bundle").mkdir(parents=True)
    record(work, folder / "bundle", TRAIN)
    profile = ingest(folder / "bundle", folder / "p.duckdb").profile
    found = rows(
        profile,
        "SELECT module.path, op.name, count(DISTINCT op.op_id) FROM kernel_module AS part "
        "JOIN kernel USING (kernel_id) JOIN op USING (op_id) JOIN module USING (module_id) "
        "WHERE part.phase = 'backward' AND kernel.step = 0 GROUP BY ALL",
    )
    kernels: dict[str, Counter[str]] = {}
    for path, name, count in found:
        if name in COMPUTES:
            kernels.setdefault(path, Counter())[name] = count
    return kernels


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    return backward_kernels(workload(), tmp_path_factory.mktemp("whole"))


def alone(path: str) -> Workload:
    """Gradients begin at one module: at its own parameters, and at what it is first given."""
    work = towers()
    module = work.model.get_submodule(path)
    work.model.requires_grad_(False)
    for parameter in module.parameters(recurse=False):
        parameter.requires_grad_(path != "frozen")

    module.register_forward_pre_hook(begin)

    def step() -> None:
        work.model(*work.args).square().mean().backward()
        work.model.zero_grad()

    return replace(work, step=step, loss=None, optimizer=None)


def test_a_linear_backward_is_two_products_and_a_sum(whole: dict[str, Counter[str]]) -> None:
    assert whole["out"] == {"aten::mm": 2, "aten::sum": 1}
    assert whole["frozen"] == {"aten::mm": 1}
    assert whole["twice"]["aten::mm"] == 4
    assert whole["left.act"] == {"aten::gelu_backward": 1}
    assert whole["again"] == {"aten::threshold_backward": 1}
    assert whole[""] == {"aten::mul": 2 + 3}  # the towers' product; the loss


def test_the_sum_of_a_shared_weights_gradients_is_of_the_module_that_came_last(
    whole: dict[str, Counter[str]],
) -> None:
    assert (whole["left.head"]["aten::add"], whole["right.head"]["aten::add"]) == (1, 0)
    assert whole["left.head"]["aten::mm"] == whole["right.head"]["aten::mm"] == 2


def test_all_modules_of_the_towers_are_held_to_a_run_of_their_own(
    whole: dict[str, Counter[str]],
) -> None:
    paths = {path for path, _ in towers().model.named_modules()}
    assert set(whole) == set(MODULES) == paths - CONTAINERS


@pytest.mark.parametrize("path", MODULES)
def test_a_modules_kernels_are_those_it_has_when_only_it_trains(
    path: str, whole: dict[str, Counter[str]], tmp_path: Path
) -> None:
    assert backward_kernels(alone(path), tmp_path)[path] == whole[path]
