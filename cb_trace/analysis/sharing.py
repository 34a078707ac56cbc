"""Kernels of several streams that share the device: who runs beside whom, and how fast.

Two kernels that run at once each slow the other, for they share its processors and its memory. One
figure says by how much: with ``together`` 0 the device does no more in all than with one kernel at
a time, with 1 they do not feel each other; below 0 it does less. Kernels on one stream never meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cb_trace.analysis.stats import FloatArray, IntArray

_DONE_NS = 1e-3  # work that is left by rounding alone


def speed(running: IntArray, together: FloatArray) -> FloatArray:
    """How fast each of ``running`` kernels goes, 1 being alone."""
    some = np.maximum(running, 1)
    others = np.where(together < 0, np.minimum(some - 1, 1), some - 1)  # work never runs backwards
    rate: FloatArray = (1 + together * others) / some
    return rate


def beside(start: IntArray, end: IntArray) -> FloatArray:
    """Which part of each kernel ran with none, one, two … others, shape (kernels, most at once)."""
    order = np.sort(np.concatenate([start, end]))
    edge = np.unique(order)
    running = np.searchsorted(np.sort(start), edge[:-1], side="right") - np.searchsorted(
        np.sort(end), edge[:-1], side="right"
    )
    most = max(1, int(running.max(initial=1)))
    found = np.zeros((start.size, most))
    length = np.diff(edge)
    passed = np.zeros((most + 1, edge.size))  # ns so far with so many running
    for many in range(1, most + 1):
        passed[many, 1:] = np.cumsum(np.where(running == many, length, 0))
    first, last = np.searchsorted(edge, start), np.searchsorted(edge, end)
    for many in range(1, most + 1):
        found[:, many - 1] = passed[many, last] - passed[many, first]
    whole = found.sum(axis=1, keepdims=True)
    found[:, :1] = np.where(whole > 0, found[:, :1], 1.0)
    shares: FloatArray = found / np.where(whole > 0, whole, 1.0)
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Kernels in the order of their launches, under several variants at once."""

    stream: IntArray
    needs: Mapping[int, tuple[int, ...]]
    there: npt.NDArray[np.bool_]  # shape (kernels, variants), as all below
    work: FloatArray  # ns alone
    gaps: FloatArray
    ready: FloatArray  # when its launch reaches the device
    together: FloatArray  # shape (variants,)


def last_end(given: Shared) -> FloatArray:
    """When the last kernel of each variant ends: from one event of each variant to its next."""
    lanes = _lanes(given.stream)
    state = _State.begin(given, lanes.shape[0])
    needs = _padded(given.needs, given.stream.size)
    while _advance(given, lanes, needs, state):
        pass
    ends: FloatArray = state.lane_end.max(axis=0, initial=0.0)
    return ends


@dataclass(slots=True)
class _State:
    now: FloatArray  # (variants,)
    place: IntArray  # (lanes, variants): the kernel that runs, or the next one
    running: npt.NDArray[np.bool_]
    left: FloatArray  # work of it
    lane_end: FloatArray
    used: npt.NDArray[np.bool_]
    ended: FloatArray  # (kernels + 1, variants); the last is no kernel

    @classmethod
    def begin(cls, given: Shared, lanes: int) -> _State:
        kernels, count = given.there.shape
        shape = (lanes, count)
        ended = np.full((kernels + 1, count), np.inf)
        ended[-1] = 0.0
        return cls(
            np.zeros(count), np.zeros(shape, np.int64), np.zeros(shape, np.bool_),
            np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_), ended,
        )  # fmt: skip


def _lanes(stream: IntArray) -> IntArray:
    """Kernels of each stream in order, filled up with the number that is no kernel."""
    rows = [np.flatnonzero(stream == lane) for lane in range(int(stream.max(initial=0)) + 1)]
    found = np.full((len(rows), max(row.size for row in rows) + 1), stream.size, np.int64)
    for lane, row in enumerate(rows):
        found[lane, : row.size] = row
    return found


def _padded(needs: Mapping[int, tuple[int, ...]], kernels: int) -> IntArray:
    most = max((len(others) for others in needs.values()), default=0)
    found = np.full((kernels + 1, most), kernels, np.int64)
    for kernel, others in needs.items():
        found[kernel, : len(others)] = others
    return found


def _advance(given: Shared, lanes: IntArray, needs: IntArray, state: _State) -> bool:
    """One event of every variant; False when nothing is left of any."""
    kernels, count = given.there.shape
    column = np.arange(count)
    kernel = lanes[np.arange(lanes.shape[0])[:, None], state.place]
    some = np.minimum(kernel, kernels - 1)
    waiting = (kernel < kernels) & ~state.running
    gap = given.gaps[some, column]
    at = np.where(state.used, state.lane_end + gap, 0.0)
    at, held = np.maximum(at, given.ready[some, column]), state.lane_end
    for other in np.moveaxis(needs[kernel], -1, 0):
        after = state.ended[other, column]
        at = np.maximum(at, np.where(other < kernels, after + gap, 0.0))
        held = np.maximum(held, after)
    # A wait stays when its kernel goes.
    absent = waiting & ~given.there[some, column] & np.isfinite(held)
    state.used |= absent & (held > 0)
    _end(state, kernel, absent, held)
    waiting &= given.there[some, column]
    begins = waiting & (at <= state.now)
    state.left[begins] = given.work[some, column][begins]
    state.running |= begins
    moved = (absent | begins).any(axis=0)
    rate = speed(state.running.sum(axis=0), given.together)
    until = np.where(state.running, state.now + state.left / rate, np.inf)
    until = np.minimum(until, np.where(waiting & ~begins, at, np.inf)).min(axis=0)
    on = ~moved & np.isfinite(until)
    passed = np.where(on, np.where(on, until, 0.0) - state.now, 0.0)
    state.left -= np.where(state.running, rate * passed, 0.0)
    state.now += passed
    ends = state.running & (state.left <= _DONE_NS) & on
    state.used |= ends
    state.running &= ~ends
    _end(state, kernel, ends, np.broadcast_to(state.now, ends.shape))
    return bool((moved | on).any())


def _end(state: _State, kernel: IntArray, which: npt.NDArray[np.bool_], when: FloatArray) -> None:
    lane, column = np.nonzero(which)
    state.ended[kernel[lane, column], column] = when[lane, column]
    state.lane_end[lane, column] = when[lane, column]
    state.place[lane, column] += 1
