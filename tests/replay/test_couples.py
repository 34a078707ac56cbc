"""Couples of captures, with what would capture them written down: no graph is made here."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.replay import couples as couples_module
from cb_trace.replay.couples import Couples, calls_per_window, young_garbage
from cb_trace.replay.graph import GraphCapture
from cb_trace.replay.knockout import Knockout, KnockoutOptions
from cb_trace.replay.pairs import Side

CPU, GB = torch.device("cpu"), 1 << 30


@dataclass
class Captures:
    """What was captured, in which pool, and whether it was warm; the ``broken`` cannot be."""

    pool_bytes: int = 3 * GB
    broken: tuple[tuple[str, int], ...] = ()
    seen: list[tuple[Any, int, bool]] = field(default_factory=list)

    def __call__(self, step: Any, *_: Any, pool: int, again: bool, **__: Any) -> GraphCapture:
        self.seen.append((step, pool, again))
        if (step, pool) in self.broken:
            return GraphCapture(reason="broken")
        return GraphCapture(step, pool_bytes=self.pool_bytes)


def prepared(monkeypatch: pytest.MonkeyPatch, captures: Captures, pairs: int = 100) -> None:
    """Let 100 GB be free, and time for so many pairs."""
    pools = iter(range(100))
    monkeypatch.setattr(couples_module, "capture_step", captures)
    monkeypatch.setattr(couples_module, "_pairs_in", lambda *_: pairs)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: "stream")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100 * GB, 140 * GB))


def side(name: Any) -> Side:
    return Side(name)


@pytest.mark.parametrize(
    ("size", "pairs", "count", "small"),
    [(GB, 100, 10, True), (GB, 5, 5, True), (GB, 1, 4, True), (3 * GB, 100, 3, True),
     (20 * GB, 100, 1, False), (0, 100, 12, True)],
)  # fmt: skip
def test_captures_are_as_many_as_time_and_memory_have_room_for(
    monkeypatch: pytest.MonkeyPatch, size: int, pairs: int, count: int, small: bool
) -> None:
    captures = Captures(size)
    prepared(monkeypatch, captures, pairs)
    found = Couples(side("whole"), CPU, 4, 1.0)
    assert captures.seen == [("whole", pool, pool > 0) for pool in range(count)]
    assert (found.reason, found.small) == (None, small)


def test_a_couple_shares_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Captures()
    prepared(monkeypatch, captures, 2)
    found = Couples(side("whole"), CPU, 2, 1.0)
    captures.seen.clear()
    assert isinstance(couples := found.changed(side("changed"), None), list)
    assert captures.seen == [("changed", 0, False), ("changed", 1, True)]
    assert len(couples) == 2
    captures.seen.clear()
    found.changed(side("changed"), side("beside"))
    assert captures.seen == [
        ("beside", 0, False), ("changed", 0, False), ("beside", 1, True), ("changed", 1, True),
    ]  # fmt: skip


def test_one_that_cannot_be_captured_is_left_out_unless_it_is_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared(monkeypatch, Captures(broken=(("whole", 2), ("changed", 1), ("other", 0))))
    found = Couples(side("whole"), CPU, 3, 1.0)
    assert isinstance(couples := found.changed(side("changed"), None), list)
    assert len(couples) == 1  # of pools 0 and 1
    assert found.changed(side("other"), None) == "broken"


def test_a_step_that_cannot_be_captured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Captures(broken=(("whole", 0),))
    prepared(monkeypatch, captures)
    found = Couples(side("whole"), CPU, 4, 1.0)
    assert (found.reason, found.small, len(captures.seen)) == ("broken", False, 1)


@pytest.mark.parametrize(("size", "held"), [(GB, 1), (20 * GB, 0)])
def test_large_captures_are_not_held_from_visit_to_visit(
    monkeypatch: pytest.MonkeyPatch, size: int, held: int
) -> None:
    prepared(monkeypatch, Captures(size))
    kept: list[Couples] = []
    net = nn.Linear(2, 2)
    step = nn.Sequential(net)
    knockout = Knockout(
        {"": step}, lambda: step(torch.ones(1, 2)), CPU, KnockoutOptions(), lambda _: None,
        held=kept,
    )  # fmt: skip
    knockout.run([], graph=True, known={})
    assert len(kept) == held


@young_garbage()
def stopped() -> None:
    assert gc.get_freeze_count() > 0
    raise KeyboardInterrupt


def test_collections_are_of_all_objects_again_after_an_error() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert gc.get_freeze_count() <= before


@pytest.mark.parametrize(
    ("seconds", "couples", "calls"),
    [
        # A sample has 10 calls, so the shortest window has 4; a pair is 2 windows of 4 calls and 2
        # before them, of 1 ms each: 12 ms. Every couple has two pairs.
        (0.0, 1, 4),
        (0.023, 1, 4),  # one pair
        (0.047, 1, 4),  # three: none of the two can be twice as long
        (0.048, 1, 8),
        (0.048, 2, 4),  # of two couples four pairs
        (0.096, 2, 8),
        (0.119, 1, 16),
        (0.144, 1, 24),
        (9.0, 1, 24),  # six times, at the most
        (9.0, 400, 4),
    ],
)
def test_windows_of_a_pair_are_longer_where_there_is_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, couples: int, calls: int
) -> None:
    windows: list[int] = []

    def window_ns(_run: Any, _device: torch.device, calls: int) -> int:
        windows.append(calls)
        return 1_000_000

    monkeypatch.setattr(couples_module, "calls_per_sample", lambda *_: 10)
    monkeypatch.setattr(couples_module, "window_ns", window_ns)
    assert calls_per_window(lambda: None, CPU, couples, seconds) == calls
    assert windows == [4]


def test_a_run_that_takes_no_time_has_windows_of_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couples_module, "calls_per_sample", lambda *_: 10_000)
    monkeypatch.setattr(couples_module, "window_ns", lambda *_: 0)
    assert calls_per_window(lambda: None, CPU, 1, 1.0) == 6 * 3_334
