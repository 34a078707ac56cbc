"""Medians and bootstrap intervals of samples and of means over steps, in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

CONFIDENCE = 0.95
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure in nanoseconds with the bounds it is known within; ``low ≤ median ≤ high``."""

    median_ns: int
    low_ns: int
    high_ns: int
    samples: int = 1


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
