"""How long the host takes for modules in company: called one after another, as the step does.

A module alone is timed in a loop of itself, and finds its code and data in the caches of the
processor; in the step others come in between. The first Linear of a DLRM's step took an H200's host
22.7 µs in it, 17.6 in a loop. So the innermost modules are called each once, on their inputs, in
the order of the step, with the clock read after each. Nothing else of the step runs: what a step is
predicted from must not have seen it.

To call a module at all, and to read the clock, takes some 2 µs in company. That is its caller's and
is taken off: it is what a module that does nothing takes between the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_low
from typing import Any

import torch
from torch import nn

from cb_trace.bundle import HostTourRecord, Note
from cb_trace.replay.captures import Captures
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.graph import one_line
from cb_trace.replay.guard import CallState, preserved
from cb_trace.replay.hooks import Call
from cb_trace.replay.isolated import SkippedError, eager_form, isolated
from cb_trace.replay.schedule import TURNS
from cb_trace.replay.timing import Taken, host_of, synchronize

TOURS = 12  # of a turn
MIN_TOURS = 3  # of a turn at the least, and in any case of the first
BUDGET_RATIO = 0.03  # of the time for all replays
DEVICES = ("cuda",)  # on a CPU the host is the device
NOTHING = nn.Identity()
NAMED = 5  # of the modules that a note is about
RESTORED = "their inputs or state are put back before every call"


@dataclass(frozen=True, slots=True)
class _Stop:
    """One call of the step."""

    path: str
    run: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The calls of a tour, in order, and the state that they all run in."""

    stops: list[_Stop]
    state: CallState
    casts: bool  # some cast weights for autocast


@dataclass(frozen=True, slots=True)
class _Block:
    """Tours of one turn: when the clock was read, before the first call and after each."""

    marks: list[list[int]]
    call_ns: int  # to call a module that does nothing, between the others
    dropped: int
    slowed: bool


class HostTour:
    """Tours of the modules of a model, a few a turn of what is timed bare.

    Those take part that have no replayed module inside, whose call needs nothing put back before
    it, and that run in the state that most do. ``notes`` say which do not. Who shares the
    measurement of a like is called itself, on the like's inputs where its own were not kept.

    :param budget_seconds: of all replays; the first turn has ``MIN_TOURS`` anyhow.
    """

    def __init__(
        self, model: nn.Module, captures: Captures, device: torch.device, budget_seconds: float
    ) -> None:
        self.notes: list[Note] = []
        self._model, self._captures, self._device = model, captures, device
        self._left = BUDGET_RATIO * budget_seconds
        self._plan: _Plan | None = None
        self._places: dict[str, list[int]] = {}  # of each module, among the stops
        self._over = device.type not in DEVICES
        self._blocks: list[_Block] = []

    def turn(self, number: int, known: Set[Call], flush: CacheFlush) -> None:
        """A block of tours, by the budget; everything is as before afterwards.

        The first turn finds out who takes part, of the calls that were measured by then: ``known``.
        """
        if self._over or (number and self._left <= 0):
            return
        begin = time.perf_counter()
        try:
            if self._plan is None:
                self._plan = self._planned(known, flush)
            if self._plan is not None:
                share = self._left / max(1, TURNS - number)
                self._blocks.append(self._block(self._plan, begin + share))
        except Exception as error:  # a module that fails now and did not alone, or no memory
            self._leave(f"the modules fail one after another: {one_line(error)}")
        self._left -= time.perf_counter() - begin

    def close(self) -> None:
        """No more turns: let go of the inputs."""
        self._plan, self._over = None, True

    def records(self) -> list[HostTourRecord]:
        """Of each module all of whose calls took part."""
        sound = [block for block in self._blocks if not block.slowed] or self._blocks
        dropped = sum(b.dropped + (0 if b in sound else len(b.marks)) for b in self._blocks)
        tours = [lengths_ns(marks, block.call_ns) for block in sound for marks in block.marks]
        if not tours:
            return []
        return [
            HostTourRecord(
                path=path,
                calls=len(places),
                ns=[sum(tour[place] for place in places) for tour in tours],
                dropped=dropped,
            )
            for path, places in self._places.items()
        ]

    def _leave(self, reason: str) -> None:
        self._blocks.clear()
        self.close()
        self.notes.append(Note(reason="no host tour", detail=reason))

    # --- who takes part -----------------------------------------------------------------------

    def _planned(self, known: Set[Call], flush: CacheFlush) -> _Plan | None:
        order = self._innermost(known)
        if not order:
            self._leave("no innermost module was measured alone")
            return None
        states = Counter(call.state.key for call in order)
        common = states.most_common(1)[0][0]
        state = next(call.state for call in order if call.state.key == common)
        ready: dict[Call, Call] = {}  # with inputs
        out: dict[Call, str] = {}
        until = time.perf_counter() + self._left
        for call in dict.fromkeys(order):
            try:
                ready[call] = self._ready(call, common, flush, until)
            except SkippedError as error:
                out[call] = str(error)
        self._note_missing(out)
        stops = [_stop(ready[call]) for call in order if call in ready]
        if not stops:
            self._leave("no module can take part")
            return None
        self._places = _places(stops, {call.path for call in out})
        return _Plan(stops, state, any(call.casts for call in ready))

    def _innermost(self, known: Set[Call]) -> list[Call]:
        """The step's calls of measured modules, without those that hold a module to be replayed."""
        measured_by = self._captures.measured_by
        waiting = {call.path for call in self._captures.calls if measured_by(call).reason is None}
        holders = {above for path in waiting for above in _above(path)}
        return [
            call
            for call in self._captures.order
            if measured_by(call) in known and call.path not in holders
        ]

    def _ready(self, call: Call, common: object, flush: CacheFlush, until: float) -> Call:
        """The call with inputs to run it on.

        :raises SkippedError: it cannot take part.
        """
        lead = self._captures.measured_by(call)
        if lead.restores:
            raise SkippedError(RESTORED)
        if call.state.key != common:
            raise SkippedError("they run in another state than most: grad mode, autocast, flags")
        if call.training != tuple(inner.training for inner in call.module.modules()):
            raise SkippedError("they are in another mode than outside the step: train, eval")
        if lead.inputs is None or any(c.data.device != c.device for c in lead.inputs.copies):
            raise SkippedError("their inputs are not in the device's memory")
        if call is lead:
            return call
        if call.inputs is None:
            call = replace(call, inputs=lead.inputs, rng=lead.rng, casts=lead.casts)
        self._try(call, lead, flush, until)
        return call

    def _try(self, call: Call, lead: Call, flush: CacheFlush, until: float) -> None:
        """Run a call whose like was measured in its place."""
        if not _same_numbers(call.module, lead.module):
            raise SkippedError("they hold other numbers than the like that they share inputs with")
        if time.perf_counter() > until:
            raise SkippedError("there was no time to try them")
        with isolated(call, self._device, flush) as alone:
            if alone.restores:
                raise SkippedError(RESTORED)

    def _note_missing(self, out: Mapping[Call, str]) -> None:
        for reason in dict.fromkeys(out.values()):
            paths = list(
                dict.fromkeys(call.path or "the root" for call, why in out.items() if why == reason)
            )
            shown = ", ".join(paths[:NAMED]) + (", …" if len(paths) > NAMED else "")
            detail = f"{reason}: {shown}"
            self.notes.append(Note(reason="not in host tour", detail=detail, count=len(paths)))

    # --- tours --------------------------------------------------------------------------------

    def _block(self, plan: _Plan, until: float) -> _Block:
        """Tours that count. The first two, with nothing in between, warm up as well."""
        host, taken, found = host_of(self._device), Taken(MIN_TOURS), []
        with preserved(self._model, self._device), plan.state.entered(self._device):
            self._tour(plan, NOTHING)
            call_ns = median_low(lengths_ns(self._tour(plan, NOTHING))[1::2])
            while len(taken) < MIN_TOURS or (taken.enough < TOURS and time.perf_counter() < until):
                clear = host is None or host.seek()
                found.append(self._tour(plan))
                clear = clear and (host is None or host.full())
                taken.add(found[-1][-1] - found[-1][0], clear=clear)
            synchronize(self._device)
        timed = taken.timed()
        marks = [found[place] for place in taken.places()]
        return _Block(marks, call_ns, timed.dropped, timed.slowed)

    def _tour(self, plan: _Plan, between: nn.Module | None = None) -> list[int]:
        """One tour on an idle device. An output is let go of within its module's time, as alone.

        :param between: called after each of the others.
        """
        if plan.casts:  # each weight is cast once a step
            torch.clear_autocast_cache()
        synchronize(self._device)
        now = time.perf_counter_ns
        marks = [now()]
        log = marks.append
        for stop in plan.stops:
            stop.run(*stop.args, **stop.kwargs)
            log(now())
            if between is not None:
                between(None)
                log(now())
        return marks


def lengths_ns(marks: Sequence[int], call_ns: int = 0) -> list[int]:
    """How long each call took, without what it takes to call nothing."""
    return [max(0, after - before - call_ns) for before, after in pairwise(marks)]


def _stop(call: Call) -> _Stop:
    """On inputs of its own: other tensors, though of the same bytes as those of its likes."""
    assert call.inputs is not None
    thawed = call.inputs.thaw(own=False)
    return _Stop(call.path, eager_form(call), thawed.args, thawed.kwargs)


def _places(stops: Sequence[_Stop], partly: set[str]) -> dict[str, list[int]]:
    """By module, without those some of whose calls do not take part."""
    found: dict[str, list[int]] = {}
    for place, stop in enumerate(stops):
        if stop.path not in partly:
            found.setdefault(stop.path, []).append(place)
    return found


def _above(path: str) -> list[str]:
    """The paths of all that hold a module; none for the root."""
    names = path.split(".")
    return [".".join(names[:count]) for count in range(len(names))] if path else []


def _same_numbers(one: nn.Module, other: nn.Module) -> bool:
    """Of what may decide which indices a module takes and is no part of how likes are told.

    An index that a module does not hold ends the process's use of the device.
    """
    pairs = zip(_integers(one), _integers(other), strict=True)
    return _private(one) == _private(other) and all(
        a.layout == torch.strided and torch.equal(a, b) for a, b in pairs
    )


def _integers(module: nn.Module) -> list[torch.Tensor]:
    return [b for b in module.buffers() if not (b.is_floating_point() or b.is_complex())]


def _private(module: nn.Module) -> list[tuple[str, object]]:
    return [
        (name, value)
        for inner in module.modules()
        for name, value in vars(inner).items()
        if name.startswith("_") and _is_number(value)
    ]


def _is_number(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_number, value))
    return isinstance(value, int)
