"""Memory of small modules in the step and alone: literal bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cb_trace.accounts import MemoryRecord
from cb_trace.capture.tree import module_tree
from cb_trace.replay.cost import StepAccount
from tests.replay.support import CPU, replayer

GIVEN = torch.ones(4, 8)


def held(model: nn.Module, step: Any, *, grad: bool) -> dict[tuple[str, str, str], Any]:
    """Peak, saved and output bytes by path, phase and scope."""
    found = StepAccount(model, module_tree(model).records, CPU)
    with torch.set_grad_enabled(grad):
        found.run(step)
        walk = replayer(model, step)
        walk.capture()
        records: list[MemoryRecord] = [*found.memories, *walk.footprints(None)]
    return {
        (m.path, m.phase, m.scope): (m.peak_bytes, m.saved_for_backward_bytes, m.output_bytes)
        for m in records
    }


def wide() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 1000), nn.Linear(1000, 1))


@pytest.mark.parametrize("scope", ["context", "isolated"])
@pytest.mark.parametrize("grad", [False, True])
def test_two_layers(grad: bool, scope: str) -> None:
    net = wide()
    found = held(net, lambda: net(GIVEN), grad=grad)
    given, hidden, out = 4 * 8 * 4, 4 * 1000 * 4, 4 * 4
    assert found["0", "forward", scope] == (hidden, grad * given, hidden)
    assert found["1", "forward", scope] == (out, grad * hidden, out)
    assert found["", "forward", scope] == (hidden + out, grad * (given + hidden), out)


class Chain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp().sin().cos()


def test_what_is_freed_makes_room() -> None:
    net = Chain()
    found = held(net, lambda: net(GIVEN), grad=False)
    assert found["", "forward", "context"] == (2 * GIVEN.nbytes, 0, GIVEN.nbytes)


def test_what_the_backward_needs_is_kept() -> None:
    net, given = Chain(), torch.ones(4, 8, requires_grad=True)
    found = held(net, lambda: net(given), grad=True)
    # exp keeps its result, sin and cos their inputs: exp's once, sin's
    assert found["", "forward", "context"] == (3 * given.nbytes, 2 * given.nbytes, given.nbytes)


def test_in_place_work_takes_nothing() -> None:
    net = nn.ReLU(inplace=True)
    given = torch.ones(4, 8)
    assert held(net, lambda: net(given), grad=False)["", "forward", "context"][0] == 0


def test_saved_storages_of_several_calls_add_up() -> None:
    linear = nn.Linear(8, 8)
    net = nn.Sequential(linear)
    found = held(net, lambda: net(net(GIVEN)), grad=True)
    assert found["0", "forward", "context"][1] == 2 * GIVEN.nbytes  # of both calls
    assert found["0", "forward", "isolated"][1] == 2 * GIVEN.nbytes


def test_parameters_are_not_saved_activations() -> None:
    linear = nn.Linear(8, 8)
    given = torch.ones(4, 8, requires_grad=True)  # so that the weight is saved, too
    assert held(linear, lambda: linear(given), grad=True)["", "forward", "context"][1] == 128


def test_a_backward_has_its_own_peak() -> None:
    net = wide()
    found = held(net, lambda: net(GIVEN).sum().backward(), grad=True)
    weight, bias, hidden = 1000 * 4, 4, 4 * 1000 * 4
    assert found["1", "backward", "context"][0] == hidden + weight + bias
    assert found["", "backward", "context"][0] >= found["1", "backward", "context"][0]


def test_a_copy_that_is_shared_is_found_for_both() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    found = held(net, lambda: net(GIVEN), grad=False)
    assert found["0", "forward", "isolated"] == found["1", "forward", "isolated"]


def test_the_step_is_left_as_it_was() -> None:
    net = nn.BatchNorm1d(8)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    held(net, lambda: net(GIVEN), grad=False)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())


def test_a_module_that_refuses_to_be_counted_has_no_figures_and_breaks_nothing() -> None:
    class Slope(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            slope: Tensor = torch.func.grad(lambda y: y.square().sum())(x)
            return slope

    net = nn.Sequential(nn.ReLU(), Slope())
    found = held(net, lambda: net(GIVEN), grad=False)
    assert {key[0] for key in found if key[2] == "isolated"} == {"0"}
