"""The bounds hold HTA's rounding and nothing more; the reasons count what differs."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cb_trace.hta import check
from tests.frames import frame


def kernels(*intervals: tuple[int, int], **same: Any) -> pl.DataFrame:
    rows = [{"kernel_id": k, "start_ns": a, "dur_ns": b - a, "launch_id": k, **same}
            for k, (a, b) in enumerate(intervals)]  # fmt: skip
    return frame("kernel", *rows).with_columns(launch_start_ns=pl.lit(0, pl.Int64))


def events(*rows: tuple[int, int | None, str, int]) -> pl.DataFrame:
    schema = {
        "event_index": pl.Int64,
        "kernel_id": pl.Int64,
        "category": pl.String,
        "dur_ns": pl.Int64,
    }
    found = pl.DataFrame(rows, schema=schema, orient="row")
    return found.with_columns(linked=pl.col("kernel_id").is_not_null())


def test_overlap_counts_once_as_busy_and_twice_as_kernel_time() -> None:
    both = kernels((0, 10), (5, 20), (6, 8), (30, 40))
    assert (check.busy_ns(both), check.span_ns(both)) == (30, 40)
    assert (check.busy_ns(kernels()), check.span_ns(kernels())) == (0, 0)


@pytest.mark.parametrize(
    ("rounded", "resolution_ns", "end_ns", "edges"),
    [
        (True, 1, 10**6, 2_000),
        (True, 1_000, 10**18, 0),  # whole microseconds: HTA has nothing to round
        (False, 1, 10**6, 2),
        (False, 1, 7_900_000_000_000_000, 2),  # Kineto's largest: a double steps by 0.98 ns
        (False, 1, 1_700_000_000_000_000_000, 500),  # absolute epoch: by 250 ns
    ],
)
def test_the_bound_of_one_interval(
    *, rounded: bool, resolution_ns: int, end_ns: int, edges: int
) -> None:
    assert check.edges_ns(rounded=rounded, resolution_ns=resolution_ns, end_ns=end_ns) == edges


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 6_000)), min_size=1, max_size=12))
def test_htas_rounding_never_counts_as_a_disagreement(given_rows: list[tuple[int, int]]) -> None:
    """HTA's own steps, brute force: ends down, starts up, then merged as it merges."""
    ours = kernels(*((a, a + d) for a, d in given_rows))
    rounded = sorted((math.ceil(a / 1000), (a + d) // 1000) for a, d in given_rows)
    span, busy = merged(rounded)
    theirs = events(*((k, k, "kernel", (b - a) * 1000) for k, (a, b) in enumerate(rounded)))
    temporal = pl.DataFrame({"span_ns": [span * 1000], "idle_ns": [(span - busy) * 1000]})
    found = [*check.time_checks(ours, theirs, 2_000)][:1]
    found += check.idle_checks(ours, temporal, 2_000, theirs.height)
    assert [one for one in found if not one.agrees] == []


def merged(intervals: list[tuple[int, int]]) -> tuple[int, int]:
    """``merge_kernel_intervals``: groups by running end; first start to the last group's end."""
    groups: list[list[int]] = []
    latest = -math.inf
    for start, end in intervals:
        if start > latest:
            groups.append([start, end])
        groups[-1][1] = max(groups[-1][1], end)
        latest = max(latest, end)
    return groups[-1][1] - groups[0][0], sum(b - a for a, b in groups)


def test_one_microsecond_too_many_is_a_disagreement() -> None:
    assert not check.Check("kernel_time", "ns", 10_000, 12_001, 2_000).agrees
    assert check.Check("kernel_time", "ns", 10_000, 8_000, 2_000).agrees


def test_matched_durations_are_compared_one_by_one() -> None:
    ours = kernels((0, 5_000), (9_000, 12_000))
    theirs = events((0, 0, "kernel", 3_000), (1, 1, "kernel", 6_000))
    total, matched = check.time_checks(ours, theirs, 2_000)
    assert total.agrees  # 8 against 9: the sum hides it
    assert (matched.ours, matched.hta, matched.agrees) == (2, 1, False)


def test_why_counts_each_cause() -> None:
    ours = kernels((0, 10), (10, 20), (20, 30), (30, 40)).with_columns(
        launch_id=pl.Series([0, None, 2, 3], dtype=pl.Int64),
        launch_start_ns=pl.Series([5, None, 500, 6], dtype=pl.Int64),
        flaw=pl.Series([None, None, None, "negative duration"], dtype=pl.String),
    )
    theirs = events((1, 0, "kernel", 10), (1, 0, "kernel", 10), (2, None, "cpu_op", 7_000))
    assert check.why(ours, theirs, 100).split("; ") == [
        "HTA counts cpu_op events with a stream that are no sound kernel of ours: 1, 7 µs",
        "HTA counts rows again whose correlation id several host events share: 1",
        "HTA drops kernels without a launch in the file where there are two steps or more: 1",
        "HTA drops kernels launched after the last step: 1",
        "kernels of ours that HTA has no row for: 1",
        "kernels of ours with a flaw in the file (column flaw): 1",
    ]
    assert check.why(kernels((0, 10)), events((0, 0, "kernel", 10)), None) == ""


def test_why_says_when_only_a_part_was_loaded() -> None:
    found = check.why(kernels(), events((0, None, "kernel", 10_000)), None, part_of_trace=True)
    assert found.split("; ", 1)[0] == "only a part of the trace was loaded"
    assert found.endswith("no sound kernel of ours: 1, 10 µs")
