"""What a step gives as it is: a step with one of its modules changed must give the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cb_trace.replay.guard import RngState
from cb_trace.replay.hooks import output_signature
from cb_trace.replay.inputs import tensors_of
from cb_trace.replay.stand_in import UnfitError
from cb_trace.replay.timing import synchronize

Step = Callable[[], object]


class Reference:
    """What the step gives as it is; its values only as long as it gives the same again."""

    def __init__(self, step: Step, device: torch.device) -> None:
        self._rng = RngState.now()
        self._step, self._device = step, device
        self._signature, self._values = self._given()
        self._steady = _alike(self._values, self._given()[1])

    def _given(self) -> tuple[object, list[torch.Tensor]]:
        self.seed()
        output = self._step()
        synchronize(self._device)
        return output_signature(output), _values(output)

    def seed(self) -> None:
        """Random numbers as they were in the step that is compared with."""
        self._rng.put()

    def same_values(self, output: object) -> bool:
        """Whether the step without the module gives these values, as far as they can be held.

        :raises UnfitError: it gives something else than tensors like these.
        """
        if output_signature(output) != self._signature:
            raise UnfitError("the step gives another output without it")
        return not self._steady or _alike(self._values, _values(output))

    def blame(self) -> None:
        """What to make of other values, with the module in its place again.

        A step that keeps state gives other values in time, whatever is taken out of it.

        :raises UnfitError: the step as it is still gives the same.
        """
        self._steady = _alike(self._values, self._given()[1])
        if self._steady:
            raise UnfitError("it has effects besides its output: the step gives other values")


def _values(output: object) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in tensors_of(output)]


def _alike(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Equal up to what another order of additions changes."""
    return len(one) == len(other) and all(
        torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-3, equal_nan=True)
        if a.is_floating_point()
        else torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )
