"""The events we append: exact times, rows without overlap, valid JSON whatever the name."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cb_trace.reporters import perfetto_events as events
from cb_trace.reporters.perfetto_events import Placed, Slice


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000"), (7, "0.007"), (1_234_567, "1234.567"), (-5, "-0.005")],
)
def test_microseconds(ns: int, text: str) -> None:
    assert events.microseconds(ns) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_nanosecond_is_lost(ns: int) -> None:
    assert Decimal(events.microseconds(ns)) * 1000 == ns


def call(start: int, dur: int, row: str = "depth 0", name: str = "a") -> Slice:
    return Slice(row=row, name=name, start_ns=start, dur_ns=dur, key=start)


def test_slices_that_follow_share_a_row() -> None:
    placed = events.place([call(0, 10), call(10, 5), call(20, 5)])
    assert [item.tid for item in placed] == [1, 1, 1]


def test_slices_that_overlap_get_a_further_row_and_keep_their_times() -> None:
    placed = events.place([call(0, 10), call(5, 10), call(10, 5), call(16, 2)])
    assert [(item.tid, item.row) for item in placed] == [
        (1, "depth 0"),
        (2, "depth 0 (2)"),
        (1, "depth 0"),
        (1, "depth 0"),
    ]
    assert [item.slice.start_ns for item in placed] == [0, 5, 10, 16]


def test_empty_slices_at_one_instant_do_not_share_a_row() -> None:
    assert [item.tid for item in events.place([call(5, 0), call(5, 0), call(6, 0)])] == [1, 2, 1]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_no_two_slices_of_a_row_overlap(times: list[tuple[int, int]]) -> None:
    placed = events.place([call(start, dur) for start, dur in sorted(times)])
    assert len(placed) == len(times)
    for tid in {item.tid for item in placed}:
        row = [item.slice for item in placed if item.tid == tid]
        assert all(a.start_ns + a.dur_ns <= b.start_ns for a, b in itertools.pairwise(row))


def test_process_numbers_of_the_trace_are_avoided() -> None:
    assert events.unused_pids(["100", "1000000002", "Spans"], 2) == [1_000_000_001, 1_000_000_003]


def test_hostile_names_stay_valid_json() -> None:
    name = '"}]\u0000\ud800<script>' + "x" * 10_000
    hostile = Slice(row="r", name=name, start_ns=1, dur_ns=2, args={"path": name, "gone": None})
    event = json.loads(events.slice_event(9, Placed(hostile, 3, "r")))
    assert (event["name"], event["args"]) == (name, {"path": name})
    plain = events.slice_event(9, Placed(Slice(row="r", name="שלום", start_ns=1, dur_ns=2), 3, "r"))
    assert "שלום".encode() in plain  # the UI does not read \\u escapes of letters
    assert (event["pid"], event["tid"], event["ts"], event["dur"]) == (9, 3, 0.001, 0.002)


def test_numbers_that_json_lacks_are_left_out() -> None:
    item = Slice(row="r", name="a", start_ns=0, dur_ns=0, args={"x": float("nan"), "y": 1.5})
    assert json.loads(events.slice_event(1, Placed(item, 1, "r")))["args"] == {"y": 1.5}


def test_flow_ends_name_rows_as_the_file_does() -> None:
    assert json.loads(events.flow_end(4, "25 %", "0", "stream 7", 1500)) == {
        "ph": "f", "cat": "cb_trace", "name": "25 %", "id": 4, "pid": 0, "tid": "stream 7",
        "ts": 1.5, "bp": "e",
    }  # fmt: skip


def test_a_counter_begins_each_window_with_the_value_that_stood_before_it() -> None:
    steps = [(10, 1.0), (20, 2.0), (30, 1.0), (50, 0.0)]

    def within(*windows: tuple[int, int]) -> list[tuple[int, float]]:
        return list(events.steps_within(steps, windows))

    assert within() == steps
    assert within((22, 40)) == [(22, 2.0), (30, 1.0)]
    assert within((0, 15)) == [(10, 1.0)]
    assert within((20, 25)) == [(20, 2.0)]
    assert within((35, 40)) == [(35, 1.0)]  # nothing changes in it
    assert within((35, 40), (12, 22)) == [(12, 1.0), (20, 2.0), (35, 1.0)]
    assert within((15, 35), (25, 60)) == [(15, 1.0), (20, 2.0), (30, 1.0), (50, 0.0)]
