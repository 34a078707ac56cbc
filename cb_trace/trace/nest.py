"""Nesting of intervals on threads, vectorised: who encloses whom, and who owns each instant.

Real nesting is imperfect: zero-length events are common and some intervals cross. The rule chosen
for crossing ones is that of a stack which clips a child's end to its parent's; intervals are
half-open, so an event that starts where another ends is outside it. Plain depth counting and a
naive as-of join are both wrong here (they lose what follows a finished sibling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cb_trace.arrays import distinct

Ints: TypeAlias = npt.NDArray[np.int64]

_LEVELS = 256  # deeper nests (only hostile files have them) are finished by a plain stack
_ROUNDS = 16
_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Nest:
    """Intervals in order of thread, start, longest first; positions index these arrays.

    ``order`` gives the input's index, ``parent`` a position or -1. ``start`` and ``end`` (clipped)
    are keys: times shifted so that threads follow one another, see ``axis``.
    """

    order: Ints
    start: Ints
    end: Ints
    parent: Ints
    axis: Axis

    def innermost(self, thread: Ints, time: Ints) -> Ints:
        """Index (into the input) of the innermost interval around each moment, -1 for none."""
        key, known = self.axis.keys(thread, time)
        at = np.searchsorted(self.start, key, side="right") - 1
        at[~known] = -1
        outside = np.flatnonzero(at >= 0)
        while len(outside := outside[self.end[at[outside]] <= key[outside]]):
            at[outside] = self.parent[at[outside]]
            outside = outside[at[outside] >= 0]
        found = np.full(len(at), -1, np.int64)
        found[at >= 0] = self.order[at[at >= 0]]
        return found

    def stretches(self) -> tuple[Ints, Ints, Ints]:
        """Each interval's self time, as uninterrupted stretches: input index, start, end."""
        solid = np.flatnonzero(self.end > self.start)
        count = len(solid)
        key = np.concatenate([self.end[solid], self.start[solid]])
        opens = np.repeat(np.array([0, 1]), count)  # at one instant, ends come before starts
        inner_first = np.concatenate([-solid, solid])
        owner = np.concatenate([self.parent[solid], solid])
        order = np.lexsort((inner_first, opens, key))
        key, owner = key[order], owner[order]
        kept = np.flatnonzero((owner[:-1] >= 0) & (key[1:] > key[:-1]))
        return (
            self.order[owner[kept]],
            self.axis.times(key[kept], owner[kept], self),
            self.axis.times(key[kept + 1], owner[kept], self),
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis for all threads: thread number × stride + time since the earliest event."""

    threads: Ints
    first: int
    stride: int
    ranks: Ints | None = None  # the times themselves, where a plain shift would overflow

    @classmethod
    def of(cls, thread: Ints, start: Ints, end: Ints) -> Axis:
        threads = distinct(thread)
        first, last = int(start.min()), int(end.max())
        if len(threads) * (last - first + 2) < _LIMIT:
            return cls(threads, first, last - first + 2)
        ranks = distinct(np.concatenate([start, end]))
        return cls(threads, 0, len(ranks) + 2, ranks)

    def keys(self, thread: Ints, time: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Keys of moments, and which of them lie on a thread and a time that are known."""
        at = np.minimum(np.searchsorted(self.threads, thread), len(self.threads) - 1)
        if self.ranks is None:
            shifted = np.clip(time, self.first - 1, self.first + self.stride - 1) - self.first
        else:
            shifted = np.searchsorted(self.ranks, time, side="right") - 1
        known = (self.threads[at] == thread) & (shifted >= 0)
        return at * self.stride + shifted, known

    def times(self, key: Ints, position: Ints, nest: Nest) -> Ints:
        """Times of keys; ``position`` tells the thread, since an end may touch the next stride."""
        shifted = key - nest.start[position] // self.stride * self.stride
        return shifted + self.first if self.ranks is None else self.ranks[shifted]


def nest(thread: Ints, start: Ints, dur: Ints) -> Nest:
    """Nest the intervals of all threads.

    :param thread, start, dur: one row an interval; ``dur`` must not be negative.
    """
    end = start + dur
    if not len(start):
        empty = np.zeros(0, np.int64)
        return Nest(empty, empty, empty, empty, Axis(np.full(1, -1), 0, 1))
    axis = Axis.of(thread, start, end)
    first, last = axis.keys(thread, start)[0], axis.keys(thread, end)[0]
    order = np.lexsort((-last, first))
    first, last = first[order], last[order]
    return Nest(order, first, last, _parents(first, last), axis)


def _parents(start: Ints, end: Ints) -> Ints:
    """Parents by position; ``end`` is clipped in place. Level by level from the outermost."""
    parent = np.full(len(start), -1, np.int64)
    active = np.arange(len(start))
    for _ in range(_LEVELS):
        if not len(active):
            return parent
        roots = _roots(start[active], end, active)
        if roots is None:
            break
        last_root = active[np.maximum.accumulate(np.where(roots, np.arange(len(active)), 0))]
        children = active[~roots]
        parent[children] = last_root[~roots]
        end[children] = np.minimum(end[children], end[parent[children]])
        active = children
    _finish_by_stack(start, end, parent, active)
    return parent


def _roots(start: Ints, end: Ints, active: Ints) -> npt.NDArray[np.bool_] | None:
    """Which of the active intervals no other encloses; None where too many cross.

    A crossing interval hides those after it, so it is clipped and the search done again.
    """
    for _ in range(_ROUNDS):
        covered = np.maximum.accumulate(end[active])
        roots = np.ones(len(active), bool)
        roots[1:] = start[1:] >= covered[:-1]
        last = np.maximum.accumulate(np.where(roots, np.arange(len(active)), 0))
        limit = end[active[last]]
        if not np.any(hidden := ~roots & (start >= limit)):
            return roots
        inside = ~roots & ~hidden
        end[active[inside]] = np.minimum(end[active[inside]], limit[inside])
    return None


def _finish_by_stack(start: Ints, end: Ints, parent: Ints, active: Ints) -> None:
    stack: list[int] = []
    for at in active.tolist():
        while stack and end[stack[-1]] <= start[at]:
            stack.pop()
        if stack:
            parent[at] = stack[-1]
            end[at] = min(end[at], end[stack[-1]])
        stack.append(at)
