"""Nesting against a plain stack and brute force, on random and on awkward intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.trace.nest import Ints, nest

Interval = tuple[int, int, int]

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=24
)


def columns(intervals: list[Interval]) -> tuple[Ints, Ints, Ints]:
    rows = np.array(intervals, np.int64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def by_stack(intervals: list[Interval]) -> tuple[list[int], list[int]]:
    """Parent and clipped end of each interval, by the rule in words: the reference."""
    order = sorted(
        range(len(intervals)),
        key=lambda i: (intervals[i][0], intervals[i][1], -intervals[i][2], i),
    )
    parent, end = [-1] * len(intervals), [start + dur for _, start, dur in intervals]
    stack: list[int] = []
    for i in order:
        thread, start, _ = intervals[i]
        while stack and (intervals[stack[-1]][0] != thread or end[stack[-1]] <= start):
            stack.pop()
        if stack:
            parent[i] = stack[-1]
            end[i] = min(end[i], end[stack[-1]])
        stack.append(i)
    return parent, end


@settings(max_examples=300, deadline=None)
@given(INTERVALS, st.sampled_from([0, 1, 2**61]))
def test_parents_and_innermost_equal_a_stack(intervals: list[Interval], shift: int) -> None:
    thread, start, dur = columns(intervals)
    nested = nest(thread, start + shift, dur)
    parent, end = by_stack(intervals)
    found = [-1] * len(intervals)
    for position, index in enumerate(nested.order):
        above = nested.parent[position]
        found[index] = int(nested.order[above]) if above >= 0 else -1
    assert found == parent
    for moment in range(44):
        for track in range(4):
            open_ones = [
                i for i, (own, begin, _) in enumerate(intervals)
                if own == track and begin <= moment < end[i]
            ]  # fmt: skip
            at = nested.innermost(np.array([track]), np.array([moment + shift]))[0]
            deepest = [i for i in open_ones if i not in {parent[j] for j in open_ones}]
            assert [int(at)] == (deepest or [-1])


@settings(max_examples=200, deadline=None)
@given(INTERVALS)
def test_stretches_own_every_instant_once(intervals: list[Interval]) -> None:
    thread, start, dur = columns(intervals)
    nested = nest(thread, start, dur)
    owner, low, high = nested.stretches()
    assert (high > low).all()
    for track in range(3):
        for moment in range(44):
            owning = owner[(thread[owner] == track) & (low <= moment) & (moment < high)].tolist()
            innermost = int(nested.innermost(np.array([track]), np.array([moment]))[0])
            assert owning == ([innermost] if innermost >= 0 else [])


def test_times_that_would_overflow_a_shared_axis() -> None:
    thread = np.array([1, 1, 5, 5])
    start = np.array([-(2**61), 0, 2**61, 2**61 + 5])
    dur = np.array([2**62, 10, 20, 5])
    nested = nest(thread, start, dur)
    assert nested.order[nested.parent[1]] == 0
    assert nested.innermost(thread, start + 1).tolist() == [0, 1, 2, 3]
    owner, low, high = nested.stretches()
    assert int(np.sum(high - low)) == 2**62 + 20
    assert owner.tolist() == [0, 1, 0, 2, 3, 2]


@pytest.mark.parametrize("depth", [100, 1500])
def test_deep_nests(depth: int) -> None:
    start = np.arange(depth)
    nested = nest(np.zeros(depth, np.int64), start, 10_000 - 2 * start)
    assert nested.parent.tolist() == list(range(-1, depth - 1))


def test_many_crossing_intervals() -> None:
    count = 3000
    start = np.arange(count) * 10
    nested = nest(np.zeros(count, np.int64), start, np.full(count, 15))
    # each even one is a root; the next crosses its end and is clipped to it
    assert nested.parent.tolist() == [-1 if i % 2 == 0 else i - 1 for i in range(count)]


def test_no_intervals_at_all() -> None:
    empty = np.zeros(0, np.int64)
    nested = nest(empty, empty, empty)
    assert nested.innermost(np.array([1]), np.array([5])).tolist() == [-1]
    assert [len(column) for column in nested.stretches()] == [0, 0, 0]
