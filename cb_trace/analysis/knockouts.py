"""What a step loses in a knock-out: the figure of its pairs, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cb_trace.analysis.stats import RESAMPLES, FloatArray, IntArray, Interval, tail_ranks

SAME_SPEED = 0.15  # how far a pair's step may be from the bare one to tell of it
ENOUGH = 8  # pairs
ANOTHER_STEP = 1.5  # times as long, or as short
LEAST = 3  # pairs of a visit, for its median to tell
SKEWED = 6  # fewer samples do not tell the two tails apart: the longer one holds for both
FEW = 4  # couples of captures: with fewer, how they differ cannot be told


def paired_loss(
    base_ns: Sequence[int],
    knocked_ns: Sequence[int],
    bare: Interval | None = None,
    visits: Sequence[int] = (),
    captures: Sequence[int] = (),
) -> Interval | None:
    """The median of base − knocked over the pairs, with its 95 % interval; None without pairs.

    Of CUDA graphs in many couples of ``captures`` (pairs of each, in order) it is the mean of the
    middle half of the couples' medians, and the interval that of couples drawn anew: a capture
    keeps a speed of its own, so pairs of one couple are no two measurements.

    A host may run at half its speed for seconds (seen on an H200: the same eager step of 6.1 ms
    took 13.5, and lost 912 µs instead of 430), and the loss is to be one of the ``bare`` step, as
    every other figure is. So pairs whose own base is far from it are left out. Where too few are
    left, all are scaled to it, and the interval covers the figure as it was measured too.

    The interval is from a bootstrap of blocks of neighbouring pairs, which drift together. It
    also covers the median of each of the ``visits`` (pairs of each, in order): by the next one the
    host has another speed.
    """
    base, knocked = (np.asarray(ns, dtype=np.int64) for ns in (base_ns, knocked_ns))
    if not base.size:
        return None
    lost = base - knocked
    several = sum(captures) == base.size and len(captures) >= FEW
    figure = _of_captures if several else _median
    group = _groups(captures if several else visits, base.size)
    if bare is None or bare.median_ns <= 0:
        return figure(lost, group)
    like = np.abs(base - bare.median_ns) <= SAME_SPEED * bare.median_ns
    if like.sum() >= min(ENOUGH, base.size):
        return figure(lost[like], group[like])
    raw, scaled = figure(lost, group), figure(lost * bare.median_ns // np.maximum(base, 1), group)
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


def _groups(sizes: Sequence[int], count: int) -> IntArray:
    """The group of each pair, by number; one for all where the sizes sum to something else."""
    ends = np.cumsum(sizes if sum(sizes) == count else [count])
    found: IntArray = np.searchsorted(ends, np.arange(count), side="right")
    return found


def _of_captures(lost: IntArray, capture: IntArray) -> Interval:
    """Mean of the middle half of the captures' medians, with the tails of those of drawn ones."""
    each = np.unique(capture)
    if each.size < FEW:  # of those at the speed of the bare step
        return _median(lost, capture)
    medians = np.array([np.median(lost[capture == one]) for one in each])
    rng = np.random.default_rng(0)
    drawn = medians[rng.integers(medians.size, size=(RESAMPLES, medians.size))]
    middle = int(np.floor(_middle_mean(medians[np.newaxis])[0]))
    low, high = _tails(_middle_mean(drawn), middle, medians.size)
    return Interval(middle, low, high, lost.size)


def _middle_mean(rows: FloatArray) -> FloatArray:
    """Mean of the middle half of each row: steadier than the median, and as deaf to outliers."""
    size = rows.shape[1]
    out = size // 4
    mean: FloatArray = np.sort(rows, axis=1)[:, out : size - out].mean(axis=1)
    return mean


def _median(lost: IntArray, visit: IntArray) -> Interval:
    """Median, rounded down, with the tails of the medians of resampled blocks, and all visits'."""
    size = lost.size
    block = max(1, round(size ** (1 / 3)))  # the usual order of growth
    rng = np.random.default_rng(0)
    starts = rng.integers(size - block + 1, size=(RESAMPLES, -(-size // block)))
    drawn = (starts[:, :, np.newaxis] + np.arange(block)).reshape(RESAMPLES, -1)[:, :size]
    middle = int(np.floor(np.median(lost)))
    low, high = _tails(np.median(lost[drawn], axis=1), middle, max(1, size // block))
    parts = [lost[visit == one] for one in np.unique(visit)]
    each = [int(np.floor(np.median(part))) for part in parts if part.size >= LEAST]
    return Interval(middle, min([low, *each]), max([high, *each]), size)


def _tails(figures: FloatArray, middle: int, count: int) -> tuple[int, int]:
    """The bounds that resampled figures of ``count`` independent ones tell of.

    Few samples hardly show their own tails: percentiles of a bootstrap are as much too near as the
    normal distribution is beside Student's, so they are moved out by that (Hesterberg, "What
    Teachers Should Know About the Bootstrap", 2015, section 4.4: expanded percentiles).
    """
    ranked = np.sort(np.floor(figures).astype(np.int64))
    low, high = (int(ranked[rank]) for rank in tail_ranks(RESAMPLES))
    below, above = max(0, middle - low), max(0, high - middle)
    if count < SKEWED:  # of 12, 13 and 13 no median of three drawn ones is above 13
        below = above = max(below, above)
    times = _expanded(count)
    return middle - round(times * below), middle + round(times * above)


def _expanded(count: int) -> float:
    """Student's 97.5 % quantile over the normal one, times √(n ÷ (n − 1)).

    The quantile is from its expansion in 1 ÷ degrees of freedom (Abramowitz and Stegun 26.7.5).
    """
    free, z = max(1, count - 1), 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    student = z + sum(term / free**power for power, term in enumerate(terms, 1))
    return float(student / z * math.sqrt(count / free)) if count > 1 else 1.0
