"""Bare timing: wall time of a callable with no profiler attached.

On CUDA a window is a pair of events on the current stream, on the CPU ``perf_counter_ns``. An
empty window costs something itself (15 µs on an H200, shared facts h200.md), so it is
measured once a device and subtracted. Nothing but the callable runs inside a window.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from cb_trace.replay.host import Host

WINDOW_FACTOR = 200  # a window this many empty windows long loses 0.5 % to the correction at most
MIN_WINDOW_NS = 100_000
MAX_CALLS = 10_000
# After one window. Heavy kernels back to back reach a device's power cap, as a step with others
# between does not: on an H200 a matrix product of 930 µs in the step took 945 alone, and 1,045
# after some 50 ms.
MOST_REST_SECONDS = 0.02
JUDGE_FACTOR = 1.1  # judging sorts all samples, so it waits until there are a tenth more

SETTLED_SECONDS = 0.02
PATIENCE = 4  # so many samples of a slowed host stand for one, so that sampling comes to an end

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples in the order taken. Where the host was ``slowed`` in nearly all, these are all."""

    ns: list[int]
    dropped: int = 0  # left out, since the host was slowed meanwhile
    slowed: bool = False


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it; nothing to do on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def settle(run: Run, device: torch.device, seconds: float = SETTLED_SECONDS) -> None:
    """Run what is to be timed until it has run for ``seconds``, once at the least.

    A graph taken up after other work is 5 to 12 % slower for its first 3 to 11 ms (H200, kernels
    bound by memory: docs/injection.md).
    """
    begin = time.perf_counter()
    while True:
        run()
        synchronize(device)
        if time.perf_counter() - begin >= seconds:
            return


def time_block(
    run: Run,
    device: torch.device,
    *,
    min_samples: int = 30,
    min_seconds: float = 2.0,
    max_seconds: float = 20.0,
    calls: int = 1,
    noise_ratio: float | None = None,
    before: Run | None = None,
    queued: bool = False,
    prior: Sequence[int] = (),
    floor: int = 3,
    rest: bool = False,
) -> Timed:
    """Bare wall nanoseconds of one run, one entry a sample.

    A sample is the window of ``calls`` runs back to back, less the empty window, over ``calls``.
    Sampling ends when there are ``min_samples``, ``min_seconds`` have passed and, where
    ``noise_ratio`` is given, :func:`noise` of these and the ``prior`` ones is no more than that;
    at ``max_seconds`` in any case, with ``floor`` samples at the least.

    ``before`` runs ahead of every window. The device is then synchronised, so that the window
    opens on an empty queue; with ``queued`` it is not, and the window opens when the device is
    through with ``before``, which hides the launch cost of a short run.

    Samples of a slowed host (:mod:`cb_trace.replay.host`) are left out where ``floor`` others are.

    :param rest: leave the device idle after a window for as long as the host waited for it.
    """
    empty = empty_window_ns(device) if not queued else queued_empty_window_ns(before, device)
    host = host_of(device)
    taken = Taken(floor)
    begin, judged_at = time.perf_counter(), 0.0
    while True:
        clear = host is None or host.seek()
        window = _window(run, device, calls, before, queued=queued)
        clear = clear and (host is None or host.full())
        taken.add(max(0, round((window.ns - empty) / calls)), clear=clear)
        if rest:
            time.sleep(min(window.waited_ns / 1e9, MOST_REST_SECONDS))
        elapsed = time.perf_counter() - begin
        if len(taken) >= floor and elapsed >= max_seconds:
            return taken.timed()
        if taken.enough < max(min_samples, judged_at) or elapsed < min_seconds:
            continue
        samples = taken.timed().ns
        if noise_ratio is None or noise([*prior, *samples]) <= noise_ratio:
            return taken.timed()
        judged_at = taken.enough * JUDGE_FACTOR


class Taken:
    """Samples, or other figures, as they are taken, each with whether the host ran clear."""

    def __init__(self, floor: int) -> None:
        self._all: list[tuple[int, bool]] = []
        self._clear, self._floor = 0, floor

    def __len__(self) -> int:
        return len(self._all)

    @property
    def enough(self) -> float:
        """How many there are, slowed ones for a part."""
        return self._clear + (len(self._all) - self._clear) / PATIENCE

    def add(self, ns: int, *, clear: bool) -> None:
        """One more."""
        self._all.append((ns, clear))
        self._clear += clear

    def places(self) -> list[int]:
        """Which of them count: the clear ones, or all where those are fewer than the floor."""
        every = self._clear < self._floor
        return [place for place, (_, clear) in enumerate(self._all) if every or clear]

    def timed(self) -> Timed:
        """Those that count."""
        places = self.places()
        slowed = self._clear < min(self._floor, len(self._all))
        return Timed([self._all[p][0] for p in places], len(self._all) - len(places), slowed)


@cache
def host_of(device: torch.device) -> Host | None:
    """What watches the host, where it only launches; on the CPU it is the device itself."""
    return Host() if device.type == "cuda" else None


def window_ns(
    run: Run,
    device: torch.device,
    calls: int,
    before: Run | None = None,
    queued_empty_ns: int | None = None,
) -> int:
    """One sample, whatever the host does: see :func:`time_block`.

    :param queued_empty_ns: makes it a queued one: what such a window takes with nothing inside.
    """
    queued = queued_empty_ns is not None
    window = _window_ns(run, device, calls, before, queued=queued)
    empty = empty_window_ns(device) if queued_empty_ns is None else queued_empty_ns
    return max(0, round((window - empty) / calls))


def calls_per_sample(run: Run, device: torch.device, longer: int = 1) -> int:
    """How many runs back to back make a window that dwarfs the timer's resolution and cost.

    :param longer: times as long a window.
    """
    goal = longer * max(MIN_WINDOW_NS, WINDOW_FACTOR * empty_window_ns(device))
    calls = 1
    while calls < MAX_CALLS:
        window = _window_ns(run, device, calls)
        if window >= goal:
            break
        grown = math.ceil(calls * goal / max(window, 1) * 1.1)
        calls = min(max(grown, calls + 1), calls * 10, MAX_CALLS)
    return calls


def noise(samples: Sequence[int]) -> float:
    """Relative standard error of the median, from the interquartile range.

    1.253 × σ ÷ √n with σ = IQR ÷ 1.349, as for a normal distribution; outliers do not move it.
    """
    middle = statistics.median(samples)
    if len(samples) < 2 or middle <= 0:
        return math.inf
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return 1.253 * (high - low) / 1.349 / math.sqrt(len(samples)) / middle


@cache
def empty_window_ns(device: torch.device) -> int:
    """Length of a window with nothing inside, opened on an empty queue: the shortest of many.

    A host that stumbles makes an empty window longer, but not a window whose second event waits
    for the device. Taking more off than an undisturbed window costs would make steps too short:
    with the median a step of 960 µs read 865 on an H200 whose host was slow at that moment.
    """
    return _shortest_empty(device, None, queued=False)


def queued_empty_window_ns(before: Run | None, device: torch.device) -> int:
    """Length of a window with nothing inside that opens when the device is through ``before``."""
    if device.type != "cuda":  # there is no queue
        return empty_window_ns(device)
    return _shortest_empty(device, before, queued=True, windows=5)


def _shortest_empty(
    device: torch.device, before: Run | None, *, queued: bool, windows: int = 51
) -> int:
    return min(_window_ns(_nothing, device, 0, before, queued=queued) for _ in range(windows))


def _nothing() -> None:
    return None


def _window_ns(
    run: Run,
    device: torch.device,
    calls: int,
    before: Run | None = None,
    *,
    queued: bool = False,
) -> int:
    return _window(run, device, calls, before, queued=queued).ns


@dataclass(frozen=True, slots=True)
class Window:
    """One window, with nothing taken off; when the host was through with closing it."""

    ns: int
    closed_ns: int  # by time.perf_counter_ns
    waited_ns: int = 0  # from then until the device was


def open_window(run: Run, device: torch.device) -> Window:
    """A window of one run, opened on an empty queue, as those of the bare eager steps are."""
    return _window(run, device, 1)


def _window(
    run: Run,
    device: torch.device,
    calls: int,
    before: Run | None = None,
    *,
    queued: bool = False,
) -> Window:
    if before is not None:
        before()
    if device.type == "cuda":
        return _cuda_window(run, device, calls, queued=queued)
    begin = time.perf_counter_ns()
    for _ in range(calls):
        run()
    closed = time.perf_counter_ns()
    return Window(closed - begin, closed)


def _cuda_window(run: Run, device: torch.device, calls: int, *, queued: bool) -> Window:
    with torch.cuda.device(device):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        if not queued:
            torch.cuda.synchronize(device)
        start.record()
        for _ in range(calls):
            run()
        end.record()
        closed = time.perf_counter_ns()
        end.synchronize()
        waited = time.perf_counter_ns() - closed
        ns = round(float(start.elapsed_time(end)) * 1e6)  # a length, far below float limits
        return Window(ns, closed, waited)
