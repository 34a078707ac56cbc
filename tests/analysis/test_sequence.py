"""Which runs of the sequence count."""

from __future__ import annotations

import polars as pl
import pytest

from cb_trace.analysis.sequence import settled, times_alone


def runs_of(times: dict[int, list[int | None]]) -> pl.DataFrame:
    """Two or more kernels in each run; None: the run lacks the kernel."""
    rows = [
        (kernel, run, ns)
        for kernel, runs in times.items()
        for run, ns in enumerate(runs)
        if ns is not None
    ]
    schema = {"kernel_id": pl.Int64, "run": pl.Int32, "ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


@pytest.mark.parametrize(
    ("totals", "first"),
    [
        ([2158, 2160, 2156, 2152, 2145, 2000, 1992, 1997], 5),  # a copy on an H200, µs
        ([622, 625, 626, 627, 625, 583, 575, 574], 5),  # a GEMM on it
        ([959, 990, 967, 960, 994, 990, 965, 965], 0),  # noise
        ([623, 625, 626, 621, 627, 622, 621, 624], 0),  # slow to the end
        ([100, 100, 100, 130, 100, 100, 100, 100], 0),  # one slow run, not at the start
        ([130, 130, 100], 0),  # too few to tell
        ([130, 130, 130, 100], 3),
    ],
)
def test_slow_runs_at_the_start_are_left_out(totals: list[int], first: int) -> None:
    found = settled(runs_of({1: [*totals], 2: [1 for _ in totals]}))
    assert found["run"].unique().sort().to_list() == list(range(first, len(totals)))
    assert found.height == 2 * (len(totals) - first)


def test_a_kernel_that_the_last_run_lacks_does_not_make_the_others_slow() -> None:
    sequence = runs_of({1: [100, 100, 100, 100], 2: [50, 50, 50, None]})
    assert settled(sequence).equals(sequence)


def test_runs_without_a_kernel_in_common_all_count() -> None:
    sequence = runs_of({run: [9 if run == at else None for at in range(4)] for run in range(4)})
    assert settled(sequence).equals(sequence)


def test_a_kernel_alone_takes_what_it_takes_in_the_settled_runs() -> None:
    assert times_alone(None) == {}
    # Five slow runs of eight: over all the median is 645.
    slow_first = [647, 648, 646, 645, 645, 600, 598, 597]
    assert times_alone(runs_of({7: [*slow_first], 8: [10] * 8})) == {7: 598.0, 8: 10.0}
