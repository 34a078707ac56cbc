"""A training step: forward, loss, backward, optimizer, gradients dropped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from cb_trace.bundle import Note
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload
from cb_trace.replay.inputs import tensors_of

DEFAULT_RATE = 1e-3


class TrainingStep:
    """Call it to run one step. ``notes`` says what stands in for what the workload leaves open.

    The backward and the optimizer run outside autocast, as torch's documentation of autocast asks.
    Gradients are dropped at the end, so every step allocates its own and none is added to.
    """

    def __init__(
        self, workload: Workload, autocast: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self.notes: list[Note] = []
        self._workload, self._autocast = workload, autocast
        self._loss = workload.loss or _mean_of_outputs
        self._advanced = False
        given = tensors_of((workload.args, workload.kwargs))
        self._inputs = [t for t in given if t.requires_grad and t.is_leaf and t.grad is None]
        self._optimizer: torch.optim.Optimizer | None = None
        if workload.loss is None:
            detail = "mean of every floating output, added up"
            self.notes.append(Note(reason="default loss", detail=detail))
        if workload.optimizer is None:
            detail = f"plain SGD, learning rate {DEFAULT_RATE}"
            self.notes.append(Note(reason="default optimizer", detail=detail))

    def __call__(self) -> None:
        workload = self._workload
        with torch.enable_grad():
            with self._autocast():
                loss = self._loss(workload.model(*workload.args, **workload.kwargs))
            if self._optimizer is None:  # after a forward: lazy parameters have shapes by now
                self._optimizer = _optimizer(workload)
            loss.backward()  # type: ignore[no-untyped-call]
        self._advance(self._optimizer)
        self._optimizer.zero_grad(set_to_none=True)
        for tensor in self._inputs:
            tensor.grad = None

    def _advance(self, optimizer: torch.optim.Optimizer) -> None:
        if self._advanced:
            optimizer.step()
            return
        with warnings.catch_warnings():  # it warns once that it could be captured and is not
            warnings.filterwarnings("ignore", message=".*capturable=True")
            optimizer.step()
        self._advanced = True


def _optimizer(workload: Workload) -> torch.optim.Optimizer:
    parameters = [p for p in workload.model.parameters() if p.requires_grad]
    if not parameters:
        raise CbTraceError(
            f"{workload.name} has no trainable parameter", hint="record it with --phase forward"
        )
    return (workload.optimizer or _sgd)(parameters)


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=DEFAULT_RATE)


def _mean_of_outputs(output: object) -> Tensor:
    """A loss for a model that has none.

    :raises CbTraceError: no output depends on a parameter.
    """
    floating = [tensor for tensor in tensors_of(output) if tensor.requires_grad]
    if not floating:
        raise CbTraceError(
            "no output of the model has a gradient to train with",
            hint="give the workload a loss or a step of its own",
        )
    first, *rest = (t.float().mean() for t in floating)
    return sum(rest, start=first)
