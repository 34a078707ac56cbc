"""How a budget of time is spread; the clock is the test's own."""

from __future__ import annotations

import pytest

from cb_trace.replay.schedule import TURNS, Schedule


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def test_the_first_turn_gives_all_the_same_of_a_fifth() -> None:
    hand = Hand()
    schedule = Schedule(10.0, "ab", hand)
    with schedule.turn(0, "ab"):
        assert schedule.share("a") == 1.0
        hand.at += 1.5  # half a second too long
        assert schedule.share("b") == 0.5
        hand.at += 0.5
    assert schedule.used == 2.0


def test_later_turns_go_by_share_of_the_step_with_a_part_for_the_small() -> None:
    hand = Hand()
    schedule = Schedule(10.0, "abcd", hand)
    for key, ns in zip("abcd", (900, 100, 0, 0), strict=True):
        schedule.learn(key, ns)
    with schedule.turn(TURNS - 2, "abcd"):  # half of what is left, with the last turn to come
        parts = 0.9 + 0.25 + 0.25 + 0.25
        assert schedule.share("a") == pytest.approx(5.0 * 0.9 / parts)
        assert schedule.share("b") == pytest.approx(5.0 * 0.25 / (parts - 0.9))


def test_who_is_skipped_leaves_its_time_to_the_others() -> None:
    schedule = Schedule(10.0, "abc", Hand())
    with schedule.turn(0, "abc"):
        schedule.skip("a")
        assert schedule.share("b") == 1.0
        assert schedule.share("c") == 2.0


def test_only_time_inside_turns_is_taken_off() -> None:
    hand = Hand()
    schedule = Schedule(1.0, "a", hand)
    with schedule.turn(0, "a"):
        hand.at += 0.5
    hand.at += 100.0
    assert schedule.left()
    assert not schedule.spent()
    with schedule.turn(1, "a"):
        hand.at += 0.6
        assert not schedule.spent()
        hand.at += 0.9
        assert schedule.spent()
    assert not schedule.left()
