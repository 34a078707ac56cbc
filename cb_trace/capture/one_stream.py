"""The graph of a step on several streams: timed bare with all of it on one, and profiled as it is.

Both have the same kernels. The one has nothing at once, and tells how much time lies between them;
what the other is shorter by is what its streams gain. The profile shows which kernels run beside
which, and how much longer each takes then.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cb_trace.bundle import Note, TraceRecord, file_sha256
from cb_trace.capture.profiled import profile_steps
from cb_trace.capture.step import Step
from cb_trace.replay.graph import GraphCapture, capture_step, one_line
from cb_trace.replay.onlooker import Onlooker
from cb_trace.replay.sequence import Switches, one_stream
from cb_trace.replay.timing import settle

NO_FIGURE = "no step on one stream"
STREAMS_TRACE = "streams.json.gz"
RUNS = 24  # how streams meet differs from one run to the next
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


def profile_streams(captured: GraphCapture, device: torch.device, folder: Path) -> TraceRecord:
    """Profile some replays of a graph on several streams into ``folder``.

    They run back to back, as the bare ones do: which branch is ahead where two meet depends on what
    is still running when the graph starts (a product of a DLRM, H200, that took 70 µs instead of 17
    in 18 of 24 replays back to back did so in five of twelve that began on an idle device).
    """
    settle(captured.replay, device)
    target = folder / STREAMS_TRACE
    profile_steps(captured.replay, device, steps=RUNS, target=target, back_to_back=True)
    return TraceRecord(file=target.name, role="streams", sha256=file_sha256(target))


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
