"""Puts a model and the random generators back as they were before a recording."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from cb_trace.bundle import Note


class Intact:
    """The state a recording may disturb: buffers, training flags, random generators.

    With ``values`` also parameters and gradients, which a step of the user's own may change; a
    plain forward should change neither, so there they are watched by version, not copied.
    """

    def __init__(self, model: nn.Module, *, values: bool = False) -> None:
        self._modules = [(module, module.training) for module in model.modules()]
        self._buffers = [
            (module, name, buffer, _copy(buffer))
            for module, _ in self._modules
            for name, buffer in module._buffers.items()
        ]
        self._parameters = [
            (parameter, _version(parameter), _copy(parameter) if values else None)
            for parameter in model.parameters()
        ]
        self._gradients = [
            (parameter, parameter.grad, _copy(parameter.grad) if values else None)
            for parameter in model.parameters()
        ]
        self._generators = _generators()

    def changes(self) -> list[Note]:
        """What the recording changed and :meth:`restore` cannot undo."""
        count = sum(
            saved is None and _version(parameter) != version
            for parameter, version, saved in self._parameters
        )
        detail = "the forward wrote to its parameters, which were not copied before"
        return [Note(reason="parameters changed", detail=detail, count=count)] if count else []

    def restore(self) -> None:
        """Put everything back, bit for bit, into the same tensors."""
        for module, training in self._modules:
            module.training = training
        for module, name, buffer, saved in self._buffers:
            module._buffers[name] = buffer
            _write(buffer, saved)
        for parameter, _, saved in self._parameters:
            _write(parameter, saved)
        for parameter, gradient, saved in self._gradients:
            parameter.grad = gradient
            _write(gradient, saved)
        _restore_generators(self._generators)


_Generators = tuple[object, Tensor, list[Tensor]]


def _generators() -> _Generators:
    """States of Python's, torch's and every device's generator."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return random.getstate(), torch.get_rng_state(), cuda


def _restore_generators(state: _Generators) -> None:
    python, cpu, cuda = state
    random.setstate(python)  # type: ignore[arg-type]
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _write(tensor: Tensor | None, saved: Tensor | None) -> None:
    if tensor is None or saved is None or _same_bits(tensor, saved):
        return  # untouched: not even its version counter moves
    with torch.inference_mode(mode=tensor.is_inference()), torch.no_grad():
        tensor.copy_(saved)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal in every bit; unlike ``torch.equal``, NaN equals itself."""
    if a.layout is not torch.strided or a.is_quantized or a.shape != b.shape:
        return False
    first, second = (t.detach().contiguous().view(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(first, second)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
