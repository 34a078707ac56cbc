"""The gradients that a call's output received, and its backward run alone with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from cb_trace.replay.inputs import leaves_of

NO_ROOM = "no room for the gradients of its output"

# Reserves room for tensors, or says there is none.
Room = Callable[[Mapping[torch.device, int]], object]


@dataclass(slots=True)
class OutputGradients:
    """Copies by place among the output's leaves; filled while the step's backward runs."""

    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    reason: str | None = None  # why some are missing
    received: bool = False  # a backward came by
    keep: bool = True  # False: only see whether one comes by

    def watch(self, output: object, room: Room) -> None:
        """Keep the gradient of every tensor of an output, where there is room for it."""
        for place, tensor in enumerate(leaves_of(output)):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad and _is_plain(tensor):
                hook: Any = tensor.register_hook
                hook(self._keeper(place, room))

    def _keeper(self, place: int, room: Room) -> Callable[[torch.Tensor], None]:
        def keep(gradient: torch.Tensor) -> None:
            self.received = True
            if (
                not self.keep
                or place in self.copies
                or self.reason is not None
                or not _is_plain(gradient)
            ):
                return
            if room({gradient.device: gradient.nbytes}) is None:
                self.reason = NO_ROOM
                self.copies.clear()
                return
            self.copies[place] = gradient.detach().clone(memory_format=torch.preserve_format)

        return keep


class BackwardCall:
    """A backward that can run any number of times: its graph is kept.

    Gradients are returned, not accumulated: in a step that starts without gradients the
    accumulation hands them over and launches nothing.
    """

    def __init__(
        self,
        output: object,
        gradients: Mapping[int, torch.Tensor],
        inputs: Sequence[torch.Tensor],
        module: nn.Module,
    ) -> None:
        leaves = leaves_of(output)
        places = [p for p in gradients if _takes(leaves, p, gradients[p])]
        self._outputs = [leaves[place] for place in places]
        self._gradients = [gradients[place] for place in places]
        parameters = [p for p in module.parameters() if p.requires_grad]
        wanted = [t for t in inputs if t.requires_grad]
        self._wanted = list({id(t): t for t in (*wanted, *parameters)}.values())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to run backwards."""
        return not (self._outputs and self._wanted)

    def run(self) -> object:
        """One backward."""
        return torch.autograd.grad(
            self._outputs, self._wanted, self._gradients, retain_graph=True, allow_unused=True
        )

    def run_here(self) -> object:
        """:meth:`run`, its work launched from this thread, so that a range around it holds it."""
        with torch.autograd.set_multithreading_enabled(False):
            return self.run()


def _takes(leaves: list[Any], place: int, gradient: torch.Tensor) -> bool:
    if place >= len(leaves):
        return False
    leaf = leaves[place]
    fits = isinstance(leaf, torch.Tensor) and leaf.requires_grad
    return bool(fits and leaf.shape == gradient.shape and leaf.dtype == gradient.dtype)


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested
