"""Runs timed in turn: in which order, and what is done outside the windows."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cb_trace.replay import pairs
from cb_trace.replay.pairs import Pairs, Side, time_pairs
from tests.replay.test_timing import ScriptedHost

CPU = torch.device("cpu")


def test_pairs_turn_round_and_each_side_is_made_ready_first() -> None:
    seen: list[str] = []

    def slow(name: str) -> None:
        seen.append(name)
        sum(range(20_000))  # longer than a window has to be

    first = Side(lambda: slow("a"), lambda: seen.append("ready a"))
    second = Side(lambda: slow("b"), lambda: seen.append("ready b"))
    found = time_pairs([(first, second)], CPU, min_pairs=3, max_seconds=0.0)
    one, other = found.first_ns, found.second_ns
    assert (len(one), len(other)) == (3, 3)
    assert all(ns > 0 for ns in [*one, *other])
    windows = [name for name, before in zip(seen[1:], seen, strict=False) if name != before]
    a, b = ["ready a", "a"], ["ready b", "b"]
    assert windows[-12:] == [*a, *b, *b, *a, *a, *b]
    assert seen[0] == "ready a"


def test_nothing_has_to_be_made_ready() -> None:
    run = Side(lambda: sum(range(20_000)))
    found = time_pairs([(run, run)], CPU, min_pairs=2, max_seconds=0.0)
    assert len(found.first_ns) == len(found.second_ns) == 2


@pytest.mark.parametrize("calls", [1, 4])
def test_a_window_holds_as_many_calls_as_asked_for(calls: int) -> None:
    ran = {"first": 0, "second": 0}

    def count(name: str) -> None:
        ran[name] += 1

    sides = [Side(partial(count, name)) for name in ran]
    found = time_pairs([(sides[0], sides[1])], CPU, min_pairs=3, max_seconds=0.0, calls=calls)
    assert (len(found.first_ns), len(found.second_ns)) == (3, 3)
    assert ran == {"first": 3 * calls, "second": 3 * calls}


def test_pairs_of_a_slowed_host_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    host, lengths = ScriptedHost("..#..", "..#."), iter(range(100, 200))
    monkeypatch.setattr(pairs, "host_of", lambda _: host)
    monkeypatch.setattr(pairs, "window_ns", lambda *_: next(lengths))
    run = Side(lambda: None)
    found = time_pairs([(run, run)], CPU, min_pairs=3, max_seconds=0.0, calls=1)
    # Every other pair is the other way round; the third is slowed ahead of it, the fourth after.
    assert found == Pairs([100, 103, 108], [101, 102, 109], 2, [3])


def test_couples_take_turns_and_their_pairs_lie_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    lengths = iter(range(100, 200))

    def window(run: object, *_: object) -> int:
        seen.append(str(run))
        return next(lengths)

    monkeypatch.setattr(pairs, "window_ns", window)
    couples = [(Side(f"a{n}"), Side(f"b{n}")) for n in range(2)]  # type: ignore[arg-type]
    found = time_pairs(couples, CPU, min_pairs=4, max_seconds=0.0, calls=1)
    # Each couple once in both orders.
    assert seen == ["a0", "b0", "b1", "a1", "b0", "a0", "a1", "b1"]
    assert found == Pairs([100, 105, 103, 106], [101, 104, 102, 107], 0, [2, 2])


def test_every_couple_has_a_pair_whatever_the_time() -> None:
    run = Side(lambda: sum(range(20_000)))
    found = time_pairs([(run, run)] * 5, CPU, min_pairs=2, max_seconds=0.0)
    assert found.couples == [1] * 5


def test_queued_windows_open_when_the_device_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []

    def window(_: object, *more: object) -> int:
        seen.append(more)
        return 1_000 + len(seen)

    monkeypatch.setattr(pairs, "window_ns", window)
    monkeypatch.setattr(pairs, "queued_empty_window_ns", lambda before, _: before and 7)
    run = Side(lambda: None, seen.clear)
    time_pairs([(run, run)], CPU, min_pairs=1, max_seconds=0.0, calls=2, queued=True)
    assert [more[-1] for more in seen] == [7, 7]
    time_pairs([(run, run)], CPU, min_pairs=1, max_seconds=0.0, calls=2)
    assert [more[-1] for more in seen] == [None, None]
