"""State is recorded, reproduced and restored: of the process and of modules."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.replay.guard import CallState, ModuleState, RngState, preserved

CPU = torch.device("cpu")


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


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_modules_own_state_is_seen_and_undone(change: Any) -> None:
    module = nn.Sequential(Stateful())
    inner: Any = module[0]
    table, cache, tensor = inner.table, inner.cache, inner.cache.tensor
    state = ModuleState(module)
    assert not state.changed()
    change(inner)
    assert state.changed()
    state.put()
    assert not state.changed()
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


def test_the_state_of_a_call_is_reproduced_and_left_again() -> None:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        inside = CallState.now(CPU)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
    outside = CallState.now(CPU)
    assert inside.key != outside.key
    with inside.entered(CPU):
        assert CallState.now(CPU).key == inside.key
        assert torch.zeros(1).dtype == torch.float64
        assert (torch.ones(2, 2).float() @ torch.ones(2, 2).float()).dtype == torch.bfloat16
    assert CallState.now(CPU).key == outside.key


def test_inference_mode_is_reproduced() -> None:
    with torch.inference_mode():
        inside = CallState.now(CPU)
    with inside.entered(CPU):
        assert torch.is_inference_mode_enabled()
        assert torch.zeros(1).is_inference()
    assert not torch.is_inference_mode_enabled()


def test_state_is_left_after_an_error() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = CallState.now(CPU)
    before = CallState.now(CPU).key
    with pytest.raises(ValueError, match="broken"), inside.entered(CPU):
        raise ValueError("broken")
    assert CallState.now(CPU).key == before


def test_generators_go_back() -> None:
    state = RngState.now()
    wanted = (torch.rand(3), random.random())
    state.put()
    assert (torch.rand(3).tolist(), random.random()) == (wanted[0].tolist(), wanted[1])


def test_preserved_restores_model_flags_and_generators() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    rng, key = torch.get_rng_state(), CallState.now(CPU).key

    def disturb() -> None:
        with preserved(model, CPU):
            model(torch.randn(8, 3))
            model.eval()
            torch.set_default_dtype(torch.float64)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        disturb()
    assert all(m.training for m in model.modules())
    assert all(torch.equal(v, saved[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert CallState.now(CPU).key == key
