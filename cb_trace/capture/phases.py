"""Ranges and markers around profiled steps, and which phases were seen in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from cb_trace.bundle import CompiledGraph, Note, Phase
from cb_trace.capture.markers import GradientMarkers
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.capture.tree import ModuleTree


class PhaseWatch:
    """While entered, module calls stand in ranges and accumulated gradients leave markers.

    ``ranges`` stand on the modules that can carry a hook, ``parameters`` are those to mark. A step
    that ``trains`` has a backward even where no hook of a parameter fires, as under FSDP.
    Afterwards ``called`` holds the paths seen, and :meth:`phases` what kind of work there was.
    """

    def __init__(
        self,
        ranges: ModuleRanges,
        parameters: Mapping[str, nn.Parameter],
        *,
        trains: bool = False,
    ) -> None:
        self._trains = trains
        self._ranges = ranges
        self._markers = GradientMarkers(parameters)
        self._optimized = False
        self._stack = ExitStack()

    def __enter__(self) -> PhaseWatch:
        self._stack.enter_context(self._markers)
        self._stack.enter_context(self._ranges)
        handle = register_optimizer_step_post_hook(self._note_optimizer)
        self._stack.callback(handle.remove)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def called(self) -> set[str]:
        """Paths of the modules that were called under a range."""
        return self._ranges.called

    def unseen(self, tree: ModuleTree, called: set[str] | None) -> list[Note]:
        """As :func:`never_called`, of ``called``; and of the modules that other threads called."""
        elsewhere = self._ranges.elsewhere
        notes = never_called(tree, None if called is None else called | elsewhere)
        detail = "calls on another thread are not recorded: its figures lack them"
        return notes + [
            Note(reason="called on another thread", detail=detail, path=p)
            for p in sorted(elsewhere)
        ]

    def phases(self, graphs: Sequence[CompiledGraph]) -> list[Phase]:
        """The phases of the step, in order; compiled graphs know of work done again inside them."""
        again = any(
            node.phase == "recompute"
            for graph in graphs
            for kernel in graph.kernels
            for node in kernel.nodes
        )
        seen: list[tuple[Phase, bool]] = [
            ("forward", True),
            ("backward", self._trains or self._markers.fired),
            ("recompute", self._ranges.recomputed or again),
            ("optimizer", self._optimized),
        ]
        return [phase for phase, there in seen if there]

    def _note_optimizer(self, *_: Any) -> None:
        self._optimized = True


def never_called(tree: ModuleTree, called: set[str] | None) -> list[Note]:
    """A note for every module that holds parameters and ran no hook; none where nobody looked."""
    if called is None:
        return []
    owners = dict.fromkeys(parameter.path for parameter in tree.parameters)
    detail = "it has parameters and its forward was not called; its work is its caller's"
    return [Note(reason="never called", detail=detail, path=p) for p in owners if p not in called]
