"""Replay every module of a model alone, breadth first.

Order: live inputs first, all timing after that, all profiling last, since a profiler leaves a
slow-down behind. Modules are timed in turns, a block of samples each, so that a slow drift of the
machine meets all alike, and whatever the caller times between two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cb_trace.accounts import MemoryRecord
from cb_trace.bundle import Condition, ModuleRecord, Note, ReplayRecord, TraceRecord
from cb_trace.replay.captures import Captures
from cb_trace.replay.clock import clock_of
from cb_trace.replay.compiling import compiled_alone
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.footprint import footprints
from cb_trace.replay.guard import preserved
from cb_trace.replay.hooks import Call
from cb_trace.replay.isolated import (
    IsolatedCall,
    Kind,
    Sampling,
    SkippedError,
    eager_form,
    isolated,
)
from cb_trace.replay.kernels import kernel_session, profile_call
from cb_trace.replay.likes import DEVICE, HOST, Place, Seen
from cb_trace.replay.schedule import MOST_TURNS, TURNS, Schedule
from cb_trace.replay.series import Series, block_of, clock_notes
from cb_trace.replay.storages import CudaMeter
from cb_trace.replay.tour import HostTour
from cb_trace.replay.tree import modules_by_path, sharded

INTERRUPTED = "interrupted"
CLOCK = "clock and temperature"
UNLIKE = "unlike its likes"
HOT: Kind = ("forward", "hot")

Measurement = tuple[Call, Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is measured, and how much time and memory it may take."""

    dedup: bool = True
    conditions: tuple[Condition, ...] = ("hot", "cold", "graph")  # graph on CUDA only
    budget_seconds: float = 20.0  # for all timing; twice that where calls are slow
    max_capture_bytes: int | None = None  # None: half of the free memory
    profiled_calls: int = 3
    min_samples: int = 10
    min_seconds: float = 0.3  # a shorter stretch can lie in a quiet or a slow moment of the host
    noise_ratio: float = 0.005
    wrap: tuple[str, ...] = ()  # methods that count as calls beside forward
    tour: bool = True  # modules one after another too, where the host launches them
    compile: dict[str, Any] | None = None  # arguments of torch.compile; None: modules run eagerly


class Replayer:
    """Replays the modules of a model one by one on the inputs they had in the step.

    :meth:`capture`, :meth:`time` or :meth:`turns`, :meth:`part` if there is a trace of the step,
    :meth:`profile`, in this order, each once. ``records`` and ``notes`` are filled by then. In a
    loop that is not ours, ``with capturing():`` around one step takes the place of
    :meth:`capture`; with ``step`` None there is that one pass only.

    Ctrl-C ends the method at hand; what was measured stays, and ``interrupted`` is set.

    :raises CbTraceError: the model cannot be replayed at all.
    """

    def __init__(  # noqa: PLR0917 - the parts of one measurement, named at every call
        self,
        model: nn.Module,
        step: Callable[[], object] | None,
        tree: Sequence[ModuleRecord],
        device: torch.device,
        options: ReplayOptions,
        progress: Callable[[str], None],
    ) -> None:
        self.model, self.step, self.tree, self.device = model, step, tree, device
        self.options, self.progress = options, progress
        self.records: list[ReplayRecord] = []
        self.notes: list[Note] = []
        self.interrupted = False
        self._conditions = [c for c in options.conditions if c != "graph" or device.type == "cuda"]
        if options.compile is not None:
            self._conditions.append("eager")
        self._captures = Captures(
            modules_by_path(model, tree),
            {record.path: record.signature for record in tree},
            device,
            dedup=options.dedup,
            max_bytes=options.max_capture_bytes,
            wrap=options.wrap,
            sharded=sharded(model),
        )
        self.tour = HostTour(model, self._captures, device, options.budget_seconds)
        self._series: dict[Measurement, Series] = {}
        self._ids: dict[Measurement, int] = {}
        self._unlike: dict[Call, str] = {}
        self._budget_seconds = options.budget_seconds
        self._clock = clock_of(device)
        self._flush: CacheFlush | None = None

    def capture(self) -> None:
        """Run the step once and keep the live inputs of the calls to replay."""
        if self.step is None:
            raise RuntimeError("there is no step to run; use capturing()")
        try:
            with preserved(self.model, self.device), self.capturing():
                self.step()
        except KeyboardInterrupt:
            self._interrupt()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Keep live inputs while the caller runs one step inside the block."""
        try:
            with self._captures.first_pass():
                yield
        finally:
            self.notes += self._captures.notes

    def time(self) -> None:
        """Time every module alone, with no profiler attached."""
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[int]:
        """:meth:`time`, by turns: between two of them something else may be timed.

        ``records`` hold what is known after every turn. Where inputs do not fit in memory all at
        once, the turns of those that do come first.
        """
        wanted = self._captures.to_measure()
        try:
            if not self.interrupted:
                yield from self._time_all(wanted)
        except KeyboardInterrupt:
            self._interrupt()
        self._assemble(final=True)
        self.notes += self.tour.notes
        detail, dropped = clock_notes(list(self._series.values()))
        self.notes.append(Note(reason=CLOCK, detail=detail, count=max(1, dropped)))

    def groups(self) -> frozenset[str]:
        """Paths of the modules that share a measurement or stand for others."""
        return frozenset(call.path for likes in self._captures.shared() for call in likes)

    def part(self, seen: Mapping[Place, Seen], step_ns: int) -> None:
        """Measure members of a group apart that are not alike in the step.

        :param seen: what each call launched in the step as recorded.
        """
        if self.interrupted:
            return
        tolerance = DEVICE if self.device.type == "cuda" else HOST
        compared = self._captures.part(seen, step_ns, tolerance, self._unlike)
        if not compared:
            detail = "the recorded step shows no kernels by module call"
            self.notes.append(Note(reason="likes not compared", detail=detail))
        if self._unlike:
            self._time_unlike()

    def profile(self, folder: Path) -> list[TraceRecord]:
        """Record the kernels of every timed module into ``isolated-*.json.gz`` of a folder."""
        traces: list[TraceRecord] = []
        wanted = [call for call in self._captures.to_measure() if self._timed(call)]
        if not wanted or self.interrupted:
            return traces
        try:
            for group in self._captures.in_memory(wanted, self.model, self.step):
                target = folder / f"isolated-{len(traces)}.json.gz"
                with kernel_session(self.device, target, traces):
                    for call in group:
                        self._profile_call(call)
                        call.release()
        except KeyboardInterrupt:
            self._interrupt()
        return traces

    # --- timing -------------------------------------------------------------------------------

    def _time_all(self, wanted: list[Call]) -> Iterator[int]:
        for group in self._captures.in_memory(wanted, self.model, self.step):
            seconds = self._budget_seconds * len(group) / len(wanted)
            keys = [(call, kind) for call in group for kind in self._kinds(call)]
            schedule = Schedule(seconds, keys)
            number = 0
            while number < TURNS or (number < MOST_TURNS and schedule.left()):
                due = [key for key in keys if number < TURNS or not self._settled(key)]
                if not due:
                    break
                with schedule.turn(number, due):
                    self._turn(number, due, schedule)
                if self.options.tour and self.options.compile is None:
                    known = {c for c in group if self._series.get((c, HOT), Series()).blocks}
                    self.tour.turn(number, known, self._cache_flush())
                self._assemble()
                yield number
                number += 1
            self.tour.close()  # of the first group alone: no other inputs are in memory with these

    def _settled(self, key: Measurement) -> bool:
        series = self._series[key]
        return series.skipped is not None or series.noise() <= self.options.noise_ratio

    def _turn(self, number: int, due: list[Measurement], schedule: Schedule) -> None:
        calls = list(dict.fromkeys(call for call, _ in due))
        for place, call in enumerate(calls):
            self.progress(f"turn {number + 1}, module {place + 1}/{len(calls)} {_shown(call)}")
            kinds = [kind for key, kind in due if key is call]
            if schedule.spent() and number:
                return
            try:
                if schedule.spent() and call.reason is None:
                    raise SkippedError(f"time budget of {self.options.budget_seconds:g} s spent")
                with self._isolated(call) as ready:
                    for kind in kinds:
                        self._time_kind((call, kind), ready, number, schedule)
            except SkippedError as error:
                for kind in kinds:
                    schedule.skip((call, kind))
                self._skip(call, str(error))

    def _kinds(self, call: Call) -> list[Kind]:
        """What is measured of a call: its forward, and its backward where the step ran one."""
        kinds: list[Kind] = [("forward", c) for c in self._conditions]
        if self._captures.measured_by(call).backward:
            kinds += [("backward", c) for c in self._conditions]
        return kinds

    def _time_kind(
        self, key: Measurement, ready: IsolatedCall, turn: int, schedule: Schedule
    ) -> None:
        call, kind = key
        series = self._series.setdefault(key, Series())
        seconds = schedule.share(key)
        if series.skipped is not None:
            return
        options = self.options
        sampling = Sampling(
            -(-options.min_samples // TURNS),
            options.min_seconds / TURNS,
            options.noise_ratio,
            seconds,
        )
        try:
            timed = ready.measure(kind, sampling, series)
        except SkippedError as error:
            series.skipped = str(error)
            return
        series.blocks.append(block_of(turn, timed, self._clock.read()))
        schedule.learn(key, series.median_ns() * self._captures.calls_of(call))
        if turn == 0 and kind == ("forward", "hot") and ready.restores:
            detail = "every sample is one call, as inputs or state are put back between calls"
            self.notes.append(Note(reason="restored between calls", detail=detail, path=call.path))

    def _time_unlike(self) -> None:
        """Time those that turned out to be no likes, and beside them the leader of each again.

        A profiler has run by now: how far it has slowed the leader down is said in the note.
        """
        late = {c: why for c, why in self._unlike.items() if self._captures.measured_by(c) is c}
        if self.step is None:
            for call, why in late.items():
                self._skip(call, call.reason or f"{why}, and its own inputs were not kept")
            self._note_unlike({})
            self._assemble(final=True)
            return
        leads = list(dict.fromkeys(self._captures.leader(call) for call in late))
        before = {
            (lead, kind): self._series.pop((lead, kind))
            for lead in leads
            for kind in self._kinds(lead)
        }
        everyone = max(1, len(self._captures.to_measure()))
        self._budget_seconds = self.options.budget_seconds * (len(leads) + len(late)) / everyone
        try:
            for _ in self._time_all([*leads, *late]):
                pass
        except KeyboardInterrupt:
            self._interrupt()
        after = {lead: self._series.get((lead, HOT), Series()).median_ns() for lead in leads}
        self._series |= before
        slower = {
            c: after[c] / max(1, before[c, HOT].median_ns()) - 1
            for c in leads
            if after[c] and before[c, HOT].blocks
        }
        self._note_unlike(slower)
        self._assemble(final=True)

    def _note_unlike(self, slower: Mapping[Call, float]) -> None:
        for call, why in self._unlike.items():
            owner, lead = self._captures.measured_by(call), self._captures.leader(call)
            how = "timed by itself" if owner is call else f"timed as {_shown(owner)}"
            if lead in slower:
                how += f" after the profile, when {_shown(lead)} took {slower[lead]:+.1%}"
            self.notes.append(Note(reason=UNLIKE, detail=f"{why}; {how}", path=call.path))

    def _skip(self, call: Call, reason: str) -> None:
        """Say why a call has no samples; what was measured in an earlier turn stays."""
        for kind in self._kinds(call):
            series = self._series.setdefault((call, kind), Series())
            if not series.blocks and series.skipped is None:
                series.skipped = reason

    def _isolated(self, call: Call) -> AbstractContextManager[IsolatedCall]:
        if self.options.compile is not None and call.compiled is None:
            call.compiled = compiled_alone(eager_form(call), self.options.compile)
        return isolated(call, self.device, self._cache_flush())

    @property
    def called(self) -> set[str]:
        """Paths of the modules that the captured step called."""
        return {call.path for call in self._captures.calls}

    def _cache_flush(self) -> CacheFlush:
        if self._flush is None:
            self._flush = CacheFlush(self.device)
            self.notes.append(Note(reason="cold cache", detail=self._flush.assumption))
        return self._flush

    def _interrupt(self) -> None:
        self.interrupted = True
        self.notes.append(Note(reason=INTERRUPTED, detail="stopped while modules were replayed"))

    def footprints(self, meter: CudaMeter | None) -> list[MemoryRecord]:
        """Memory of every call that can be replayed, alone; nothing is timed."""
        return footprints(
            self._captures, self.model, self.step, self.device, self._cache_flush(), meter=meter
        )

    def _timed(self, call: Call) -> list[Kind]:
        """What to profile; a graph's kernels are those of the hot call."""
        kinds = self._kinds(call)
        return [k for k in kinds if self._series[call, k].blocks and k[1] != "graph"]

    def _profile_call(self, call: Call) -> None:
        count = self.options.profiled_calls
        try:
            with self._isolated(call) as ready:
                for kind in self._timed(call):
                    replay_id = self._ids[call, kind]
                    profile_call(ready, self.device, kind, replay_id, count)
                    self.records[replay_id] = replace(self.records[replay_id], profiled_calls=count)
        except SkippedError as error:
            self.notes.append(Note(reason="no kernels", detail=str(error), path=call.path))

    # --- records ------------------------------------------------------------------------------

    def _assemble(self, *, final: bool = False) -> None:
        """One record a distinct call and kind; ids count from 0 in the order of records.

        What has no result in the end was interrupted.
        """
        keys = [(call, kind) for call in self._captures.calls for kind in self._kinds(call)]
        self._ids = {key: number for number, key in enumerate(keys)}
        if final:
            for call in self._captures.to_measure():
                self._skip(call, INTERRUPTED)
        self.records = [self._record(call, kind) for call, kind in keys]

    def _record(self, call: Call, kind: Kind) -> ReplayRecord:
        owner = self._captures.measured_by(call)
        series = self._series.get((owner, kind), Series())
        own = owner is call
        skipped = series.skipped
        if skipped is not None and skipped == owner.reason:
            skipped = call.reason or skipped  # both too large, each by its own size
        return ReplayRecord(
            replay_id=self._ids[call, kind],
            path=call.path,
            phase=kind[0],
            condition=kind[1],
            call_index=call.index,
            calls=call.calls,
            measured_id=self._ids[owner, kind],
            samples_ns=series.samples() if own else [],
            calls_per_sample=series.calls_per_sample if own else 0,
            skipped=skipped,
            blocks=series.records() if own else [],
            unlike=self._unlike.get(call),
        )


def _shown(call: Call) -> str:
    return call.path or type(call.module).__name__
