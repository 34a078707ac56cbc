"""Leaves a model and the random generators as they were before a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cb_trace.bundle import Note
from cb_trace.replay.guard import preserved
from cb_trace.replay.module_state import ModuleState


@contextmanager
def intact(model: nn.Module, device: torch.device, *, values: bool = False) -> Iterator[Watch]:
    """Put everything a recording may disturb back, bit for bit, into the same tensors.

    Buffers, training flags, plain attributes, random generators and the process's modes always;
    with ``values`` also parameters and gradients, which a step of the user's own may change. A
    plain forward should change neither, so there they are only watched, not copied.
    """
    held = _held(model) if values else []
    with preserved(model, device) as state:
        try:
            yield Watch(state, copied=values)
        finally:
            for parameter, value, gradient, kept in held:
                parameter.grad = gradient
                _write(parameter, value)
                _write(gradient, kept)


class Watch:
    """Tells what a recording changed for good."""

    def __init__(self, state: ModuleState, *, copied: bool) -> None:
        self._state, self._copied = state, copied

    def notes(self) -> list[Note]:
        """What cannot be put back, for the manifest."""
        if self._copied or not self._state.changed_parameters():
            return []
        detail = "the forward wrote to its parameters, which were not copied before"
        return [Note(reason="parameters changed", detail=detail)]


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
