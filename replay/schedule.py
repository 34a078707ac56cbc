"""How a time budget is spread over measurements that take turns.

The first turn gives all the same and shows how long each call takes; from then on time goes by
share of the step, with a part for the small ones too. Whoever is known well enough leaves its time
to the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

# At the least: what drifts slowly meets all alike. Blocks of one module lay 1.5 % apart on an H200
# however long they were: with three of them three recordings lay 1.4 to 1.7 % apart (median).
TURNS = 5
MOST_TURNS = 8
FIRST_RATIO = 0.2  # of the budget for the first turn
OVERRUN = 2  # times the budget is the end in any case: slow calls still get their few samples


class Schedule:
    """Seconds for every measurement in every turn."""

    def __init__(
        self,
        seconds: float,
        keys: Iterable[Hashable],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.used = 0.0
        self._seconds, self._now = seconds, now
        self._begin: float | None = None
        self._weights: dict[Hashable, float] = dict.fromkeys(keys, 0.0)
        self._waiting: dict[Hashable, float] = {}
        self._end = 0.0

    @contextmanager
    def turn(self, number: int, keys: Iterable[Hashable]) -> Iterator[None]:
        """One turn of ``keys``; only time inside is taken off the budget."""
        left = max(0.0, self._seconds - self.used)
        fund = FIRST_RATIO * left if number == 0 else left / max(1, TURNS - number)
        self._begin, self._end = self._now(), self.used + fund
        self._waiting = self._parts(keys)
        try:
            yield
        finally:
            self.used, self._begin = self._elapsed(), None

    def share(self, key: Hashable) -> float:
        """Seconds for the next measurement of this turn: its part of what is left of it."""
        left, all_parts = self._end - self._elapsed(), sum(self._waiting.values())
        part = self._waiting.pop(key)
        return max(0.0, left) * part / all_parts

    def skip(self, key: Hashable) -> None:
        """Leave the time of this one to the others."""
        self._waiting.pop(key, None)

    def learn(self, key: Hashable, step_ns: float) -> None:
        """How much of a step a measurement stands for."""
        self._weights[key] = step_ns

    def left(self) -> bool:
        """Whether there is time for another turn."""
        return self.used < self._seconds

    def spent(self) -> bool:
        """Whether nothing more may begin."""
        return self._elapsed() >= OVERRUN * self._seconds

    def _parts(self, keys: Iterable[Hashable]) -> dict[Hashable, float]:
        wanted = list(keys)
        whole = sum(self._weights.values())
        even = 1 / max(1, len(self._weights))
        return {k: max(even, self._weights[k] / whole if whole else 0.0) for k in wanted}

    def _elapsed(self) -> float:
        running = 0.0 if self._begin is None else self._now() - self._begin
        return self.used + running
