"""The device timeline as arrays of whole nanoseconds: step windows, owners, levels of overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.analysis.stats import IntArray
from cb_trace.arrays import distinct


@dataclass(frozen=True, slots=True)
class Windows:
    """The profiled steps in time order, none of which overlaps another."""

    start: IntArray
    end: IntArray

    @property
    def count(self) -> int:
        """How many steps a mean is taken over; at least 1."""
        return max(1, self.start.size)

    @property
    def total_ns(self) -> int:
        """Their lengths together."""
        return int((self.end - self.start).sum())


def step_windows(step: pl.DataFrame, *fallback: pl.DataFrame) -> Windows:
    """The windows of the steps; without steps one that spans the events of ``fallback``.

    Steps of a foreign trace may not be synchronised apart: a window that starts inside the one
    before begins where that one ends, so that every instant counts once.
    """
    if not step.is_empty():
        rows = step.sort("start_ns")
        start = _ints(rows, "start_ns")
        end = np.maximum.accumulate(start + _ints(rows, "window_ns"))
        start = np.maximum(start, np.concatenate([start[:1], end[:-1]]))
        return Windows(start, np.maximum(start, end))
    events = [
        frame.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))
        for frame in fallback
    ]
    spans = pl.concat(events).drop_nulls() if events else pl.DataFrame()
    if spans.is_empty():
        return Windows(np.empty(0, np.int64), np.empty(0, np.int64))
    return Windows(
        _ints(spans, "start_ns").min(keepdims=True), _ints(spans, "end_ns").max(keepdims=True)
    )


@dataclass(frozen=True, slots=True)
class Pieces:
    """Stretches of time inside windows, in time order: whose (a row number), which window."""

    row: IntArray
    window: IntArray
    start: IntArray
    end: IntArray


def owned(start: IntArray, end: IntArray, windows: Windows) -> Pieces:
    """The busy instants of each kernel that started first among those running.

    Kernels come sorted by start, ties in order of precedence. An instant of a kernel is its own
    unless an earlier one still runs, that is from the latest end of those before it onwards.
    """
    covered = np.maximum.accumulate(end)
    begin = start.copy()
    begin[1:] = np.maximum(begin[1:], covered[:-1])
    row = np.flatnonzero(end > begin)
    return _clip(row, begin[row], end[row], windows)


def shared_equally(start: IntArray, end: IntArray, windows: Windows) -> tuple[Pieces, IntArray]:
    """Every running kernel's stretches between changes, and its equal part of each in ns.

    The parts of one stretch sum to its length exactly. Size: kernels × changes while they run.
    """
    edge = distinct(np.concatenate([start, end, windows.start, windows.end]))
    first, last = np.searchsorted(edge, start), np.searchsorted(edge, end)
    row = np.repeat(np.arange(start.size), last - first)
    offset = np.arange(row.size) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
    stretch = first[row] + offset
    order = np.argsort(stretch, kind="stable")
    row, stretch = row[order], stretch[order]
    running = np.bincount(stretch, minlength=edge.size)
    rank = np.arange(row.size) - (np.cumsum(running) - running)[stretch]
    length, among = edge[stretch + 1] - edge[stretch], running[stretch]
    part = length * (rank + 1) // among - length * rank // among
    window = np.searchsorted(windows.end, edge[stretch], side="right")
    inside = window < windows.end.size
    inside[inside] &= windows.start[window[inside]] <= edge[stretch][inside]
    kept = Pieces(row[inside], window[inside], edge[stretch][inside], edge[stretch + 1][inside])
    return kept, part[inside]


def _clip(row: IntArray, start: IntArray, end: IntArray, windows: Windows) -> Pieces:
    """Cut stretches that are sorted and apart to the windows; one may reach into several."""
    first = np.searchsorted(windows.end, start, side="right")
    after = np.searchsorted(windows.start, end, side="left")
    times = np.maximum(after - first, 0)
    index = np.repeat(np.arange(row.size), times)
    offset = np.arange(index.size) - np.repeat(np.cumsum(times) - times, times)
    window = first[index] + offset
    begin = np.maximum(start[index], windows.start[window])
    stop = np.minimum(end[index], windows.end[window])
    kept = stop > begin
    return Pieces(row[index][kept], window[kept], begin[kept], stop[kept])


@dataclass(frozen=True, slots=True)
class Levels:
    """How much time before an edge exactly n kernels run, for any n: X without pairing kernels."""

    edge: IntArray
    key: IntArray  # level × (edges + 1) + stretch, sorted
    upto: IntArray  # running length of the stretches in that order

    def index(self, times: IntArray) -> IntArray:
        """Edge numbers of times that are edges."""
        return np.searchsorted(self.edge, times)

    def between(self, level: IntArray, first: IntArray, last: IntArray) -> IntArray:
        """Time from edge ``first`` to edge ``last`` in which exactly ``level`` kernels run."""
        base = level * (self.edge.size + 1)
        upto = self.upto
        return (
            upto[np.searchsorted(self.key, base + last)]
            - upto[np.searchsorted(self.key, base + first)]
        )


def levels(start: IntArray, end: IntArray) -> Levels:
    """The levels of overlap of all kernels of one device."""
    edge = distinct(np.concatenate([start, end]))
    change = np.bincount(np.searchsorted(edge, start), minlength=edge.size)
    change -= np.bincount(np.searchsorted(edge, end), minlength=edge.size)
    running = np.cumsum(change)[:-1]
    order = np.argsort(running, kind="stable")
    key = running[order] * (edge.size + 1) + order
    upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(edge)[order])])
    return Levels(edge, key, upto)


def _ints(frame: pl.DataFrame, column: str) -> IntArray:
    return frame[column].fill_null(0).to_numpy().astype(np.int64)
