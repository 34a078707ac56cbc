"""Whether the host runs at full speed, told by spins of given lengths."""

from __future__ import annotations

import os

import pytest

from cb_trace.replay import host as module
from cb_trace.replay.host import Host


def spins(monkeypatch: pytest.MonkeyPatch, lengths: dict[int, int], here: list[int]) -> None:
    """Spins take so long on each processor; ``here`` is where the thread is, once it chose."""

    def choose(_: int, processors: set[int]) -> None:
        if len(processors) == 1:
            here[0] = next(iter(processors))

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(lengths), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", choose, raising=False)
    monkeypatch.setattr(module, "_spin_ns", lambda: lengths[here[0]])


def test_full_speed_is_what_the_shortest_spin_took(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([100, 101, 149, 160, 151, 151, 60, 70, 100, 100])
    monkeypatch.setattr(module, "_spin_ns", lambda: next(lengths))
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    host = Host()
    assert [host.full() for _ in range(5)] == [True, True, False, True, False]


def test_it_moves_to_a_processor_at_full_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, here = {0: 100, 1: 100, 2: 100}, [0]
    spins(monkeypatch, lengths, here)
    host = Host()
    here[0] = 0
    assert host.seek()
    assert here == [0]
    lengths |= {0: 180, 1: 190}
    assert host.seek()
    assert here == [2]


def test_it_begins_with_a_look_at_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, here = {0: 200, 1: 210, 2: 100}, [0]
    spins(monkeypatch, lengths, here)
    host = Host()
    here[0] = 0
    assert not host.full()
    assert host.seek()
    assert here == [2]


def test_where_all_are_slow_it_says_so_and_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, here = {0: 100, 1: 100}, [0]
    spins(monkeypatch, lengths, here)
    host = Host()
    here[0] = 0
    assert host.seek()
    lengths |= {0: 200, 1: 200}
    assert not host.seek()
    assert here == [1]
    here[0] = 0
    assert not host.seek()
    assert here == [0]  # it did not look again so soon


def test_without_the_right_to_choose_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, here = {0: 100, 1: 100}, [0]
    spins(monkeypatch, lengths, here)
    host = Host()
    here[0] = 0
    assert host.seek()

    def refuse(_: int, processors: set[int]) -> None:
        if len(processors) == 1:
            raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    lengths[0] = 200
    assert not host.seek()


def test_a_spin_takes_time() -> None:
    assert module._spin_ns() > 0
