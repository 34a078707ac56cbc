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
    # With one figure for all kernels that run at once: what is to run beside others met nobody.
    plain: Scaled | None = None

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
        low, high = _tails(every[0].reshape(len(every[0]), -1))
        shape = means.shape[1:]
        return (
            np.minimum(means.min(axis=0), low.reshape(shape)),
            np.maximum(means.max(axis=0), high.reshape(shape)),
        )


def _tails(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of the figures of rows drawn anew, column by column: all at once may be gigabytes."""
    drawn = np.random.default_rng(0).integers(len(rows), size=(len(rows), RESAMPLES))
    ranks = list(tail_ranks(RESAMPLES))
    found = [np.sort(middle_mean(column[drawn]))[ranks] for column in rows.T]
    low, high = np.array(found).reshape(-1, 2).T
    return low, high
