"""The graph of a step on several streams, with all of it on one, timed bare.

It has the same kernels and nothing at once: it tells how much time lies between them, and what the
step's own graph is shorter by is what its streams gain.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from cb_trace.bundle import Note
from cb_trace.capture.step import Step
from cb_trace.replay.graph import GraphCapture, capture_step, one_line
from cb_trace.replay.onlooker import Onlooker
from cb_trace.replay.sequence import Switches, one_stream

NO_FIGURE = "no step on one stream"
_STRAYED = "operators run on other streams whatever Python's current one is"


@dataclass(frozen=True, slots=True)
class OneStream:
    """The graph, where the step uses several streams; a note where it does and there is none.

    ``again`` captures it anew, in a memory pool of its own.
    """

    capture: GraphCapture | None = None
    again: Callable[[], GraphCapture] = GraphCapture
    notes: list[Note] = field(default_factory=list)


def capture_on_one_stream(step: Step, device: torch.device, pool: Any = None) -> OneStream:
    """Capture a step that uses several streams on one; one that does not runs once, and that's it.

    :param pool: of the graph on several streams, which can share it: no output of either is kept.
    """
    seen = Switches()
    strayed: set[int] = set()

    def held() -> None:
        with one_stream(device) as switches:
            try:
                _watched(step, device, strayed)
            finally:
                seen.left_out |= switches.left_out

    gc.collect()  # what earlier steps left in cycles would run where they did (capture_step)
    reason = _failure(held)
    if not seen.left_out and not strayed:
        return OneStream()
    if reason is None and not strayed:
        captured = capture_step(held, device, pool=pool)
        reason = captured.reason
        if reason is None and not strayed:
            return OneStream(captured, lambda: capture_step(held, device, again=True))
    return OneStream(notes=[Note(reason=NO_FIGURE, detail=reason or _STRAYED)])


def _failure(run: Callable[[], object]) -> str | None:
    try:
        run()
    except Exception as error:  # the step's own, or an operator that cannot be watched
        return one_line(error)
    return None


def _watched(step: Step, device: torch.device, strayed: set[int]) -> None:
    """Run a step; add the streams that operators met beside the current one."""
    if torch.cuda.is_current_stream_capturing():  # as it is; the runs before have been watched
        step()
        return
    with _Watch(device, strayed):
        step()


class _Watch(Onlooker):
    """Sees on which stream every operator runs."""

    supports_higher_order_operators = True

    def __init__(self, device: torch.device, strayed: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device, self._strayed = device, strayed
        self._stay: int = torch.cuda.current_stream(device).stream_id

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        here: int = torch.cuda.current_stream(self._device).stream_id
        if here != self._stay:
            self._strayed.add(here)
        return func(*args, **(kwargs or {}))
