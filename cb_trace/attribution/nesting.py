"""Which interval is around what: nesting on each thread, vectorised.

The rule, one for all layers, on half-open intervals in integer nanoseconds:

* Intervals of a thread are taken by start, the longer first, then in the order given. The parent of
  an interval is the last one before it that has not ended by its start.
* A child that outlives its parent is clipped to the parent's end. Real traces hold such pairs, by
  rounding and by frames that never returned (traces.md rows 22 and 23, M2); for truly crossing
  intervals the clip is a rule chosen, not a truth (ingest.md, "Linking").
* An interval of no length lies in the one around it and holds nothing (traces.md row 24).

Finding the last interval that *started* before a point is not enough: it loses every point after a
finished sibling (ingest.md, "Naive ASOF is wrong").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Scalar = TypeVar("Scalar", np.int64, np.bool_)

NOTHING = -1  # in place of a position: no interval there


@dataclass(frozen=True, slots=True)
class Track:
    """The instants of one thread where the innermost interval changes, and to which."""

    times: Ints
    inside: Ints


@dataclass(frozen=True, slots=True)
class Nest:
    """Nested intervals. Positions are rows of the frame given; ``NOTHING`` stands for none.

    ``parent`` and ``end_ns`` (clipped) have one value an interval.
    """

    parent: Ints
    end_ns: Ints
    tracks: dict[int, Track]

    def locate(self, thread: Ints, at_ns: Ints) -> Ints:
        """The position of the innermost interval around each point."""
        found = np.full(len(thread), NOTHING, np.int64)
        for number, rows in by_thread(thread):
            if track := self.tracks.get(number):
                found[rows] = _inside(track, at_ns[rows])
        return found


def nest(intervals: pl.DataFrame) -> Nest:
    """Nest the rows of a frame by their ``thread``, ``start_ns`` and ``dur_ns``."""
    start, duration = column(intervals, "start_ns"), column(intervals, "dur_ns")
    end, lasting = start + duration, duration > 0
    parent = np.full(len(start), NOTHING, np.int64)
    tracks: dict[int, Track] = {}
    for number, rows in by_thread(column(intervals, "thread")):
        solid = rows[lasting[rows]]
        solid = solid[np.lexsort((-end[solid], start[solid]))]
        above, clipped, depth = _tree(start[solid], end[solid])
        parent[solid] = np.where(above == NOTHING, NOTHING, solid[above])
        end[solid] = clipped
        tracks[number] = _changes(solid, start, end, parent, depth)
        empty = rows[~lasting[rows]]
        parent[empty] = _inside(tracks[number], start[empty])
    return Nest(parent, end, tracks)


def nearest(parent: Ints, flag: Flags) -> Ints:
    """The closest flagged position from each position outwards, itself included.

    Pointer jumping: the logarithm of the depth in passes, no loop over rows. A parent comes before
    its children, so there is no ring to go round in.
    """
    own = np.arange(len(parent), dtype=np.int64)
    jump = np.append(np.where(flag, own, parent), NOTHING)  # the last slot is NOTHING's own
    while not np.array_equal(further := jump[jump], jump):
        jump = further
    return jump[:-1]


def least_outwards(parent: Ints, value: Ints) -> Ints:
    """The least value from each position outwards, itself included; by pointer jumping."""
    jump = np.append(parent, NOTHING)
    least = np.append(value, np.iinfo(np.int64).max)
    while (jump != NOTHING).any():
        least, jump = np.minimum(least, least[jump]), jump[jump]
    return least[:-1]


def lookup(
    values: npt.NDArray[Scalar], at: Ints, otherwise: int | bool = NOTHING
) -> npt.NDArray[Scalar]:
    """``values[at]``, and ``otherwise`` where ``at`` is ``NOTHING``."""
    return np.append(values, values.dtype.type(otherwise))[at]


def innermost(layers: list[tuple[pl.DataFrame, Ints]]) -> Ints:
    """The number of the layer whose interval is innermost: it starts last, or is the shorter."""
    count = len(layers[0][1])
    best = np.full(count, NOTHING, np.int64)
    best_start = np.full(count, np.iinfo(np.int64).min)
    best_dur = np.zeros(count, np.int64)
    for number, (frame, at) in enumerate(layers):
        start = lookup(column(frame, "start_ns"), at, np.iinfo(np.int64).min)
        dur = lookup(column(frame, "dur_ns"), at, 0)
        better = (start > best_start) | ((start == best_start) & (dur < best_dur))
        best = np.where(better, number, best)
        best_start, best_dur = np.where(better, start, best_start), np.where(better, dur, best_dur)
    return best


def column(frame: pl.DataFrame, name: str, missing: int = NOTHING) -> Ints:
    """An integer column as int64, nulls as ``missing``."""
    return frame[name].fill_null(missing).to_numpy().astype(np.int64)


def by_thread(thread: Ints) -> Iterator[tuple[int, Ints]]:
    """Each thread with the positions of its rows, in order."""
    order = np.argsort(thread, kind="stable")
    numbers, first = np.unique(thread[order], return_index=True)
    rows = np.split(order, first[1:])
    return zip(numbers.tolist(), rows if len(numbers) else [], strict=True)


def _tree(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Parent, clipped end and depth of the intervals of one track, all of them in rule order."""
    ended = np.searchsorted(np.sort(end), start, side="right")
    depth = np.arange(len(start)) - ended  # right where everything nests
    parent = _last_of_lower_depth(depth)
    above = lookup(end, parent, np.iinfo(np.int64).max)
    if not (end <= above).all():
        _untangle(start, end, end > above, parent, depth)
        end = least_outwards(parent, end)
    return parent, end, depth


def _last_of_lower_depth(depth: Ints) -> Ints:
    """For each interval the last one before it of the depth one lower."""
    parent = np.full(len(depth), NOTHING, np.int64)
    order = np.argsort(depth, kind="stable")
    layers = np.split(order, np.searchsorted(depth[order], np.arange(1, depth.max(initial=0) + 1)))
    for upper, lower in pairwise(layers):
        parent[lower] = upper[np.searchsorted(upper, lower) - 1]
    return parent


def _untangle(start: Ints, end: Ints, crossing: Flags, parent: Ints, depth: Ints) -> None:
    """Redo, by an explicit stack, the groups of overlapping intervals in which some cross.

    Counting depth is wrong in them. They are few in real traces, so the loop is short.
    """
    before = np.maximum.accumulate(end)[:-1]
    group = np.cumsum(np.append(True, start[1:] >= before))
    tangled = np.flatnonzero(np.isin(group, group[crossing]))
    starts, ends = start.tolist(), end.tolist()
    stack: list[int] = []
    for at in tangled.tolist():
        while stack and ends[stack[-1]] <= starts[at]:
            stack.pop()
        parent[at], depth[at] = stack[-1] if stack else NOTHING, len(stack)
        if stack:
            ends[at] = min(ends[at], ends[stack[-1]])
        stack.append(at)


def _changes(rows: Ints, start: Ints, end: Ints, parent: Ints, depth: Ints) -> Track:
    """Every start opens its interval, every end goes back to the parent.

    At one instant ends come first, the inner before the outer, then starts, the outer before the
    inner: the last change of an instant is the one that holds.
    """
    outwards = np.argsort(-depth, kind="stable")
    times = np.concatenate([end[rows][outwards], start[rows]])
    inside = np.concatenate([parent[rows][outwards], rows])
    order = np.argsort(times, kind="stable")
    return Track(times[order], inside[order])


def _inside(track: Track, at_ns: Ints) -> Ints:
    last = np.searchsorted(track.times, at_ns, side="right") - 1
    return lookup(track.inside, last)
