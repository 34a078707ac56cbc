"""What a step loses in a knock-out: the figure of its pairs, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cb_trace.analysis.stats import (
    RESAMPLES,
    FloatArray,
    IntArray,
    Interval,
    middle_mean,
    tail_ranks,
)

SAME_SPEED = 0.15  # how far a pair's step may be from the bare one to tell of it
SAME_CAPTURE = 0.03  # how far a capture's may be: no host is in it, and others are its own ways
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
    keeps a speed of its own, so pairs of one couple are no two measurements. Couples whose step is
    not the bare one's are left out where there are others: of a DLRM on two streams (H200) one
    couple in four took 830 µs instead of 797, with nothing at once, and lost 60 instead of 31.

    A host may run at half its speed for seconds (seen on an H200: the same eager step of 6.1 ms
    took 13.5, and lost 912 µs instead of 430), and the loss is to be one of the ``bare`` step, as
    every other figure is. So pairs far from its speed (:func:`_slower`) are left out, and what an
    eager step loses is scaled to it. Where too few are left, every pair is scaled to it by its own
    speed, and the interval covers the figure as it was measured too.

    The interval is from a bootstrap of blocks of neighbouring pairs, which drift together. It
    also covers the median of each of the ``visits`` (pairs of each, in order): by the next one the
    host has another speed. The first pair of an eager visit is left out: see :func:`_warm`.
    """
    base, knocked = (np.asarray(ns, dtype=np.int64) for ns in (base_ns, knocked_ns))
    if not base.size:
        return None
    several = sum(captures) == base.size and len(captures) >= FEW
    figure = _of_captures if several else _median
    group = _groups(captures if several else visits, base.size)
    if not captures:  # graphs are settled before they are timed
        warm = _warm(group)
        base, knocked, group = base[warm], knocked[warm], group[warm]
    lost = base - knocked
    if bare is None or bare.median_ns <= 0:
        return figure(lost, group)
    slower = _slower(base, knocked, bare)
    like = np.abs(slower - 1) <= SAME_SPEED
    if like.sum() >= min(ENOUGH, base.size):
        like = _like_captures(base, group, bare, like) if several else like
        found = figure(lost[like], group[like])
        return found if captures else _at_speed(found, float(np.median(slower[like])))
    raw, scaled = figure(lost, group), figure(np.rint(lost / slower).astype(np.int64), group)
    low, high = min(raw.low_ns, scaled.low_ns), max(raw.high_ns, scaled.high_ns)
    return Interval(scaled.median_ns, low, high, scaled.samples)


def _warm(visit: IntArray) -> npt.NDArray[np.bool_]:
    """All pairs but the first of each visit, where that leaves enough to tell.

    The code of a step is cold when a visit begins, and the step as it is comes first: in 2,218
    visits on an H200 its first window took 79 µs longer than its others of 0.5 to 1.5 ms (median),
    that of the step without the module 21.
    """
    first = np.diff(visit, prepend=-1) > 0
    short = np.bincount(visit)[visit] <= LEAST
    warm: npt.NDArray[np.bool_] = ~first | short
    return warm


def _slower(base: IntArray, knocked: IntArray, bare: Interval) -> FloatArray:
    """How many times as long as at the speed of the bare step each pair took.

    Of both its steps: where pairs are left out whose base alone is long, what makes some steps
    longer is taken off the base and left in the step without the module. On an H200 whose host
    bounds the step that made losses known to be 2 to 40 % of it too small by 0.6 to 1.4 % of it.
    """
    base = np.maximum(base, 1)
    both = base + knocked
    ratio = float(np.median((base - knocked) / both))  # whatever the speed
    slower: FloatArray = both * (1 + ratio) / (2 * bare.median_ns)
    return slower


def _at_speed(found: Interval, slower: float) -> Interval:
    """A figure of steps so many times as slow as the bare one at the speed of that."""
    middle, low, high = (
        round(ns / slower) for ns in (found.median_ns, found.low_ns, found.high_ns)
    )
    return Interval(middle, low, high, found.samples)


def _like_captures(
    base: IntArray, capture: IntArray, bare: Interval, like: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Those pairs whose capture runs as the bare step does; all of them where too few do."""
    near = {
        one: abs(np.median(base[capture == one]) / bare.median_ns - 1) <= SAME_CAPTURE
        for one in np.unique(capture).tolist()
    }
    found = like & np.array([near[one] for one in capture.tolist()])
    enough = found.sum() >= min(ENOUGH, base.size) and np.unique(capture[found]).size >= FEW
    return found if enough else like


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
    middle = int(np.floor(float(middle_mean(medians))))
    low, high = _tails(middle_mean(drawn.T), middle, medians.size)
    return Interval(middle, low, high, lost.size)


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
