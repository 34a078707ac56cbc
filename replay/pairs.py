"""Two ways to run a step, timed in turn, so that drift of clocks and host meets both alike."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from cb_trace.replay.timing import Run, calls_per_sample, noise, time_block


@dataclass(frozen=True, slots=True)
class Side:
    """One way to run; ``ready`` makes it so, ahead of every window and never inside one."""

    run: Run
    ready: Run | None = None


def time_pairs(
    first: Side,
    second: Side,
    device: torch.device,
    *,
    min_pairs: int = 10,
    max_seconds: float = 2.0,
    noise_ratio: float = 0.005,
    calls: int | None = None,
) -> tuple[list[int], list[int]]:
    """Bare wall nanoseconds of two runs in turn, a pair a place of both lists.

    Every other pair is the other way round (A B, B A, …): what a run leaves to the next, and a
    steady drift, fall on both. Sampling ends at ``max_seconds``, or before when the differences'
    median is known to ``noise_ratio`` of itself; with ``min_pairs`` at the least in either case.

    :param calls: how many runs back to back make one window; None: as many as dwarf the timer.
    """
    if first.ready is not None:
        first.ready()
    calls = calls or calls_per_sample(first.run, device)
    one: list[int] = []
    other: list[int] = []
    begin = time.perf_counter()
    while True:
        turn = ((first, one), (second, other))
        for side, samples in turn if len(one) % 2 == 0 else turn[::-1]:
            samples.append(_window(side, device, calls))
        if len(one) < min_pairs:
            continue
        differences = [a - b for a, b in zip(one, other, strict=True)]
        sure = len(one) >= 3 * min_pairs and noise(differences) <= noise_ratio
        if sure or time.perf_counter() - begin >= max_seconds:
            return one, other


def _window(side: Side, device: torch.device, calls: int) -> int:
    once = time_block(
        side.run, device, min_samples=1, min_seconds=0.0, calls=calls, before=side.ready
    )
    return once[0]
