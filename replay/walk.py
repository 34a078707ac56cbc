"""Replay every module of a model alone, breadth first.

Order: live inputs first, all timing after that, all profiling last, since a profiler leaves a
slow-down behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cb_trace.accounts import MemoryRecord
from cb_trace.bundle import Condition, ModuleRecord, Note, ReplayRecord, TraceRecord
from cb_trace.replay.accounting import Frame
from cb_trace.replay.captures import Captures
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.footprint import footprint, records_alone
from cb_trace.replay.guard import preserved
from cb_trace.replay.hooks import Call
from cb_trace.replay.isolated import IsolatedCall, Kind, Measured, Sampling, SkippedError, isolated
from cb_trace.replay.kernels import kernel_session, profile_call
from cb_trace.replay.storages import CudaMeter
from cb_trace.replay.tree import modules_by_path

INTERRUPTED = "interrupted"


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
    compile: dict[str, Any] | None = None  # arguments of torch.compile; None: modules run eagerly


class Replayer:
    """Replays the modules of a model one by one on the inputs they had in the step.

    :meth:`capture`, :meth:`time`, :meth:`profile`, in this order, each once. ``records`` and
    ``notes`` are filled by then. In a loop that is not ours, ``with capturing():`` around one
    step takes the place of :meth:`capture`; with ``step`` None there is that one pass only.

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
        )
        self._measured: dict[tuple[Call, Kind], Measured] = {}
        self._ids: dict[tuple[Call, Kind], int] = {}
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
        wanted = self._captures.to_measure()
        clock = _Clock(self.options.budget_seconds, sum(len(self._kinds(c)) for c in wanted))
        try:
            if not self.interrupted:
                self._time_all(wanted, clock)
        except KeyboardInterrupt:
            self._interrupt()
        self._assemble()

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

    def _time_all(self, wanted: list[Call], clock: _Clock) -> None:
        done = 0
        for group in self._captures.in_memory(wanted, self.model, self.step):
            for call in group:
                done += 1
                self.progress(f"module {done}/{len(wanted)} {_shown(call)}")
                self._time_call(call, clock)

    def _time_call(self, call: Call, clock: _Clock) -> None:
        try:
            if clock.spent():
                raise SkippedError(f"time budget of {self.options.budget_seconds:g} s spent")
            with self._isolated(call) as ready:
                for kind in self._kinds(call):
                    self._time_kind(call, ready, kind, clock)
        except SkippedError as error:
            clock.skip(sum((call, kind) not in self._measured for kind in self._kinds(call)))
            self._skip(call, str(error))

    def _kinds(self, call: Call) -> list[Kind]:
        """What is measured of a call: its forward, and its backward where the step ran one.

        A backward cannot be captured on its own: it runs on the streams of its forward.
        """
        kinds: list[Kind] = [("forward", c) for c in self._conditions]
        if self._captures.measured_by(call).backward:
            kinds += [("backward", c) for c in self._conditions if c != "graph"]
        return kinds

    def _time_kind(self, call: Call, ready: IsolatedCall, kind: Kind, clock: _Clock) -> None:
        options = self.options
        sampling = Sampling(
            options.min_samples, options.min_seconds, options.noise_ratio, clock.share()
        )
        self._measured[call, kind] = ready.measure(kind, sampling)
        if kind == ("forward", "hot") and ready.restores:
            detail = "every sample is one call, as inputs or state are put back between calls"
            self.notes.append(Note(reason="restored between calls", detail=detail, path=call.path))

    def _skip(self, call: Call, reason: str) -> None:
        for kind in self._kinds(call):
            self._measured.setdefault((call, kind), Measured(skipped=reason))

    def _isolated(self, call: Call) -> AbstractContextManager[IsolatedCall]:
        return isolated(call, self.device, self._cache_flush(), self.options.compile)

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

    # --- kernels ------------------------------------------------------------------------------

    def footprints(self, meter: CudaMeter | None) -> list[MemoryRecord]:
        """Memory of every call that can be replayed, alone; nothing is timed."""
        found: dict[Call, Frame] = {}
        wanted = [call for call in self._captures.to_measure() if call.reason is None]
        for group in self._captures.in_memory(wanted, self.model, self.step):
            for call in group:
                with (
                    suppress(SkippedError),
                    isolated(call, self.device, self._cache_flush()) as ready,
                ):
                    frame = footprint(call, ready, self.device, meter)
                    if frame is not None:
                        found[call] = frame
        return records_alone(self._captures.calls, self._captures.measured_by, found)

    def _timed(self, call: Call) -> list[Kind]:
        """What to profile; a graph's kernels are those of the hot call."""
        kinds = self._kinds(call)
        return [k for k in kinds if self._measured[call, k].samples_ns and k[1] != "graph"]

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

    def _assemble(self) -> None:
        """One record a distinct call and kind; ids count from 0 in the order of records."""
        keys = [(call, kind) for call in self._captures.calls for kind in self._kinds(call)]
        self._ids = {key: number for number, key in enumerate(keys)}
        for call in self._captures.to_measure():
            self._skip(call, INTERRUPTED)  # what has no result by now
        self.records = [self._record(call, kind) for call, kind in keys]

    def _record(self, call: Call, kind: Kind) -> ReplayRecord:
        owner = self._captures.measured_by(call)
        measured = self._measured[owner, kind]
        own = owner is call
        return ReplayRecord(
            replay_id=self._ids[call, kind],
            path=call.path,
            phase=kind[0],
            condition=kind[1],
            call_index=call.index,
            calls=call.calls,
            measured_id=self._ids[owner, kind],
            samples_ns=list(measured.samples_ns) if own else [],
            calls_per_sample=measured.calls_per_sample if own else 0,
            skipped=measured.skipped,
        )


class _Clock:
    """Spreads what is left of the time evenly over the measurements that are left.

    A call slower than its share still gets a few samples; only at twice the time is it over.
    """

    def __init__(self, seconds: float, measurements: int) -> None:
        self._seconds, self._begin = seconds, time.monotonic()
        self._left = measurements

    def share(self) -> float:
        """Seconds for the next measurement."""
        seconds = max(0.0, self._seconds - self._elapsed()) / max(1, self._left)
        self._left -= 1
        return seconds

    def skip(self, measurements: int) -> None:
        """Leave the time of these to the others."""
        self._left -= measurements

    def spent(self) -> bool:
        return self._elapsed() >= 2 * self._seconds

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin


def _shown(call: Call) -> str:
    return call.path or type(call.module).__name__
