"""Medians and bootstrap intervals of samples and of means over steps, in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure in nanoseconds with the bounds it is known within; ``low ≤ median ≤ high``."""

    median_ns: int
    low_ns: int
    high_ns: int
    samples: int = 1

    def __add__(self, other: Interval) -> Interval:
        """Sum; the bounds add up, which never makes them too narrow."""
        return Interval(
            self.median_ns + other.median_ns,
            self.low_ns + other.low_ns,
            self.high_ns + other.high_ns,
            min(self.samples, other.samples),
        )

    def __neg__(self) -> Interval:
        return Interval(-self.median_ns, -self.high_ns, -self.low_ns, self.samples)

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, times: int) -> Interval:
        """The figure of ``times`` like calls; ``times`` is not negative."""
        return Interval(
            self.median_ns * times, self.low_ns * times, self.high_ns * times, self.samples
        )

    def proportion(self, ns: int) -> Interval:
        """A figure that varies as this one does: bounds in the same proportion to it."""
        if self.median_ns == 0:
            return Interval(ns, ns, ns, self.samples)
        sides = sorted(ns * side // self.median_ns for side in (self.low_ns, self.high_ns))
        return Interval(ns, min(ns, sides[0]), max(ns, sides[1]), self.samples)


NOTHING = Interval(0, 0, 0)


BareStep = Interval  # the median bare step of one deployment


def interval_stats(
    samples_ns: Sequence[int] | IntArray, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Median of samples with its 95 % bootstrap interval (percentile method, seeded).

    The median of an even number of samples is the mean of the middle two, rounded down. One
    sample is its own interval.

    :raises ValueError: there is no sample.
    """
    samples = np.sort(np.asarray(samples_ns, dtype=np.int64))
    if not samples.size:
        raise ValueError("no samples")
    # Resampled ranks, not values: the median of sorted samples is monotone in the rank.
    drawn = np.random.default_rng(seed).integers(samples.size, size=(resamples, samples.size))
    drawn.sort(axis=1)
    medians = np.sort(_middle(samples[drawn]))
    low, high = (int(medians[k]) for k in tail_ranks(resamples))
    median = int(_middle(samples[np.newaxis])[0])
    return Interval(median, min(low, median), max(high, median), samples.size)


def _middle(rows: IntArray) -> IntArray:
    """Median of each sorted row, rounded down; the sum of two int64 durations cannot overflow."""
    size = rows.shape[1]
    return (rows[:, (size - 1) // 2] + rows[:, size // 2]) // 2


def tail_ranks(count: int) -> tuple[int, int]:
    """Ranks of the lower and upper bound among ``count`` sorted resamples."""
    cut = int(count * (1 - CONFIDENCE) / 2)
    return cut, count - 1 - cut


def middle_mean(rows: FloatArray) -> FloatArray:
    """Mean of the middle half along the first axis: steady, and deaf to outliers."""
    out = len(rows) // 4
    mean: FloatArray = np.sort(rows, axis=0)[out : len(rows) - out].mean(axis=0)
    return mean


def halves_up(numerator: int, denominator: int) -> int:
    """Quotient of whole numbers, rounded to the nearest, halves up; the denominator is positive."""
    return (2 * numerator + denominator) // (2 * denominator)


def round_running(parts: Sequence[int], numerator: int, denominator: int) -> list[int]:
    """Scale whole parts by a fraction so that the results sum to the scaled sum, rounded once."""
    running = [halves_up(sum_ * numerator, denominator) for sum_ in accumulate(parts)]
    return [upper - lower for lower, upper in pairwise([0, *running])]


def resampled_sums(rows: IntArray, *, resamples: int = 200, seed: int = 0) -> FloatArray:
    """Bootstrap over columns: for each row the sum of as many columns drawn with replacement.

    :param rows: durations, shape (rows, columns).
    :returns: shape (rows, resamples); all rows see the same draws.
    """
    # BLAS needs floats; durations below 2^53 ns are exact in them.
    return rows.astype(np.float64) @ _draws(rows.shape[1], resamples, seed)


@lru_cache(maxsize=4)
def _draws(columns: int, resamples: int, seed: int) -> FloatArray:
    """How often each column is drawn, shape (columns, resamples); drawing costs more than sums."""
    if columns == 1:  # nothing to draw, and numpy.random takes 10 ms to import
        return np.ones((1, resamples))
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(columns, np.full(columns, 1 / columns), size=resamples)
    return counts.T.astype(np.float64)


def tails(resampled: FloatArray) -> tuple[IntArray, IntArray]:
    """Lower and upper bound of each row of resamples, rounded outwards."""
    low, high = tail_ranks(resampled.shape[1])
    ranked = np.sort(resampled, axis=1)
    return np.floor(ranked[:, low]).astype(np.int64), np.ceil(ranked[:, high]).astype(np.int64)
