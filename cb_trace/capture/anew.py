"""A step captured again and again, so that it is not timed at the speed of one capture."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cb_trace.capture.step import Step
from cb_trace.replay.couples import room
from cb_trace.replay.graph import GraphCapture


class Anew:
    """Makes captures that live side by side, each elsewhere in memory, while there is room.

    :param first: one that lives already.
    :param again: captures the same in a memory pool of its own.
    """

    def __init__(
        self, first: GraphCapture, again: Callable[[], GraphCapture], device: torch.device
    ) -> None:
        self._again = again
        self._left = room(first, device)
        self._kept: list[GraphCapture] = []

    def __call__(self) -> Step | None:
        """Another one; None where there is no room, or it fails."""
        if not self._left:
            return None
        self._left -= 1
        captured = self._again()
        if captured.reason is not None:
            return None
        self._kept.append(captured)
        return captured.replay
