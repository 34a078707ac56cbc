"""Leaves a model and the random generators as they were before a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from cb_trace.bundle import Note
from cb_trace.replay.guard import preserved
from cb_trace.replay.module_state import ModuleState
from cb_trace.replay.tensors import is_wrapper
from cb_trace.replay.tree import sharded

SAMPLE_ROWS = 64


@contextmanager
def intact(model: nn.Module, device: torch.device, *, values: bool = False) -> Iterator[Watch]:
    """Put everything a recording may disturb back, bit for bit, into the same tensors.

    Buffers, training flags, plain attributes, random generators and the process's modes always;
    with ``values`` also parameters, gradients and optimizers, which a step of the user's own may
    change. A plain forward should change none, so there they are only watched, not copied.
    """
    held = _held(model) if values else []
    with preserved(model, device) as state, _optimizers_kept() if values else nullcontext():
        try:
            yield Watch(model, state, copied=values)
        finally:
            for parameter, value, gradient, kept in held:
                parameter.grad = gradient
                _write(parameter, value)
                _write(gradient, kept)


class Watch:
    """Tells what a recording changed for good."""

    def __init__(self, model: nn.Module, state: ModuleState, *, copied: bool) -> None:
        self._model, self._state, self._copied = model, state, copied
        self._seen = [] if copied else _samples(model)

    def notes(self) -> list[Note]:
        """What cannot be put back, for the manifest."""
        if self._copied:
            return []
        seen = zip(self._seen, _samples(self._model), strict=True)
        same = all(torch.equal(before, now) for before, now in seen)
        if same and not self._state.changed_parameters():
            return []
        detail = "the forward wrote to its parameters, which were not copied before"
        return [Note(reason="parameters changed", detail=detail)]


def _samples(model: nn.Module) -> list[Tensor]:
    """The first rows of every parameter: a write through its ``data`` leaves no other trace."""
    if sharded(model):  # what each rank holds differs from call to call
        return []
    plain = (p for p in model.parameters() if p.layout == torch.strided and not is_wrapper(p))
    return [_copy(p.detach()[:SAMPLE_ROWS] if p.dim() else p) for p in plain]


@contextmanager
def _optimizers_kept() -> Iterator[None]:
    """Optimizers that step in the block have the state again that they had before."""
    kept: dict[int, tuple[Optimizer, ModuleState]] = {}

    def look(optimizer: Optimizer, *_: object) -> None:
        if id(optimizer) not in kept:
            holder = nn.Module()
            vars(holder)["held"] = [optimizer.state, optimizer.param_groups]
            with torch.inference_mode(False), torch.no_grad():
                kept[id(optimizer)] = (optimizer, ModuleState(holder))

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()
        for _, state in kept.values():
            state.put()


_Held = tuple[nn.Parameter, Tensor, Tensor | None, Tensor | None]


def _held(model: nn.Module) -> list[_Held]:
    """Every parameter with a copy of it, its gradient, and a copy of that."""
    return [
        (p, _copy(p), p.grad, None if p.grad is None else _copy(p.grad)) for p in model.parameters()
    ]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _write(tensor: Tensor | None, value: Tensor | None) -> None:
    if tensor is None or value is None:
        return
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(value)
