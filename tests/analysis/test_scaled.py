"""What values over several programs come to, and within which bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cb_trace.analysis.scaled import Scaled
from cb_trace.analysis.stats import FloatArray

STEPS, RUNS = Scaled([]), Scaled([], met=True)


def column(*values: float) -> FloatArray:
    return np.array(values, float)[:, None]


def bounds(scaled: Scaled, *sides: FloatArray) -> list[tuple[float, float]]:
    low, high = scaled.span(sides)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def test_the_median_of_steps_and_the_mean_of_the_middle_half_of_runs() -> None:
    values = column(0, 1000, 60, 20, 10)
    assert STEPS.figure(values).tolist() == [20]
    assert RUNS.figure(values).tolist() == [30]  # 10, 20 and 60
    assert RUNS.figure(column(0, 40, 100)).tolist() == pytest.approx([140 / 3])  # too few to drop


def test_figures_are_of_each_value_by_itself() -> None:
    values = np.array([[1, 30], [2, 20], [6, 40.0]])
    assert STEPS.figure(values).tolist() == [2, 30]
    assert RUNS.figure(values).tolist() == [3, 30]
    assert bounds(STEPS, values, values + 5) == [(1, 11), (20, 45)]
    assert RUNS.figure(np.array([5.0, 7.0])) == 6


def test_bounds_of_steps_are_the_least_and_the_most_of_all() -> None:
    assert bounds(STEPS, column(10, 20, 30)) == [(10, 30)]
    assert bounds(STEPS, column(10, 20, 30), column(5, 6, 7), column(90, 20, 20)) == [(5, 90)]


def test_bounds_of_runs_are_those_of_their_mean() -> None:
    assert bounds(RUNS, column(*[7] * 9)) == [(7, 7)]
    # Of two, both drawn are the first in a quarter of cases, and so is the second.
    assert bounds(RUNS, column(0, 100)) == [(0, 100)]
    # One of 40 that is off is never in the middle half, however runs are drawn.
    off = column(*[3] * 39, 4000)
    assert bounds(RUNS, off) == [(3, 3)]
    assert bounds(STEPS, off) == [(3, 4000)]


def test_a_side_counts_with_its_mean() -> None:
    assert bounds(RUNS, column(10, 10), column(0, 40), column(4, 8)) == [(6, 20)]
    assert bounds(RUNS, column(0, 100), column(40, 60)) == [(0, 100)]


FLOATS = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=12), FLOATS, st.booleans())
def test_the_figure_is_within_its_bounds(
    rows: list[tuple[float, float]], apart: float, met: bool
) -> None:
    scaled, values = Scaled([], met=met), np.array(rows)
    figure = scaled.figure(values)
    low, high = scaled.span([values, values + apart])
    assert (low <= figure + 1e-6).all()
    assert (figure <= high + 1e-6).all()
    for bound in (low, high):  # none beyond what was found
        assert (bound >= values.min(axis=0) + min(apart, 0) - 1e-6).all()
        assert (bound <= values.max(axis=0) + max(apart, 0) + 1e-6).all()


@given(st.lists(FLOATS, min_size=1, max_size=12))
def test_bounds_are_the_same_every_time(values: list[float]) -> None:
    assert bounds(RUNS, column(*values)) == bounds(RUNS, column(*values))
