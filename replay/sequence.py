"""The whole step's kernels as one CUDA graph on one stream: the step's caches without its overlap.

A step that runs work on side streams is captured with every switch of streams left out, so that its
kernels follow one another in the order they are launched in. Waits between streams stay: an empty
branch that forks and joins is allowed in a capture, and orders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from cb_trace.replay.graph import GraphCapture, capture_step


@dataclass(slots=True)
class Switches:
    """Streams that work would have run on beside the first."""

    left_out: set[int] = field(default_factory=set)


@contextmanager
def one_stream(device: torch.device) -> Iterator[Switches]:
    """Keep the current stream of a device whatever the code inside asks for, through Python.

    Code that switches streams below Python (a C++ extension) is not held; its kernels run beside
    others in the graph, which the reader of the trace sees.
    """
    switches = Switches()
    index = device.index or 0
    stay: int = torch.cuda.current_stream(device).stream_id
    switch = torch.cuda.set_stream

    def held(stream: Any) -> None:
        if stream is None or stream.device_index != index:
            switch(stream)
        elif stream.stream_id != stay:
            switches.left_out.add(stream.stream_id)

    torch.cuda.set_stream = held  # what torch.cuda.stream(…) calls
    try:
        yield switches
    finally:
        torch.cuda.set_stream = switch


def capture_sequence(
    step: Callable[[], object], device: torch.device
) -> tuple[GraphCapture, Switches]:
    """Capture a step on one stream; with the streams that it would have switched to."""
    seen = Switches()

    def serial() -> None:
        with one_stream(device) as switches:
            step()
        seen.left_out |= switches.left_out

    return capture_step(serial, device), seen
