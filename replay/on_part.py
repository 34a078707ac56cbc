"""A module run on a part of its batch: what the step would gain if the module were faster.

The module works on the first n-th of the batch, for real, and then gives out the whole output as
recorded, at no cost. So only its own time changes, and by how much is known only from the clock.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cb_trace.replay.guard import RngState
from cb_trace.replay.inputs import tensors_of
from cb_trace.replay.stand_in import Forward, StandIn

CLOSE = 0.02  # of the output's norm: another kernel may round otherwise


class OnPart(StandIn):
    """A stand-in that runs the module on one ``factor``-th of its batch.

    It fits where the first dimension of every output is the batch, the inputs of that length can
    be cut, and the part of the output is what the part of the inputs gives: no statistics over
    the batch, no order among its rows.

    :raises UnfitError: from :meth:`record`, where that is not so.
    """

    works = True

    def __init__(self, module: nn.Module, factor: int) -> None:
        super().__init__(module)
        self._factor = factor
        self._forward: Forward = module.forward
        self._batch = 0
        self._worked: list[Any] = []

    def _given(self, *args: Any, **kwargs: Any) -> Any:
        self._work(args, kwargs)
        return super()._given(*args, **kwargs)

    def _given_and_kept(self, *args: Any, **kwargs: Any) -> Any:
        self._worked[self._next] = self._work(args, kwargs)
        return super()._given_and_kept(*args, **kwargs)

    def install(self, *, compiled: bool = False) -> None:
        """Let the module work on a part of its batch from now on, until :meth:`remove`."""
        super().install(compiled=compiled)
        self._worked = [None] * len(self._kept)

    def remove(self) -> None:
        """Give the module its forward back."""
        super().remove()
        self._worked = []

    def _work(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        part = [self._cut(value) for value in args]
        named = {name: self._cut(value) for name, value in kwargs.items()}
        return self._forward(*part, **named)

    def _cut(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == self._batch:
            return value[: self._batch // self._factor]
        return value

    # --- whether it fits --------------------------------------------------------------------------

    def _unfit(
        self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> str | None:
        given = tensors_of(output)
        reason = self._batch_of(given, args, kwargs)
        if reason is not None:
            return reason
        rng = RngState.now()
        try:
            with torch.no_grad():
                part = tensors_of(self._work(args, kwargs))
        except Exception as error:  # the module's own code, on inputs that it may not expect
            return f"it does not run on a part of its batch: {type(error).__name__}"
        finally:
            rng.put()
        return None if self.draws else self._other(part, given)

    def _batch_of(
        self, given: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        """Find the batch in the outputs."""
        if any(tensor.requires_grad for tensor in given):
            return "autograd records it: only a forward can run on a part of its batch"
        sizes = {tensor.shape[0] if tensor.dim() else 0 for tensor in given}
        if 0 in sizes or len(sizes) != 1 or (self._batch and sizes != {self._batch}):
            return "its outputs have no first dimension in common"
        (self._batch,) = sizes
        if self._batch < self._factor or self._batch % self._factor:
            return f"its batch of {self._batch} cannot be cut into {self._factor}"
        values = [*args, *kwargs.values()]
        if not any(self._cut(value) is not value for value in values):
            return "none of its inputs has the first dimension of its output"
        return None

    def _other(self, part: list[torch.Tensor], given: list[torch.Tensor]) -> str | None:
        """Why the part of the output is not what the part of the inputs gives."""
        size = self._batch // self._factor
        whole = [tensor[:size] for tensor in given]
        if [t.shape for t in part] != [t.shape for t in whole]:
            return "its output does not follow its batch"
        if all(_close(one, other) for one, other in zip(part, whole, strict=True)):
            return None
        return "its rows depend on one another: a part of the batch gives other values"


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    apart, size = (one.double() - other.double()).norm(), other.double().norm()
    return bool(apart <= CLOSE * size) or torch.equal(one, other)
