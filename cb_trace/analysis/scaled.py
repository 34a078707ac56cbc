"""The programs of one deployment at the bare step, and what figures over them come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cb_trace.analysis.calibrate import Scale
from cb_trace.analysis.stats import RESAMPLES, FloatArray, middle_mean, tail_ranks


@dataclass(frozen=True, slots=True)
class Scaled:
    """One program a profiled step, or where ``met`` a profiled run of the graph.

    ``sides``: the same at each bound of the bare step, where it has any.

    Steps are of one kind, and a few are disturbed: their median counts. Runs in which kernels of
    several streams meet otherwise are all as good, and a bare step is one after another of them:
    the mean of their middle half counts, as it does of captures in a knock-out.
    """

    middle: Sequence[Scale]
    sides: Sequence[Sequence[Scale]] = ()
    met: bool = False

    def figure(self, values: FloatArray) -> FloatArray:
        """What values, one row a program of ``middle``, come to."""
        found: FloatArray = middle_mean(values) if self.met else np.median(values, axis=0)
        return found

    def span(self, values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """The bounds of the figure: the least and the most over programs and sides; of a mean those
        of the sides, and the tails of runs drawn anew.

        :param values: of ``middle``, then of each of the ``sides``; one row a program.
        """
        every = np.stack(values)
        if not self.met:
            return every.min(axis=(0, 1)), every.max(axis=(0, 1))
        means = np.stack([middle_mean(rows) for rows in every])
        drawn = np.sort(_drawn_means(every[0]), axis=0)
        low, high = tail_ranks(RESAMPLES)
        return np.minimum(means.min(axis=0), drawn[low]), np.maximum(means.max(axis=0), drawn[high])


def _drawn_means(rows: FloatArray) -> FloatArray:
    rng = np.random.default_rng(0)
    drawn = rows[rng.integers(len(rows), size=(RESAMPLES, len(rows)))]
    return middle_mean(np.moveaxis(drawn, 1, 0))
