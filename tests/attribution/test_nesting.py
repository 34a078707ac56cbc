"""Nesting against literal ties and against a plain stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.attribution.nesting import NOTHING, least_outwards, nearest, nest
from tests.attribution import brute

Row = dict[str, Any]
SCHEMA = {"thread": pl.Int32, "start_ns": pl.Int64, "dur_ns": pl.Int64}


def rows(*intervals: tuple[int, int], thread: int = 1) -> list[Row]:
    return [{"thread": thread, "start_ns": s, "dur_ns": e - s} for s, e in intervals]


def frame(intervals: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(intervals, schema=SCHEMA)


def located(intervals: list[Row], *at_ns: int, thread: int = 1) -> list[int]:
    at = np.array(at_ns, np.int64)
    return list(nest(frame(intervals)).locate(np.full_like(at, thread), at))


def test_a_point_after_a_finished_sibling_lies_in_the_parent() -> None:
    assert located(rows((0, 100), (10, 20)), 5, 15, 20, 99, 100) == [0, 1, 0, 0, NOTHING]


def test_equal_starts_nest_the_shorter_in_the_longer_whatever_their_order() -> None:
    assert nest(frame(rows((0, 5), (0, 9)))).parent.tolist() == [1, NOTHING]


def test_equal_intervals_nest_in_the_order_given() -> None:
    assert nest(frame(rows((0, 5), (0, 5)))).parent.tolist() == [NOTHING, 0]


def test_row_22_a_child_that_ends_with_its_parent_is_its_child() -> None:
    nested = nest(frame(rows((0, 10), (4, 10), (10, 12))))
    assert nested.parent.tolist() == [NOTHING, 0, NOTHING]


def test_row_23_a_child_that_outlives_its_parent_is_clipped() -> None:
    nested = nest(frame(rows((0, 10), (4, 15), (12, 20))))
    assert nested.parent.tolist() == [NOTHING, 0, NOTHING]
    assert nested.end_ns.tolist() == [10, 10, 20]
    assert nested.locate(np.array([1, 1]), np.array([9, 11])).tolist() == [1, NOTHING]


def test_row_24_an_interval_of_no_length_has_a_parent_and_holds_nothing() -> None:
    intervals = rows((0, 10), (5, 5), (10, 10))
    assert nest(frame(intervals)).parent.tolist() == [NOTHING, 0, NOTHING]
    assert located(intervals, 5) == [0]


def test_threads_do_not_mix() -> None:
    intervals = rows((0, 10)) + rows((2, 4), thread=2)
    assert nest(frame(intervals)).parent.tolist() == [NOTHING, NOTHING]
    assert located(intervals, 3, thread=2) == [1]
    assert located(intervals, 3, thread=3) == [NOTHING]


def test_no_intervals() -> None:
    assert located([], 3) == [NOTHING]


def test_nearest_looks_outwards_from_itself() -> None:
    parent = np.array([NOTHING, 0, 1, 2], np.int64)
    flag = np.array([False, True, False, False])
    assert nearest(parent, flag).tolist() == [NOTHING, 1, 1, 1]
    assert least_outwards(parent, np.array([9, 4, 6, 3])).tolist() == [9, 4, 4, 3]


INTERVAL = st.fixed_dictionaries(
    {"thread": st.integers(1, 2), "start_ns": st.integers(0, 30), "dur_ns": st.integers(0, 12)}
)
POINT = st.fixed_dictionaries({"thread": st.integers(1, 3), "start_ns": st.integers(-1, 45)})


@settings(deadline=None)
@given(st.lists(INTERVAL, max_size=25), st.lists(POINT, max_size=15))
def test_equals_the_stack(intervals: list[Row], points: list[Row]) -> None:
    """Crossing, tied and empty intervals included."""
    nested = nest(frame(intervals))
    parents, ends = brute.clipped(intervals)
    assert [None if p == NOTHING else p for p in nested.parent.tolist()] == parents
    assert nested.end_ns.tolist() == ends
    thread = np.array([p["thread"] for p in points], np.int64)
    found = nested.locate(thread, np.array([p["start_ns"] for p in points], np.int64))
    assert [None if f == NOTHING else f for f in found.tolist()] == brute.innermost(
        points, intervals
    )
