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

SLOWED = "host slowed"  # a limit of a block of samples, beside those of the device's clock
SLOW_RATIO = 1.5  # of the shortest spin seen: in the valley between the two speeds
SPIN = 1_000  # additions: some 25 µs
REST_SECONDS = 0.05  # before other processors are tried again, where all were slow


class Host:
    """The processor of the calling thread; its measure is the shortest spin that was seen."""

    def __init__(self) -> None:
        self._shortest_ns = 0
        self._rest_until = 0.0

    def full(self) -> bool:
        """Whether it runs at full speed just now: a spin takes about as long as the shortest."""
        took = min(_spin_ns(), _spin_ns())
        self._shortest_ns = min(self._shortest_ns or took, took)
        return took <= SLOW_RATIO * self._shortest_ns

    def seek(self) -> bool:
        """Move the thread to a processor at full speed, if this one is not; whether there is one.

        The thread may run anywhere again afterwards; systems leave it where it is.
        """
        if self.full():
            return True
        if time.monotonic() < self._rest_until or not hasattr(os, "sched_setaffinity"):
            return False
        allowed = os.sched_getaffinity(0)
        try:
            found = any(self._full_on(one) for one in sorted(allowed))
        except OSError:  # no right to choose
            found = False
        finally:
            os.sched_setaffinity(0, allowed)
        if not found:
            self._rest_until = time.monotonic() + REST_SECONDS
        return found

    def _full_on(self, processor: int) -> bool:
        os.sched_setaffinity(0, {processor})
        _spin_ns()  # wakes it
        return self.full()


def _spin_ns() -> int:
    begin = time.perf_counter_ns()
    total = 0
    for number in range(SPIN):
        total += number
    return time.perf_counter_ns() - begin
