"""How long the host takes for every module in the bare step, by clocks around their forwards.

A module's time is its own: from the start of its ``forward`` to its return, less the forwards that
ran inside. What is left of the step is its work outside every module. Nothing else is attached, and
what the clocks themselves cost is taken off.

The steps run in windows as the bare ones do, so that it is known how long the host takes to close
one, and how much later than the host the device is through.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median, median_low, quantiles
from typing import Any

import torch
from torch import nn

from cb_trace.bundle import HostSpanRecord, HostWindowRecord
from cb_trace.replay.graph import one_line
from cb_trace.replay.methods import Method, in_backward, stand_ins
from cb_trace.replay.timing import Taken, empty_window_ns, host_of, open_window

SAMPLES = 12  # of a block
MAX_SECONDS = 0.5  # of a block, half of them without clocks, with
MIN_SAMPLES = 3  # each at the least
STEP, END = -1, -2  # in a log: the place of the step itself, and the end of a call
MOST_TIMES = 8.0  # a clock's cost in a step over that in a loop
ROUNDS, CALLS = 50, 200  # of the calibration: some 20 ms


@dataclass(frozen=True, slots=True)
class ClockCost:
    """What one clocked call adds: to its own reading, and around that to its caller's."""

    inside_ns: float
    outside_ns: float

    def of_step(self, calls: int, ns: float) -> ClockCost:
        """The same in a step that so many calls make longer by ``ns``.

        A step has more code and data than a loop, so that the processor fetches those of a clock
        anew: 0.4 µs in a loop were 0.9 µs in a step of 240 calls, and 2.5 µs while other processes
        shared the processor. More than ``MOST_TIMES`` is a disturbance.
        """
        alone = calls * (self.inside_ns + self.outside_ns)
        times = min(max(1.0, ns / alone), MOST_TIMES) if alone else 1.0
        return ClockCost(times * self.inside_ns, times * self.outside_ns)


@dataclass(frozen=True, slots=True)
class Part:
    """Of one step: a module's calls, or the step itself, as the clocks read it."""

    own_ns: int = 0  # without the calls that ran inside
    calls: int = 0
    inner: int = 0  # clocked calls right inside

    def ns(self, cost: ClockCost) -> int:
        """Its own time less what the clocks cost."""
        return max(
            0, round(self.own_ns - self.calls * cost.inside_ns - self.inner * cost.outside_ns)
        )


@dataclass(frozen=True, slots=True)
class _Closed:
    """The window of one step with clocks in it."""

    host_ns: int  # from the step's start to its return
    closing_ns: int  # from there until the host was through with closing the window
    window_ns: int  # nothing taken off


@dataclass(frozen=True, slots=True)
class _Block:
    """Steps with clocks, taken in one go beside as many without."""

    steps: list[dict[int, Part]]
    windows: list[_Closed]  # of the same steps
    longer_ns: float  # than those without
    dropped: int
    slowed: bool


class HostSpans:
    """Host time of every module and of the step outside them, block by block.

    ``reason`` says why there is none: a forward ran on another thread than the step's, whose times
    are no parts of one another, a part of the step is compiled, or it fails with clocks in it.

    :param wrap: methods that count as a call of their module, as ``forward`` does.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        step: Callable[[], object],
        device: torch.device,
        wrap: Sequence[str] = (),
    ) -> None:
        self.reason: str | None = None
        # A scripted module runs code of its own, whatever stands in its dictionary.
        scripted = torch.jit.ScriptModule
        self._modules = {p: m for p, m in modules.items() if not isinstance(m, scripted)}
        self._step, self._device = step, device
        self._methods = ("forward", *wrap)
        self._blocks: list[_Block] = []

    def block(self, samples: int = SAMPLES, max_seconds: float = MAX_SECONDS) -> None:
        """Take samples; every module has its own forward back afterwards."""
        if self.reason is not None:
            return
        clocks = Clocks()
        places = {path: place for place, path in enumerate(self._modules)}

        def around(path: str, _module: nn.Module, _name: str, method: Method) -> Method:
            return clocks.around(places[path], method)

        try:
            bare, _, _ = self._sampled(clocks, samples, max_seconds / 2)
            compiled = _compiled()
            with stand_ins(self._modules, self._methods, around):
                clocks.run(self._step)  # a changed forward makes some things anew
                read, windows, taken = self._sampled(clocks, samples, max_seconds / 2)
        except Exception as error:  # a step that fails anyhow fails again in the next bare block
            self.reason = f"the step fails with clocks around its modules: {one_line(error)}"
            return
        if _compiled() != compiled:
            self.reason = "a part of the step runs compiled, and not as it is with clocks in it"
            return
        if clocks.elsewhere:
            self.reason = "a module runs on another thread than the step"
            return
        steps = [parts_of(log) for log in read]
        timed = taken.timed()
        longer = _low_quartile_ns(read) - _low_quartile_ns(bare)
        self._blocks.append(_Block(steps, windows, longer, timed.dropped, timed.slowed))

    def records(self) -> list[HostSpanRecord]:
        """Of the step outside every module (path None), and of each module that it calls."""
        sound = self._sound()
        if not sound:
            return []
        dropped = sum(b.dropped + (0 if b in sound else len(b.steps)) for b in self._blocks)
        steps = [step for block in sound for step in block.steps]
        calls = median_low(sum(part.inner for part in step.values()) for step in steps)
        cost = clock_cost().of_step(calls, median(block.longer_ns for block in sound))
        records = []
        for place, path in ((STEP, None), *enumerate(self._modules)):
            parts = [step.get(place, Part()) for step in steps]
            if times := median_low(part.calls for part in parts):
                ns = [part.ns(cost) for part in parts]
                records.append(HostSpanRecord(path=path, calls=times, ns=ns, dropped=dropped))
        return records

    def window(self) -> HostWindowRecord | None:
        """The windows of the same steps."""
        sound = self._sound()
        if not sound:
            return None
        closed = [one for block in sound for one in block.windows]
        return HostWindowRecord(
            host_ns=[one.host_ns for one in closed],
            closing_ns=[one.closing_ns for one in closed],
            window_ns=[one.window_ns for one in closed],
            empty_ns=empty_window_ns(self._device),
        )

    def _sound(self) -> list[_Block]:
        """The blocks that count."""
        if self.reason is not None:
            return []
        return [block for block in self._blocks if not block.slowed] or self._blocks

    def _sampled(
        self, clocks: Clocks, samples: int, max_seconds: float
    ) -> tuple[list[list[int]], list[_Closed], Taken]:
        """Steps that count, as they are or with clocks."""
        host, begin = host_of(self._device), time.perf_counter()
        logs: list[list[int]] = []
        windows: list[_Closed] = []
        taken = Taken(MIN_SAMPLES)
        while len(taken) < MIN_SAMPLES or (
            taken.enough < samples and time.perf_counter() - begin < max_seconds
        ):
            clear = host is None or host.seek()
            window = open_window(lambda: clocks.once(self._step), self._device)
            logs.append(clocks.log())
            clear = clear and (host is None or host.full())
            length = _length_ns(logs[-1])
            windows.append(_Closed(length, window.closed_ns - logs[-1][-2], window.ns))
            taken.add(length, clear=clear)
        places = taken.places()
        return [logs[place] for place in places], [windows[place] for place in places], taken


class Clocks:
    """Clocks around methods; a place is one module's. To be made on the thread that runs them.

    ``elsewhere`` is whether any was called on another thread. A forward that autograd repeats on
    a thread of its own is part of the backward, and so of no module.

    A log has two numbers for a start, the place and the time, and two for an end, the time and
    ``END``: the method runs between times.
    """

    def __init__(self) -> None:
        self.elsewhere = False
        self._log: list[int] = []
        self._thread = threading.get_ident()

    def around(self, place: int, method: Method) -> Method:
        """The method with a clock around it; short, as its time counts."""
        log, now = self._log.append, time.perf_counter_ns
        thread, here = self._thread, threading.get_ident

        def clocked(*args: Any, **kwargs: Any) -> Any:
            if here() != thread:
                self.elsewhere |= not in_backward()
                return method(*args, **kwargs)
            log(place)
            log(now())
            try:
                return method(*args, **kwargs)
            finally:
                log(now())
                log(END)

        return clocked

    def run(self, step: Callable[[], object]) -> list[int]:
        """Run a step; its log, itself as the first and last entry."""
        self.once(step)
        return self.log()

    def once(self, step: Callable[[], object]) -> None:
        """Run a step, and do nothing after it."""
        self._log.clear()
        self.around(STEP, step)()

    def log(self) -> list[int]:
        """Of the last step."""
        return list(self._log)


def parts_of(log: Sequence[int]) -> dict[int, Part]:
    """Own time, calls and calls right inside of every place in a log."""
    found: dict[int, list[int]] = {}
    open_: list[list[int]] = []  # of each call: place, start, time inside, calls inside
    numbers = iter(log)
    for first, second in zip(numbers, numbers, strict=True):
        if second != END:
            open_.append([first, second, 0, 0])
            continue
        place, start, inside, inner = open_.pop()
        total = found.setdefault(place, [0, 0, 0])
        total[0] += first - start - inside
        total[1] += 1
        total[2] += inner
        if open_:
            open_[-1][2] += first - start
            open_[-1][3] += 1
    return {place: Part(*total) for place, total in found.items()}


def _compiled() -> int:
    """How much torch.compile has looked at so far: more, where clocks lie in what it compiled."""
    dynamo = sys.modules.get("torch._dynamo")  # a step without compiled parts has not imported it
    return sum(dynamo.utils.counters["frames"].values()) if dynamo is not None else 0


def _length_ns(log: Sequence[int]) -> int:
    """From the start of the step to its return."""
    return log[-2] - log[1]


def _low_quartile_ns(logs: Sequence[list[int]]) -> float:
    """Of the steps' lengths; what disturbs the host makes only the longer ones longer."""
    return quantiles(map(_length_ns, logs), n=4)[0]


@cache
def clock_cost() -> ClockCost:
    """What a clock costs around a method that does nothing, in a loop: the least of many.

    A disturbed host makes it longer, and taking more off than it costs would make modules too
    short.
    """
    clocks = Clocks()
    clocked = clocks.around(0, _idle)
    steps = [parts_of(clocks.run(lambda: _call_many(clocked))) for _ in range(ROUNDS)]
    itself, around = (min(step[place].own_ns for step in steps) for place in (0, STEP))
    bare, empty = (min(_many_ns(clocks, method) for _ in range(ROUNDS)) for method in (_idle, None))
    inside, outside = itself - (bare - empty), around - empty
    return ClockCost(max(0, inside) / CALLS, max(0, outside) / CALLS)


def _many_ns(clocks: Clocks, method: Method | None) -> int:
    return _length_ns(clocks.run(lambda: _call_many(method)))


def _idle(x: object) -> object:
    return x


def _call_many(method: Method | None) -> None:
    args: tuple[object, ...] = (None,)
    kwargs: dict[str, object] = {}
    if method is None:
        for _ in range(CALLS):
            pass
    else:
        for _ in range(CALLS):
            method(*args, **kwargs)
