"""The process's state is recorded, reproduced and restored."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from cb_trace.replay.guard import CallState, RngState, preserved

CPU = torch.device("cpu")


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
    assert state.same(RngState.now())
    wanted = (torch.rand(3).tolist(), random.random(), np.random.rand())
    state.put()
    assert state.same(RngState.now())
    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == wanted


def test_a_draw_from_numpy_alone_is_seen() -> None:
    state = RngState.now()
    np.random.rand()
    assert not state.same(RngState.now())


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
