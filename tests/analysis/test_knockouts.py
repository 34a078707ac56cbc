import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis.knockouts import _expanded, at_another_speed, paired_loss
from cb_trace.analysis.stats import Interval

BARE = Interval(1000, 990, 1010, 9)


def test_the_median_of_the_pairs() -> None:
    found = paired_loss([1000, 1010, 990], [900, 900, 900])
    # Percentiles of the bootstrap, 90 and 110, moved out as Student's distribution is for three:
    # 4.30 ÷ 1.96 × √(3 ÷ 2) = 2.69 (2.63 by the expansion).
    assert found == Interval(100, 74, 126, 3)
    assert paired_loss([], []) is None


def test_pairs_at_another_speed_of_the_host_are_left_out() -> None:
    """Of 21 pairs ten ran on a host half as fast, which loses twice as much."""
    base, knocked = [1000] * 11 + [2000] * 10, [900] * 11 + [1800] * 10
    assert paired_loss(base, knocked, BARE) == Interval(100, 100, 100, 10)


def test_a_host_that_stumbles_in_either_step_does_not_choose_the_pairs() -> None:
    """A third of all windows takes 200 longer, of either side, and the module takes nothing.

    Were pairs left out by their base alone, those that lost 200 would go and those that gained as
    much would stay: -100.
    """
    base, knocked = [1000, 1200, 1000] * 20, [1000, 1000, 1200] * 20
    found = paired_loss(base, knocked, Interval(1000, 1000, 1000))
    assert found is not None
    assert (found.median_ns, found.samples) == (0, 59)


def test_all_at_another_speed_are_scaled_and_the_interval_covers_both() -> None:
    assert paired_loss([2000] * 10, [1800] * 10, BARE) == Interval(100, 100, 200, 9)


def test_a_loss_is_one_at_the_speed_of_the_bare_step() -> None:
    """A host a tenth slower, not so far that its pairs are left out, loses a tenth more."""
    assert paired_loss([1100] * 10, [990] * 10, BARE) == Interval(100, 100, 100, 9)
    # Of a graph no host is part.
    graph = paired_loss([1100] * 10, [990] * 10, BARE, [10], [10])
    assert graph == Interval(110, 110, 110, 10)


def test_the_first_pair_of_a_visit_is_cold() -> None:
    base, knocked = [1090, 1000, 1000, 1000] * 3, [900] * 12
    assert paired_loss(base, knocked, None, [4, 4, 4]) == Interval(100, 100, 100, 9)
    # Three pairs are too few to leave one out.
    few = paired_loss(base[:3], knocked[:3], None, [3])
    assert few is not None
    assert few.samples == 3


def test_a_few_pairs_at_the_speed_of_the_bare_step_are_enough_if_they_are_all() -> None:
    assert paired_loss([1000] * 3, [900] * 3, BARE) == Interval(100, 100, 100, 3)


def test_pairs_that_drift_together_make_the_interval_wider() -> None:
    """100 and 140 by turns say more of the median than 30 of one after 30 of the other."""
    turns, drift = [100, 140] * 30, [100] * 30 + [140] * 30

    def width(lost: list[int]) -> int:
        found = paired_loss([1000] * 61, [1000, *(1000 - ns for ns in lost)])
        assert found is not None
        return found.high_ns - found.low_ns

    assert width(turns) < 40 <= width(drift) < 50


def test_the_interval_covers_the_median_of_every_visit() -> None:
    base, knocked = [1000] * 15, [900] * 5 + [893] * 5 + [0] + [880] * 2 + [890] * 2
    assert paired_loss(base, knocked, None, [5, 5, 5]) == Interval(107, 97, 116, 12)
    lone = paired_loss([1000] * 6, [900] * 4 + [500] * 2, BARE, [4, 2])
    assert lone is not None
    assert lone.low_ns < 100
    assert lone.high_ns >= 500  # of the bootstrap; two pairs are no visit that tells


def test_a_step_that_takes_twice_as_long_is_another_one() -> None:
    assert at_another_speed([2000] * 10, BARE) == 2.0
    assert at_another_speed([500] * 10, BARE) == 0.5
    assert at_another_speed([1400] * 10, BARE) is None
    assert at_another_speed([1000] * 8 + [2000] * 20, BARE) is None  # enough are like it
    assert at_another_speed([], BARE) is None
    assert at_another_speed([2000] * 10, None) is None


pairs = st.lists(st.tuples(st.integers(1, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20)


@given(pairs=pairs, bare=st.integers(1, 10**7))
@settings(max_examples=40, deadline=None)
def test_the_figure_lies_in_its_interval(pairs: list[tuple[int, int]], bare: int) -> None:
    base, knocked = zip(*pairs, strict=True)
    for step in (None, Interval(bare, bare, bare)):
        found = paired_loss(base, knocked, step)
        assert found is not None
        assert found.low_ns <= found.median_ns <= found.high_ns


def test_captures_of_their_own_speed_count_one_each() -> None:
    # Couples lose 100, 110, 90, 101 and, far off, 300; the one with most pairs counts no more.
    lost = [100] * 3 + [110] + [90] + [101] * 2 + [300] * 20
    found = paired_loss([1000] * 27, [1000 - ns for ns in lost], None, [27], [3, 1, 1, 2, 20])
    assert found is not None
    assert (found.median_ns, found.samples) == (103, 27)  # (100 + 101 + 110) / 3
    assert found.low_ns < 100
    assert 110 < found.high_ns < 500


def test_three_captures_are_too_few_to_tell_how_they_differ() -> None:
    lost = [100] * 3 + [110] * 3 + [120] * 3
    found = paired_loss([1000] * 9, [1000 - ns for ns in lost], None, [9], [3, 3, 3])
    assert found is not None
    assert found.median_ns == 110


def test_captures_at_another_speed_leave_too_few_to_tell_how_they_differ() -> None:
    # Eight pairs of one capture are at the speed of the bare step, three captures are not.
    base, lost = [1000] * 8 + [2000] * 3, [80, 90, 100, 100, 100, 100, 110, 120, 7, 7, 7]
    knocked = [ns - gone for ns, gone in zip(base, lost, strict=True)]
    bare = Interval(1000, 1000, 1000)
    found = paired_loss(base, knocked, bare, [11], [8, 1, 1, 1])
    assert found == paired_loss(base[:8], knocked[:8], bare, [8], [8])
    assert found is not None
    assert found.low_ns < 100 < found.high_ns


def test_few_samples_are_trusted_less() -> None:
    # Student's 97.5 % quantiles, 2.228 of 11 and 2.042 of 31, over 1.960, and √(n ÷ (n − 1)).
    assert _expanded(11) == pytest.approx(2.228 / 1.960 * (11 / 10) ** 0.5, rel=1e-3)
    assert _expanded(31) == pytest.approx(2.042 / 1.960 * (31 / 30) ** 0.5, rel=1e-3)
    assert _expanded(1) == 1.0


def test_a_few_pairs_have_no_side_without_a_tail() -> None:
    found = paired_loss([1000] * 3, [988, 987, 987])
    assert found is not None
    assert found.median_ns == 13
    assert found.high_ns - 13 == 13 - found.low_ns > 1


def test_captures_of_another_speed_never_leave_nothing() -> None:
    """Eight pairs are at the speed of the step by both their steps, and no four captures are."""
    base, knocked = [1100] * 8 + [1000] * 4, [800] * 8 + [300] * 4
    for captures in ([4, 4, 1, 1, 1, 1], [2, 2, 2, 2, 1, 1, 1, 1]):
        found = paired_loss(base, knocked, BARE, captures=captures)
        assert found is not None
        assert (found.median_ns, found.samples) == (300, 8)
