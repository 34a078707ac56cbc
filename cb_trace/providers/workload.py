"""What a provider gives: a model with the inputs of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cb_trace.bundle import Note

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

Setting = str | int | float | bool
Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A model and one step of it.

    ``step`` runs one whole step when called with nothing; without it a step is
    ``model(*args, **kwargs)``, and in training what ``loss`` (of the model's output) and
    ``optimizer`` (of the trainable parameters) make of it. ``settings`` are the provider's,
    complete, so that the same workload can be built again from them.
    """

    name: str
    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    step: Callable[[], object] | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    loss: Callable[[Any], Tensor] | None = None
    optimizer: Callable[[list[nn.Parameter]], Optimizer] | None = None
    notes: tuple[Note, ...] = ()  # what a reader of its figures must know


@dataclass(frozen=True, slots=True)
class Provider:
    """A workload that ships: its settings as a frozen dataclass, named presets, and a builder.

    ``build(config, device)`` returns the model and its arguments, all on the device, drawing
    from torch's global generators, which are seeded before the call. ``loss(args)`` makes the
    loss of an output, once a workload.
    """

    name: str
    summary: str
    presets: Mapping[str, Any]
    build: Callable[[Any, str], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]
    loss: Callable[[tuple[Any, ...]], Callable[[Any], Tensor]] | None = None
    optimizer: Callable[[list[nn.Parameter]], Optimizer] | None = None

    @property
    def default_preset(self) -> str:
        """The preset taken where none is named: the first."""
        return next(iter(self.presets))
