"""How samples are taken and when sampling ends; no test here depends on how long things take."""

from __future__ import annotations

import math

import pytest
import torch

from cb_trace.replay import timing
from cb_trace.replay.graph import capture_graph
from cb_trace.replay.timing import (
    Timed,
    Window,
    calls_per_sample,
    empty_window_ns,
    noise,
    open_window,
    settle,
    time_block,
)

CPU = torch.device("cpu")


class Counted:
    """Counts its calls, and writes each to a log."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def __call__(self) -> None:
        self.log.append(self.name)


def test_what_is_timed_has_run_before(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    settle(Counted("once", log), CPU, 0.0)
    assert log == ["once"]
    ticks = iter([0.0, 0.008, 0.016, 0.024])
    monkeypatch.setattr("cb_trace.replay.timing.time.perf_counter", lambda: next(ticks))
    settle(Counted("more", log), CPU)
    assert log == ["once", "more", "more", "more"]


def test_noise_is_the_relative_standard_error_of_the_median() -> None:
    # quartiles of 96 … 104 are 98 and 102: 1.253 × 4 / 1.349 / √9 / 100
    samples = list(range(96, 105))
    assert math.isclose(noise(samples), 1.253 * 4 / 1.349 / 3 / 100)
    assert noise([100] * 5) == 0.0
    assert noise([7]) == math.inf
    assert noise([0, 0, 0]) == math.inf


def test_one_entry_a_sample_and_calls_back_to_back() -> None:
    log: list[str] = []
    samples = time_block(
        Counted("run", log), CPU, min_samples=4, min_seconds=0, calls=3, before=Counted("-", log)
    ).ns
    assert len(samples) == 4
    assert log == ["-", "run", "run", "run"] * 4
    assert all(sample >= 0 for sample in samples)


def test_sampling_goes_on_for_min_seconds() -> None:
    log: list[str] = []
    assert len(time_block(Counted("run", log), CPU, min_samples=1, min_seconds=0.02).ns) > 1


def test_max_seconds_ends_it_with_three_samples_at_the_least() -> None:
    log: list[str] = []
    assert len(time_block(Counted("run", log), CPU, min_samples=50, max_seconds=0).ns) == 3


def test_low_noise_ends_it_at_min_samples() -> None:
    log: list[str] = []
    samples = time_block(
        Counted("run", log), CPU, min_samples=5, min_seconds=0, noise_ratio=math.inf
    ).ns
    assert len(samples) == 5


def test_high_noise_goes_on_to_max_seconds() -> None:
    log: list[str] = []
    samples = time_block(
        Counted("run", log), CPU, min_samples=3, min_seconds=0, noise_ratio=-1.0, max_seconds=0.02
    ).ns
    assert len(samples) > 3


class ScriptedHost:
    """Tells ahead of every window and after it whether the host runs at full speed."""

    def __init__(self, ahead: str, after: str) -> None:
        self._ahead, self._after = iter(ahead), iter(after)

    def seek(self) -> bool:
        return next(self._ahead) == "."

    def full(self) -> bool:
        return next(self._after) == "."


@pytest.mark.parametrize(
    ("ahead", "after", "kept", "dropped", "slowed"),
    [
        ("....", "....", [1, 2, 3, 4], 0, False),
        ("#....#.", "...#.", [2, 3, 4, 7], 3, False),  # asked after only where it was clear ahead
        ("#" * 16, "", list(range(1, 17)), 0, True),  # four stand for one
        ("#.######" + "#" * 5, ".", list(range(1, 14)), 0, True),
    ],
)
def test_samples_of_a_slowed_host_do_not_count(  # noqa: PLR0917 - a table of cases
    monkeypatch: pytest.MonkeyPatch,
    ahead: str,
    after: str,
    kept: list[int],
    dropped: int,
    slowed: bool,
) -> None:
    host, lengths = ScriptedHost(ahead, after), iter(range(1, 100))
    monkeypatch.setattr(timing, "host_of", lambda _: host)
    monkeypatch.setattr(timing, "_window", lambda *_, **__: Window(next(lengths), 0))
    monkeypatch.setattr(timing, "empty_window_ns", lambda _: 0)
    timed = time_block(lambda: None, CPU, min_samples=4, min_seconds=0)
    assert timed == Timed(kept, dropped, slowed)


def test_the_device_rests_as_long_as_the_host_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, rests = iter([7_000_000, 0, 90_000_000]), list[float]()
    monkeypatch.setattr(timing, "_window", lambda *_, **__: Window(5, 0, next(waits)))
    monkeypatch.setattr("time.sleep", rests.append)
    time_block(lambda: None, CPU, min_samples=3, min_seconds=0, rest=True)
    assert rests == [0.007, 0.0, 0.02]


def test_on_a_cpu_nobody_is_waited_for() -> None:
    window = open_window(lambda: None, CPU)
    assert window.ns > 0
    assert window.waited_ns == 0


def test_short_runs_are_batched_and_long_ones_are_not() -> None:
    assert calls_per_sample(lambda: None, CPU) > 50
    x = torch.randn(512, 512)
    assert calls_per_sample(lambda: x @ x @ x, CPU) == 1


def test_an_empty_window_costs_something_and_is_measured_once() -> None:
    assert empty_window_ns(CPU) > 0
    assert empty_window_ns(CPU) == empty_window_ns(torch.device("cpu"))


def test_a_stumbling_host_makes_the_empty_window_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([900, 15, 870, *[880] * 48])
    monkeypatch.setattr(timing, "_window_ns", lambda *_, **__: next(lengths))
    assert timing._shortest_empty(CPU, None, queued=False) == 15


def test_no_graph_without_cuda() -> None:
    captured = capture_graph(lambda: None, CPU)
    assert captured.reason == "no CUDA device"
    with pytest.raises(RuntimeError, match="no CUDA device"):
        captured.replay()
