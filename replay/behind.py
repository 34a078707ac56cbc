"""Cold samples right behind the step, where the step runs at a lower clock than modules alone.

A step of heavy kernels runs into the power cap and its kernels at the clock that leaves. A module
alone, most of all a cold one, leaves the device idle between samples, so it runs at a higher one:
1,755 MHz in GPT-2 small on 8 sequences of 1,024 (H200), 1,965 alone, where kernels bound by the
clock took less cold than they did in the step. There the step's CUDA graph runs before every cold
sample, and the sample finds the clock that it leaves.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

import torch
from torch import nn

from cb_trace.bundle import Note
from cb_trace.replay.clock import Clock
from cb_trace.replay.graph import one_line
from cb_trace.replay.guard import preserved
from cb_trace.replay.schedule import TURNS
from cb_trace.replay.series import Series
from cb_trace.replay.tensors import is_wrapper
from cb_trace.replay.timing import MAX_CALLS, Run, settle, synchronize, window_ns

LOAD_SECONDS = 0.02  # of steps before a sample
PROBE_SECONDS = 0.2  # of steps before their clock is known
LATE_READINGS = 5  # which the clock of the step is the median of
SLOWER_RATIO = 0.97  # clocks come in steps of 15 MHz, and wander by two
BLOCK_LOADS = 14  # before the first sample of a block, and for the least of its samples
BUDGET_RATIO = 2 / 3  # of the time that is left: hot samples and graphs need some too
TIMED_CALLS = 8

REASON = "cold behind the step"
APART = "not behind the step"  # a limit of cold samples that were taken before it was decided


class BehindStep:
    """Decides once whether cold samples run behind the step; ``load`` is what runs before each.

    ``replay`` launches the step's graph and returns; whoever has captured one puts it here.
    """

    def __init__(self, model: nn.Module, device: torch.device, clock: Clock) -> None:
        self.replay: Run | None = None
        self.load: Run | None = None
        self._model, self._device, self._clock = model, device, clock
        self._decided = False

    def decide(self, cold: Sequence[Series], seconds: float) -> list[Note]:
        """What was decided, after a first turn; samples ``cold`` that no longer count are set
        aside.

        :param seconds: of the time budget that are left.
        """
        replay = self.replay
        if replay is None or self._decided:
            return []
        self._decided = True
        timed = [one for one in cold if one.blocks]
        with preserved(self._model, self._device):
            settle(replay, self._device, LOAD_SECONDS)
            load = repeated(replay, calls_of(replay, self._device))
            step_mhz = clock_under(load, self._clock, self._device)
        clocks = slower(step_mhz, [b.reading.sm_clock_mhz for one in timed for b in one.blocks])
        if clocks is None:
            return []
        refused = too_long(len(timed), seconds) or changes(self._model, replay, self._device)
        if refused is None:
            self.load = load
            for one in timed:
                one.set_aside(APART)
        said = "" if refused is None else f", so their samples are of that clock: {refused}"
        detail = f"the step runs at {clocks[0]} MHz, modules alone at {clocks[1]}{said}"
        return [Note(reason=REASON if refused is None else APART, detail=detail, count=len(timed))]


def slower(step_mhz: int | None, alone_mhz: Sequence[int | None]) -> tuple[int, int] | None:
    """Clocks of the step and (median) of modules alone, where the step's is clearly lower."""
    known = [clock for clock in alone_mhz if clock is not None]
    if step_mhz is None or not known:
        return None
    alone = round(statistics.median(known))
    return (step_mhz, alone) if step_mhz < SLOWER_RATIO * alone else None


def too_long(series: int, seconds: float) -> str | None:
    """Whether so many series, in all turns but the first, fit in the seconds that are left."""
    needed = series * (TURNS - 1) * BLOCK_LOADS * LOAD_SECONDS
    fits = needed <= BUDGET_RATIO * seconds
    return None if fits else f"{series} modules would take {needed:.1f} of {seconds:.1f} s left"


def calls_of(replay: Run, device: torch.device) -> int:
    """How many steps are :data:`LOAD_SECONDS` long."""
    step_ns = window_ns(replay, device, TIMED_CALLS)
    return min(MAX_CALLS, math.ceil(LOAD_SECONDS * 1e9 / max(1, step_ns)))


def repeated(run: Run, calls: int) -> Run:
    """So many runs, launched back to back; on a GPU they are queued, and nobody waits for them."""

    def load() -> None:
        for _ in range(calls):
            run()

    return load


def clock_under(load: Run, clock: Clock, device: torch.device) -> int | None:
    """The SM clock while the device is at work: read between launch and end, as it rises after."""
    readings: list[int | None] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < PROBE_SECONDS or len(readings) < LATE_READINGS:
        load()
        readings.append(clock.read().sm_clock_mhz)
        synchronize(device)
    late = [mhz for mhz in readings[-LATE_READINGS:] if mhz is not None]
    return round(statistics.median(late)) if late else None


def changes(model: nn.Module, replay: Run, device: torch.device) -> str | None:
    """What a step changes of the model by bits, versions or not: a graph counts none."""
    try:
        with preserved(model, device) as state:
            before = _sums(model)
            replay()
            synchronize(device)
            if state.changed() or before != _sums(model):
                return "a step changes the model"
    except Exception as error:  # a tensor without bits of its own, no memory for copies
        return one_line(error)
    return None


def _sums(model: nn.Module) -> list[int]:
    """Of the bytes of every parameter and buffer: no copies, as tables can be large.

    :raises TypeError: one has no plain bytes.
    """
    sums = []
    for tensor in [*model.parameters(), *model.buffers()]:
        if is_wrapper(tensor) or tensor.layout != torch.strided:
            raise TypeError(f"a {type(tensor).__name__} cannot be compared by its bytes")
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        sums.append(flat.sum(dtype=torch.int64))
    return [int(one) for one in sums]
