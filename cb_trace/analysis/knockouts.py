"""What a step loses in a knock-out: the figure of its pairs, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cb_trace.analysis.stats import RESAMPLES, IntArray, Interval, tail_ranks

SAME_SPEED = 0.15  # how far a pair's step may be from the bare one to tell of it
ENOUGH = 8  # pairs
ANOTHER_STEP = 1.5  # times as long, or as short
LEAST = 3  # pairs of a visit, for its median to tell


def paired_loss(
    base_ns: Sequence[int],
    knocked_ns: Sequence[int],
    bare: Interval | None = None,
    visits: Sequence[int] = (),
) -> Interval | None:
    """The median of base − knocked over the pairs, with its 95 % interval; None without pairs.

    A host may run at half its speed for seconds (seen on an H200: the same eager step of 6.1 ms
    took 13.5, and lost 912 µs instead of 430), and the loss is to be one of the ``bare`` step, as
    every other figure is. So pairs whose own base is far from it are left out. Where too few are
    left, all are scaled to it, and the interval covers the figure as it was measured too.

    The interval is from a bootstrap of blocks of neighbouring pairs, which drift together. It
    also covers the median of each of the ``visits`` (pairs of each, in order): by the next one the
    host has another speed, and another capture of the same graph may have, too.
    """
    base, knocked = (np.asarray(ns, dtype=np.int64) for ns in (base_ns, knocked_ns))
    if not base.size:
        return None
    lost = base - knocked
    ends = np.cumsum(visits if sum(visits) == base.size else [base.size])
    visit = np.searchsorted(ends, np.arange(base.size), side="right")
    if bare is None or bare.median_ns <= 0:
        return _median(lost, visit)
    like = np.abs(base - bare.median_ns) <= SAME_SPEED * bare.median_ns
    if like.sum() >= min(ENOUGH, base.size):
        return _median(lost[like], visit[like])
    raw, scaled = _median(lost, visit), _median(lost * bare.median_ns // np.maximum(base, 1), visit)
    low, high = min(raw.low_ns, scaled.low_ns), max(raw.high_ns, scaled.high_ns)
    return Interval(scaled.median_ns, low, high, scaled.samples)


def at_another_speed(base_ns: Sequence[int], bare: Interval | None) -> float | None:
    """How many times as long as the bare step its steps took, where nearly all were far from it.

    A step half as long again is another one: what it loses tells nothing of the bare step.
    """
    if bare is None or bare.median_ns <= 0 or not base_ns:
        return None
    base = np.asarray(base_ns, dtype=np.int64)
    like = np.abs(base - bare.median_ns) <= SAME_SPEED * bare.median_ns
    times = float(np.median(base)) / bare.median_ns
    far = max(times, 1 / max(times, 1e-9)) > ANOTHER_STEP
    return times if far and like.sum() < min(ENOUGH, base.size) else None


def _median(lost: IntArray, visit: IntArray) -> Interval:
    """Median, rounded down, with the tails of the medians of resampled blocks, and all visits'."""
    size = lost.size
    block = max(1, round(size ** (1 / 3)))  # the usual order of growth
    rng = np.random.default_rng(0)
    starts = rng.integers(size - block + 1, size=(RESAMPLES, -(-size // block)))
    drawn = (starts[:, :, np.newaxis] + np.arange(block)).reshape(RESAMPLES, -1)[:, :size]
    medians = np.sort(np.floor(np.median(lost[drawn], axis=1)).astype(np.int64))
    low, high = (int(medians[rank]) for rank in tail_ranks(RESAMPLES))
    middle = int(np.floor(np.median(lost)))
    parts = [lost[visit == one] for one in np.unique(visit)]
    each = [int(np.floor(np.median(part))) for part in parts if part.size >= LEAST]
    return Interval(middle, min(low, middle, *each), max(high, middle, *each), size)
