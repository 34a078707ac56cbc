"""A module's own state is read, compared and put back."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cb_trace.replay.module_state import ModuleState


class Stateful(nn.Module):
    """Keeps a buffer, a list, an object and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4))
        self.history: list[torch.Tensor] = []
        self.cache = Holder()
        self.steps = 0

    table: torch.Tensor


class Holder:
    def __init__(self) -> None:
        self.tensor = torch.zeros(2)


def _write_buffer(m: Stateful) -> None:
    m.table.add_(1)


def _new_buffer(m: Stateful) -> None:
    m.table = torch.ones(4)


def _grow(m: Stateful) -> None:
    m.history.append(torch.ones(1))


def _write_object(m: Stateful) -> None:
    m.cache.tensor.add_(1)


def _exchange_object(m: Stateful) -> None:
    m.cache.tensor = torch.ones(2)


def _count(m: Stateful) -> None:
    m.steps += 1


def _add(m: Stateful) -> None:
    m.extra = torch.ones(1)


CHANGES = [_write_buffer, _new_buffer, _grow, _write_object, _exchange_object, _count, _add]


def undone(module: nn.Module, change: Any) -> None:
    """A change of the inner module is seen, and put back."""
    state = ModuleState(module)
    assert not state.changed()
    change(module[0])  # type: ignore[index]
    assert state.changed()
    state.put()
    assert not state.changed()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_modules_own_state_is_seen_and_undone(change: Any) -> None:
    module = nn.Sequential(Stateful())
    inner: Any = module[0]
    table, cache, tensor = inner.table, inner.cache, inner.cache.tensor
    undone(module, change)
    assert inner.table is table
    assert inner.cache is cache
    assert inner.cache.tensor is tensor
    assert (table.tolist(), tensor.tolist()) == ([0.0] * 4, [0.0] * 2)
    assert (inner.history, inner.steps, hasattr(inner, "extra")) == ([], 0, False)


def test_running_statistics_are_restored_but_are_no_change_of_the_work() -> None:
    norm = nn.BatchNorm1d(3)
    state = ModuleState(norm)
    norm(torch.randn(8, 3))
    assert norm.running_mean is not None
    assert norm.running_mean.abs().sum() > 0
    assert not state.changed()
    state.put()
    assert norm.running_mean.tolist() == [0.0] * 3
    assert norm.num_batches_tracked == torch.tensor(0)


def test_a_write_to_a_parameter_is_seen() -> None:
    layer = nn.Linear(2, 2)
    state = ModuleState(layer)
    assert not state.changed_parameters()
    with torch.no_grad():
        layer.weight.add_(1)
    assert state.changed_parameters()


def test_an_inference_buffer_is_seen_and_restored() -> None:
    module = Stateful()
    with torch.inference_mode():
        module.table = torch.zeros(4)
        state = ModuleState(module)
        module.table.add_(1)
    assert state.changed()
    state.put()
    assert module.table.tolist() == [0.0] * 4
    assert module.table.is_inference()


@dataclass(slots=True)
class Slotted:
    """A cache without a ``__dict__``."""

    keys: torch.Tensor
    length: int = 0


class Odd(nn.Module):
    """State that is neither a buffer nor a plain attribute that is exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Slotted(torch.zeros(3))
        self.counts = np.zeros(2)
        self.hidden = [nn.BatchNorm1d(4)]


def _write_slot(odd: Any) -> None:
    odd.cache.keys.add_(1)


def _set_slot(odd: Any) -> None:
    odd.cache.length += 1


def _write_array(odd: Any) -> None:
    odd.counts += 1


@pytest.mark.parametrize("change", [_write_slot, _set_slot, _write_array])
def test_slots_and_arrays_are_state(change: Any) -> None:
    module = nn.Sequential(Odd())
    odd: Any = module[0]
    keys, counts = odd.cache.keys, odd.counts
    undone(module, change)
    assert odd.cache.keys is keys
    assert odd.counts is counts
    assert (keys.tolist(), odd.cache.length, counts.tolist()) == ([0.0] * 3, 0, [0.0] * 2)


def test_a_module_that_is_registered_nowhere_goes_back_too() -> None:
    odd = Odd()
    norm = odd.hidden[0]
    state = ModuleState(odd)
    norm(torch.randn(8, 4))
    norm.eval()
    state.put()
    assert (norm.training, norm.num_batches_tracked) == (True, torch.tensor(0))
    assert norm.running_var is not None
    assert norm.running_var.tolist() == [1.0] * 4


def test_generators_go_back_and_are_no_change_of_the_work() -> None:
    module: Any = nn.ReLU()
    module.generators = (
        *(torch.Generator().manual_seed(1), random.Random(2), np.random.default_rng(3)),
        np.random.RandomState(4),
    )
    state = ModuleState(module)

    def drawn() -> list[float]:
        own, python, numpy, legacy = module.generators
        others = [python.random(), numpy.random(), legacy.rand()]
        return [*torch.rand(2, generator=own).tolist(), *others]

    first = drawn()
    assert not state.changed()
    state.put()
    assert drawn() == first


def test_a_parameter_whose_data_was_exchanged_gets_its_own_back() -> None:
    layer = nn.Linear(2, 2)
    before, place = layer.weight.detach().clone(), layer.weight.data_ptr()
    state = ModuleState(layer)
    layer.weight.data = layer.weight.data * 2
    assert state.changed()
    assert not state.changed_parameters()  # it can be undone
    state.put()
    assert not state.changed()
    assert (layer.weight.data_ptr(), layer.weight.tolist()) == (place, before.tolist())


def test_a_buffer_that_has_grown_shrinks_again() -> None:
    module: Any = nn.ReLU()
    module.cache = torch.zeros(2)
    state = ModuleState(module)
    module.cache.data = torch.ones(5)
    assert state.changed()
    state.put()
    assert module.cache.tolist() == [0.0] * 2


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_module_goes_back() -> None:
    scripted: Any = torch.jit.script(nn.Sequential(nn.BatchNorm1d(4)))
    (norm,) = scripted.children()
    mean = norm.running_mean
    state = ModuleState(scripted)
    scripted(torch.randn(8, 4))
    norm.running_mean = torch.ones(4)
    assert state.changed()
    state.put()
    assert not state.changed()
    assert norm.running_mean is mean
    assert (mean.tolist(), norm.num_batches_tracked.item()) == ([0.0] * 4, 0)
