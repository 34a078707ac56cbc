import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis import Interval, interval_stats
from cb_trace.analysis.stats import halves_up, resampled_sums, round_running, tails


def test_one_sample_is_its_own_interval() -> None:
    assert interval_stats([750]) == Interval(750, 750, 750, 1)


def test_the_median_of_an_even_number_rounds_down() -> None:
    assert interval_stats([5, 1, 2, 10]).median_ns == 3


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        interval_stats([])


def test_an_outlier_moves_neither_the_median_nor_its_bounds() -> None:
    samples = [1000 + k % 5 for k in range(50)] + [10**9]
    found = interval_stats(samples)
    assert (found.median_ns, found.samples) == (1002, 51)
    assert 1001 <= found.low_ns <= 1002 <= found.high_ns <= 1003


def test_times_beyond_float_precision_stay_exact() -> None:
    large = 2**60 + 1
    assert interval_stats([large] * 3) == Interval(large, large, large, 3)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**61), min_size=1, max_size=40))
def test_bounds_enclose_the_median_and_repeat(samples: list[int]) -> None:
    found = interval_stats(samples)
    assert min(samples) <= found.low_ns <= found.median_ns <= found.high_ns <= max(samples)
    assert interval_stats(sorted(samples)) == found


def test_arithmetic_widens() -> None:
    one, two = Interval(10, 8, 13, 5), Interval(4, 3, 6, 9)
    assert one + two == Interval(14, 11, 19, 5)
    assert one - two == Interval(6, 2, 10, 5)
    assert one * 3 == Interval(30, 24, 39, 5)
    assert one.proportion(100) == Interval(100, 80, 130, 5)
    assert one.proportion(-100) == Interval(-100, -130, -80, 5)
    assert Interval(0, 0, 0).proportion(7) == Interval(7, 7, 7)


def test_halves_round_up() -> None:
    assert [halves_up(n, 4) for n in (1, 2, 3, 6)] == [0, 1, 1, 2]


@given(
    st.lists(st.integers(0, 10**12), max_size=20), st.integers(0, 10**13), st.integers(1, 10**13)
)
def test_rounding_running_sums_keeps_the_total(parts: list[int], up: int, down: int) -> None:
    rounded = round_running(parts, up, down)
    assert sum(rounded) == halves_up(sum(parts) * up, down)
    assert all(
        abs(r - part * up / down) <= 1 + 1e-9 * r for r, part in zip(rounded, parts, strict=True)
    )


def test_one_column_resamples_to_itself() -> None:
    rows = np.array([[3], [5]])
    low, high = tails(resampled_sums(rows))
    assert low.tolist() == high.tolist() == [3, 5]
