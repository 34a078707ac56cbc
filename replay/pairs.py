"""Two ways to run a step, timed in turn, so that drift of clocks and host meets both alike."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from cb_trace.replay.timing import Run, Taken, calls_per_sample, host_of, noise, window_ns


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


def time_pairs(
    first: Side,
    second: Side,
    device: torch.device,
    *,
    min_pairs: int = 10,
    max_seconds: float = 2.0,
    noise_ratio: float = 0.005,
    calls: int | None = None,
) -> Pairs:
    """Time two runs in turn.

    Every other pair is the other way round (A B, B A, …): what a run leaves to the next, and a
    steady drift, fall on both. Sampling ends at ``max_seconds``, or before when the differences'
    median is known to ``noise_ratio`` of itself; with ``min_pairs`` at the least in either case.
    Pairs of a slowed host are left out where there are ``min_pairs`` others.

    :param calls: how many runs back to back make one window; None: as many as dwarf the timer.
    """
    if first.ready is not None:
        first.ready()
    calls = calls or calls_per_sample(first.run, device)
    host = host_of(device)
    one: list[int] = []
    other: list[int] = []
    lost = Taken(min_pairs)  # of the first by the second
    begin = time.perf_counter()
    while True:
        clear = host is None or host.seek()
        turn = ((first, one), (second, other))
        for side, samples in turn if len(one) % 2 == 0 else turn[::-1]:
            samples.append(window_ns(side.run, device, calls, side.ready))
        lost.add(one[-1] - other[-1], clear=clear and (host is None or host.full()))
        if lost.enough < min_pairs:
            continue
        differences = lost.timed().ns
        sure = len(differences) >= 3 * min_pairs and noise(differences) <= noise_ratio
        if sure or time.perf_counter() - begin >= max_seconds:
            places = lost.places()
            return Pairs(
                [one[p] for p in places], [other[p] for p in places], len(one) - len(places)
            )
