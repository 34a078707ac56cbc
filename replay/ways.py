"""How a step is run whole, and with one of its modules changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from cb_trace.replay.pairs import Side
from cb_trace.replay.stand_in import StandIn


class Way(Protocol):
    """A way to run a step."""

    def plainly(self) -> AbstractContextManager[object]:
        """Run every module's own code in the block, to watch one of them."""
        ...

    def whole(self, stand_in: StandIn | None) -> Side:
        """The step as it is, without the stand-in where there is one."""
        ...

    def beside(self, stand_in: StandIn) -> Side | None:
        """The step in which the module works as ever, and others are given its recorded outputs.

        None where there is no such step.
        """
        ...

    def changed(self, stand_in: StandIn, path: str) -> Side:
        """The step with the stand-in for the module of a path.

        :raises UnfitError: it cannot be run so.
        """
        ...


class AsItIs:
    """A step that runs every module's own code."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step

    def plainly(self) -> AbstractContextManager[object]:
        """It always does."""
        return nullcontext()

    def whole(self, stand_in: StandIn | None) -> Side:
        """The step, the stand-in removed."""
        return Side(self._step, stand_in.remove if stand_in else None)

    def beside(self, stand_in: StandIn) -> Side | None:
        """The step, the stand-in beside the module; not where its outputs lead back to it."""
        return Side(self._step, stand_in.install_beside) if stand_in.fixed else None

    def changed(self, stand_in: StandIn, path: str) -> Side:
        """The step, the stand-in installed."""
        return Side(self._step, stand_in.install)
