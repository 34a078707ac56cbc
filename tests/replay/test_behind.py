"""Cold samples behind the step: when, and what becomes of those that were taken before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.bundle import Note
from cb_trace.replay import behind
from cb_trace.replay.behind import (
    BehindStep,
    calls_of,
    changes,
    clock_under,
    repeated,
    slower,
    too_long,
)
from cb_trace.replay.clock import Reading
from cb_trace.replay.kernels import without_steps
from cb_trace.replay.series import Block, Series
from cb_trace.replay.walk import Replayer
from tests.replay.support import CPU, replayer

CONDITIONS = ("hot", "cold")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here is about what the load does to a device."""
    monkeypatch.setattr(behind, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(behind, "calls_of", lambda *_: 2)


class Scripted:
    """A clock that always reads the same."""

    driver_version: str | None = None

    def __init__(self, mhz: int | None) -> None:
        self.mhz = mhz

    def read(self) -> Reading:
        return Reading(self.mhz)


def _work(step_mhz: int | None, alone_mhz: int | None, budget: float = 60.0) -> Replayer:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).requires_grad_(False)
    x = torch.ones(2, 8)
    work = replayer(model, lambda: model(x), conditions=CONDITIONS, budget_seconds=budget)
    work._clock = Scripted(alone_mhz)
    work.behind = BehindStep(model, CPU, Scripted(step_mhz))
    work.behind.replay = lambda: model(x)
    return work


def _timed(work: Replayer) -> Replayer:
    work.capture()
    work.time()
    return work


def _said(notes: Sequence[Note]) -> list[tuple[str, str | None, int]]:
    reasons = {behind.REASON, behind.APART}
    return [(n.reason, n.detail, n.count) for n in notes if n.reason in reasons]


@pytest.mark.parametrize(
    ("step", "alone", "found"),
    [
        (1755, [1965, 1980, 1965], (1755, 1965)),
        (1905, [1965], (1905, 1965)),
        (1920, [1965], None),
        (1980, [1965, 1980], None),
        (1755, [1755, 1770, 1980], None),
        (None, [1965], None),
        (1755, [None, None], None),
        (1755, [None, 1980], (1755, 1980)),
        (1755, [], None),
    ],
)
def test_a_step_is_slower_by_more_than_three_per_cent(
    step: int | None, alone: list[int | None], found: tuple[int, int] | None
) -> None:
    assert slower(step, alone) == found


def test_twenty_modules_fit_the_budget_and_fifty_do_not() -> None:
    assert too_long(20, 20.0) is None  # 20 × 2 turns × 14 × 20 ms = 11.2 s, of 13.3
    assert too_long(50, 20.0) == "50 modules would take 28.0 of 20.0 s left"


def test_a_load_is_as_many_steps_as_last_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([6_000_000, 25_000_000, 1, 0])
    monkeypatch.setattr(behind, "window_ns", lambda *_: next(lengths))
    assert [calls_of(lambda: None, CPU) for _ in range(4)] == [4, 1, 10_000, 10_000]
    seen: list[int] = []
    repeated(lambda: seen.append(1), 4)()
    assert len(seen) == 4


def test_the_clock_of_the_step_is_read_behind_every_load() -> None:
    class Falling:
        driver_version: str | None = None

        def __init__(self) -> None:
            self.clocks = [1980, 1905, 1755, 1740, 1770]

        def read(self) -> Reading:
            return Reading(self.clocks.pop(0))

    log: list[str] = []
    assert clock_under(lambda: log.append("load"), Falling(), CPU) == 1770
    assert len(log) == behind.LATE_READINGS
    assert clock_under(lambda: None, Scripted(None), CPU) is None


def test_cold_samples_run_behind_a_step_of_a_lower_clock() -> None:
    work = _timed(_work(1755, 1965))
    detail = "the step runs at 1755 MHz, modules alone at 1965"
    assert _said(work.notes) == [("cold behind the step", detail, 3)]
    for record in work.records:
        first, *rest = record.blocks
        assert (first.turn, {block.turn for block in rest}) == (0, {1, 2})
        assert len(record.samples_ns) == sum(block.samples for block in record.blocks)
        if record.condition == "cold":
            assert (first.samples, first.dropped > 0) == (0, True)
            assert first.limits == ["not behind the step"]
            assert not any(block.limits for block in rest)
        else:
            assert first.samples > 0
            assert not first.limits


def test_every_cold_run_is_behind_a_load_and_no_other_is() -> None:
    work = _timed(_work(1755, 1965))
    calls: list[str] = []
    work.behind.load = lambda: calls.append("load")
    work.model.get_submodule("1").register_forward_hook(lambda *_: calls.append("module"))
    call = next(call for call in work._captures.calls if call.path == "1")
    with work._isolated(call) as ready:
        calls.clear()
        ready.flush()
        ready.run()
        ready.prepare()
        ready.run()
        ready.sweep()
        assert calls == ["load", "module", "module", "load"]
        assert ready.warm_ups == 4


class Filling(nn.Module):
    """Fills its cache in two calls of a part, and begins anew with every step."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 4))
            self.register_buffer("position", torch.tensor(0))

        cache: torch.Tensor
        position: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache[int(self.position)] = x  # out of range in the third call
            self.position += 1
            return self.cache.sum(0)

    def __init__(self) -> None:
        super().__init__()
        self.part = self.Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.part.position.zero_()
        made: torch.Tensor = self.part(x) + self.part(x)
        return made


def test_a_cache_is_put_back_behind_a_step_that_fills_it() -> None:
    model, x = Filling(), torch.ones(4)
    model(x)
    work = replayer(model, lambda: model(x), conditions=CONDITIONS, budget_seconds=60.0)
    work._clock = Scripted(1965)
    work.behind = BehindStep(model, CPU, Scripted(1755))
    work.behind.replay = lambda: model(x)
    _timed(work)
    assert len(_said(work.notes)) == 1
    assert [r.skipped for r in work.records] == [None] * len(work.records)
    assert {block.turn for r in work.records for block in r.blocks if block.samples} == {0, 1, 2}
    assert (int(model.part.position), model.part.cache.tolist()) == (2, [[1.0] * 4] * 2)


@pytest.mark.parametrize(("step", "alone"), [(1950, 1965), (None, 1965), (1755, None)])
def test_where_clocks_are_alike_or_unknown_all_stays(step: int | None, alone: int | None) -> None:
    work = _timed(_work(step, alone))
    assert (work.behind.load, _said(work.notes)) == (None, [])
    assert all(not block.dropped for record in work.records for block in record.blocks)


def test_without_a_graph_nothing_is_asked() -> None:
    work = _work(1755, 1965)
    work.behind.replay = None
    assert (_timed(work).behind.load, _said(work.notes)) == (None, [])


def test_where_it_would_take_too_long_the_samples_stay_and_it_is_said() -> None:
    series = [Series([Block(0, (10,), Reading(1980))]) for _ in range(3)]
    decides = BehindStep(nn.Identity(), CPU, Scripted(1755))
    decides.replay = lambda: None
    detail = (
        "the step runs at 1755 MHz, modules alone at 1980, so their samples are of that clock: "
        "3 modules would take 1.7 of 2.0 s left"
    )
    assert _said(decides.decide(series, 2.0)) == [("not behind the step", detail, 3)]
    assert decides.load is None
    assert [one.samples() for one in series] == [[10]] * 3
    assert decides.decide(series, 60.0) == []  # once


def test_a_step_that_changes_the_model_is_no_load() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("seen", torch.zeros(()))

    def writes(tensor: torch.Tensor) -> Callable[[], object]:
        return lambda: tensor.data.add_(1)  # as a graph does: no version is counted

    assert changes(model, lambda: model(torch.ones(2)), CPU) is None
    assert changes(model, writes(model.weight), CPU) == "a step changes the model"
    assert changes(model, writes(model.get_buffer("seen")), CPU) == "a step changes the model"
    assert model.get_buffer("seen") == 0  # put back


def test_a_model_whose_bytes_cannot_be_told_is_no_load() -> None:
    model = nn.Module()
    model.register_buffer("odd", torch.eye(3).to_sparse())
    assert changes(model, lambda: None, CPU) == (
        "TypeError: a Tensor cannot be compared by its bytes"
    )


def test_what_was_set_aside_counts_where_there_is_nothing_else() -> None:
    series = Series([Block(0, (10, 12), Reading(1980), dropped=1)])
    series.set_aside("not behind the step")
    assert (series.samples(), series.dropped(), series.measured) == ([10, 12], 1, True)
    assert [block.limits for block in series.records()] == [[]]
    series.blocks.append(Block(1, (20,), Reading(1755)))
    assert (series.samples(), series.dropped()) == ([20], 3)
    assert [(b.samples, b.dropped, b.limits) for b in series.records()] == [
        (0, 3, ["not behind the step"]),
        (1, 0, []),
    ]
    assert not series.settled(0.0)
    series.blocks.append(Block(2, (29,), Reading(1755)))
    assert series.settled(0.0)
    assert not Series().measured


EVENTS = """{"traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "cb_replay:3:0", "pid": 1, "tid": 1,
    "ts": 50.000, "dur": 10.000,
    "args": {
      "External id": 7
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1,
    "ts": 10.000, "dur": 2.000,
    "args": {
      "cbid": 311, "correlation": 7
    }
  },
  {
    "ph": "s", "id": 7, "pid": 1, "tid": 1, "ts": 10.000,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "step", "pid": 0, "tid": 7,
    "ts": 12.000, "dur": 1.000,
    "args": {
      "External id": 9, "correlation": 7, "device": 0
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1,
    "ts": 52.000, "dur": 2.000,
    "args": {
      "cbid": 311, "correlation": 8
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "module", "pid": 0, "tid": 7,
    "ts": 54.000, "dur": 1.000,
    "args": {
      "correlation": 8, "device": 0
    }
  },
  {
    "name": "Record Window End", "ph": "i", "ts": 70.000
  }
]}
"""


def test_steps_ahead_of_cold_calls_leave_the_trace_and_graphs_of_a_module_stay() -> None:
    kept = without_steps(EVENTS.encode()).decode()
    gone = EVENTS.index('  {\n    "ph": "X", "cat": "cuda_runtime"')
    back = EVENTS.index('  {\n    "ph": "X", "cat": "cuda_runtime"', gone + 1)
    assert kept == EVENTS[:gone] + EVENTS[back:]
    assert without_steps(kept.encode()).decode() == kept


def test_the_profile_runs_behind_the_step_too(tmp_path: Path) -> None:
    work = _timed(_work(1755, 1965))
    loads: list[int] = []
    work.behind.load = lambda: loads.append(1)
    work.profile(tmp_path)
    assert len(loads) == 3 * (4 + 2)  # cold calls: four to warm up, two that count
    assert {record.profiled_calls for record in work.records} == {2}
