"""Two ways to run a step, timed in turn, so that drift of clocks and host meets both alike."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import torch

from cb_trace.replay.timing import (
    Run,
    Taken,
    calls_per_sample,
    host_of,
    noise,
    queued_empty_window_ns,
    window_ns,
)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to run; ``ready`` makes it so, ahead of every window and never inside one."""

    run: Run
    ready: Run | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Bare wall nanoseconds of two runs in turn, a pair a place of both lists."""

    first_ns: list[int]
    second_ns: list[int]
    dropped: int = 0  # pairs left out, since the host was slowed meanwhile
    couples: list[int] = field(default_factory=list)  # pairs of each couple, in order


def time_pairs(
    couples: Sequence[tuple[Side, Side]],
    device: torch.device,
    *,
    min_pairs: int = 10,
    max_seconds: float = 2.0,
    noise_ratio: float = 0.005,
    calls: int | None = None,
    queued: bool = False,
) -> Pairs:
    """Time two runs in turn; with several couples of them, each couple in its turn.

    Every other pair is the other way round (A B, B A, …): what a run leaves to the next, and a
    steady drift, fall on both. Sampling ends at ``max_seconds``, or before when the differences'
    median is known to ``noise_ratio`` of itself; with ``min_pairs``, and one pair a couple, at the
    least in either case. Pairs of a slowed host are left out where there are as many others, and
    with them couples that have no other.

    :param calls: how many runs back to back make one window; None: as many as dwarf the timer.
    :param queued: a window opens when the device is through with what makes its side ready, which
        hides how long the host takes to launch.
    """
    if couples[0][0].ready is not None:
        couples[0][0].ready()
    calls = calls or calls_per_sample(couples[0][0].run, device)
    empty = queued_empty_window_ns(couples[0][0].ready, device) if queued else None
    host = host_of(device)
    least = max(min_pairs, len(couples))
    taken: list[tuple[int, int, int]] = []  # couple, first, second
    lost = Taken(least)  # of the first by the second
    begin = time.perf_counter()
    while True:
        rounds, number = divmod(len(taken), len(couples))
        clear = host is None or host.seek()
        turn = tuple(enumerate(couples[number]))
        window = [0, 0]
        for place, side in turn if (rounds + number) % 2 == 0 else turn[::-1]:
            window[place] = window_ns(side.run, device, calls, side.ready, empty)
        taken.append((number, window[0], window[1]))
        lost.add(window[0] - window[1], clear=clear and (host is None or host.full()))
        if lost.enough < least:
            continue
        differences = lost.timed().ns
        sure = len(differences) >= 3 * least and noise(differences) <= noise_ratio
        if sure or time.perf_counter() - begin >= max_seconds:
            return _by_couple([taken[place] for place in lost.places()], len(taken))


def _by_couple(taken: Sequence[tuple[int, int, int]], all_pairs: int) -> Pairs:
    """Those that count; of each couple in the order taken."""
    ordered = sorted(taken, key=itemgetter(0))
    counts = Counter(couple for couple, _, _ in ordered)
    return Pairs(
        [first for _, first, _ in ordered],
        [second for _, _, second in ordered],
        all_pairs - len(taken),
        list(counts.values()),
    )
