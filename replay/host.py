"""Whether the host runs at full speed: it bounds every step whose launches are not hidden.

A virtual processor whose core is shared with somebody else's work runs at about half its speed for
some tenths of a second up to several seconds, one processor apart from the next: on the host of an
H200 a loop of Python took 0.61 to 0.75 ms or 1.0 to 1.2 ms and hardly anything between, and a step
bound by launches took 1.4 times as long with it. What was timed meanwhile is no more a figure of
the module than what a throttled device gave.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SLOWED = "host slowed"  # a limit of a block of samples, beside those of the device's clock
SLOW_RATIO = 1.5  # of the shortest spin seen: in the valley between the two speeds
SPIN = 1_000  # additions: some 25 µs
FIRST_SPINS = 8
REST_SECONDS = 0.05  # before other processors are tried again, where all were slow


class Host:
    """The processor of the calling thread; its measure is the shortest spin that was seen.

    The first are on every processor it may run on: one alone may be slow when it all begins.
    """

    def __init__(self) -> None:
        self._shortest_ns = 0
        self._rest_until = 0.0
        self._on_each(self._noted)

    def full(self) -> bool:
        """Whether it runs at full speed just now: a spin takes about as long as the shortest."""
        return self._shortest(2) <= SLOW_RATIO * self._shortest_ns

    def _noted(self) -> bool:
        """Take a measure and go on."""
        self._shortest(FIRST_SPINS)
        return False

    def _shortest(self, spins: int) -> int:
        took = min(_spin_ns() for _ in range(spins))
        self._shortest_ns = min(self._shortest_ns or took, took)
        return took

    def seek(self) -> bool:
        """Move the thread to a processor at full speed, if this one is not; whether there is one.

        The thread may run anywhere again afterwards; systems leave it where it is.
        """
        if self.full():
            return True
        if time.monotonic() < self._rest_until:
            return False
        found = self._on_each(self.full)
        if not found:
            self._rest_until = time.monotonic() + REST_SECONDS
        return found

    @staticmethod
    def _on_each(suits: Callable[[], bool]) -> bool:
        """Move the thread from one processor to the next until one suits; whether one did."""
        if not hasattr(os, "sched_setaffinity"):
            return False
        allowed = os.sched_getaffinity(0)
        try:
            for processor in sorted(allowed):
                os.sched_setaffinity(0, {processor})
                _spin_ns()  # wakes it
                if suits():
                    return True
        except OSError:  # no right to choose
            return False
        finally:
            os.sched_setaffinity(0, allowed)
        return False


def _spin_ns() -> int:
    begin = time.perf_counter_ns()
    total = 0
    for number in range(SPIN):
        total += number
    return time.perf_counter_ns() - begin
