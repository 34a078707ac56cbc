"""A profiler whose start-up cost is paid before it records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import profile

from cb_trace.replay.quiet import quiet_kineto


class Warming:
    """A profiler that is set up and does not record yet: call :meth:`start` when it should."""

    def __init__(self, profiler: profile) -> None:
        self._profiler = profiler
        self.started = False

    def start(self) -> None:
        """Record from now on."""
        self._profiler.start_trace()
        self.started = True


@contextmanager
def warming(profiler: profile) -> Iterator[Warming]:
    """Set a profiler up, let the block warm up and start it, and stop it at the end.

    CUPTI instruments at the first kernel after the set-up; torch's scheduler does the same in its
    warm-up phase.
    """
    with quiet_kineto():
        profiler.prepare_trace()
    state = Warming(profiler)
    try:
        yield state
    finally:
        if not state.started:  # torch cannot stop one that never started
            state.start()
        profiler.stop_trace()
