"""Knock-out: what the bare step loses without a module, measured; and with a faster one.

The module's forward gives the output it had before (:mod:`cb_trace.replay.stand_in`), and the step
without it is timed against the step as it is, in turn, so that drift of clocks and host meets both
alike. Where no gradients are recorded the others are given the recorded output in both: it lies
elsewhere and has to be fetched from memory, which is no gain or loss of the module's.

With a faster module it is the same, but the module first works on a part of its batch
(:mod:`cb_trace.replay.on_part`). On CUDA both steps are also captured as CUDA graphs and timed so.
All of it is bare: it must come before the first profiler.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from cb_trace.bundle import Deployment, KnockoutRecord, Phase, ReplayRecord, SpeedupRecord
from cb_trace.errors import CbTraceError
from cb_trace.replay.couples import Couples, calls_per_window, young_garbage
from cb_trace.replay.graph import one_line
from cb_trace.replay.hooks import COLLECTIVES
from cb_trace.replay.on_part import OnPart
from cb_trace.replay.pairs import Side, time_pairs
from cb_trace.replay.reference import Reference, Step
from cb_trace.replay.stand_in import StandIn, UnfitError
from cb_trace.replay.timing import settle, synchronize
from cb_trace.replay.ways import AsItIs, Way

WARMUP_STEPS = 2
SPENT = "time budget of "
_TOP = re.compile(r"top:([0-9]*)")  # without the colon it is a module's name
_TIMES = re.compile(r"([2-9]|[1-9][0-9]+)x")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockoutOptions:
    """Which modules are knocked out, and how long that may take."""

    top: int = 0  # the costliest by time alone × calls
    paths: tuple[str, ...] = ()  # these as well
    budget_seconds: float = 60.0  # for all pairs together; making ready comes on top
    min_pairs: int = 10


def parse_knockout(text: str) -> KnockoutOptions:
    """Read ``top:20``, or module paths, with commas between.

    :raises CbTraceError: there is nothing in it, or no number of modules.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise CbTraceError("--knockout names no module", hint="--knockout=top:20, or paths")
    counts = [found for part in parts if (found := _TOP.fullmatch(part))]
    if not all(int(found[1] or 0) for found in counts):
        raise CbTraceError(f"--knockout={text}: how many of the costliest?", hint="as in top:20")
    top = sum(int(found[1]) for found in counts)
    return KnockoutOptions(top=top, paths=tuple(p for p in parts if not _TOP.fullmatch(p)))


def parse_speedup(text: str) -> Job:
    """Read ``PATH=2x``: a module on half of its batch.

    :raises CbTraceError: it has another form.
    """
    path, equals, factor = text.rpartition("=")
    found = _TIMES.fullmatch(factor.strip())
    if not equals or not found:
        raise CbTraceError(
            f"--speedup wants PATH=2x, not {text!r}",
            hint="the module is run on half of its batch; 3x: a third, and so on",
        )
    return Job(path.strip(), int(found[1]))


def check_paths(options: KnockoutOptions, known: Mapping[str, nn.Module]) -> None:
    """:raises CbTraceError: a path that the model does not have."""
    for path in options.paths:
        if path not in known:
            raise CbTraceError(f"the model has no module {path!r} to take out or speed up")


def chosen_modules(
    options: KnockoutOptions, replays: Sequence[ReplayRecord], known: Mapping[str, nn.Module]
) -> list[str]:
    """Paths of the modules to knock out: the named ones, then the costliest alone.

    The root is the step itself and is never among the costliest.

    :raises CbTraceError: a path that the model does not have.
    """
    check_paths(options, known)
    alone: Counter[str] = Counter()
    medians = {r.replay_id: sorted(r.samples_ns)[len(r.samples_ns) // 2] for r in _hot(replays)}
    for record in replays:
        if record.path and record.measured_id in medians:
            alone[record.path] += medians[record.measured_id] * record.calls
    top = [path for path, _ in alone.most_common() if path not in options.paths]
    return [*dict.fromkeys(options.paths), *top[: options.top]]


def _hot(replays: Sequence[ReplayRecord]) -> list[ReplayRecord]:
    return [record for record in replays if record.condition == "hot" and record.samples_ns]


@dataclass(frozen=True, slots=True)
class Job:
    """What is done to a module: taken out, or run on one ``factor``-th of its batch."""

    path: str
    factor: int = 0  # 0: taken out

    def stand_in(self, module: nn.Module) -> StandIn:
        """What takes the module's place."""
        return OnPart(module, self.factor) if self.factor else StandIn(module)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job in one deployment: the pairs, or the reason why there are none."""

    job: Job
    deployment: Deployment
    base_ns: list[int] = field(default_factory=list)
    changed_ns: list[int] = field(default_factory=list)
    dropped: int = 0
    couples: list[int] = field(default_factory=list)  # pairs of each couple of captures, in order
    skipped: str | None = None


class Knockout:
    """Changes modules of a step one by one; ``outcomes`` has a row a job and deployment.

    The modules are as before afterwards. The step itself may change what a step changes.

    :param way: how the step is run; None: as it is.
    :param held: captures of the step from earlier visits; those of this one are added, if they are
        small. While they live, new ones lie elsewhere in memory (:mod:`cb_trace.replay.couples`).
    """

    def __init__(  # noqa: PLR0917 - the parts of one measurement, named at every call
        self,
        modules: Mapping[str, nn.Module],
        step: Step,
        device: torch.device,
        options: KnockoutOptions,
        progress: Callable[[str], None],
        way: Way | None = None,
        held: list[Couples] | None = None,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._held = held if held is not None else []
        self._modules, self._step, self._device = modules, step, device
        self._options, self._progress = options, progress
        self._way: Way = way or AsItIs(step)

    def run(self, jobs: Sequence[Job], *, graph: bool, known: Mapping[str, str]) -> None:
        """Measure the jobs, each deployment with an equal part of the time.

        :param graph: measure the step as a CUDA graph as well, if it can be captured.
        :param known: why modules cannot be taken out, where that is known already.
        """
        with self._way.plainly():
            self._reference = Reference(self._step, self._device)
        with young_garbage():
            self._graphs = self._captured(len(jobs)) if graph else None
            self._begin = time.monotonic()
            self._all(jobs, known)

    def _all(self, jobs: Sequence[Job], known: Mapping[str, str]) -> None:
        for number, job in enumerate(jobs):
            what = f"on 1/{job.factor} of its batch" if job.factor else "knocked out"
            self._progress(f"{number + 1}/{len(jobs)} {job.path or 'the root'} {what}")
            try:
                if job.path in known:
                    raise UnfitError(known[job.path])
                self._one(job, self._share(len(jobs) - number))
            except (UnfitError, torch.OutOfMemoryError) as error:
                reason = str(error) if isinstance(error, UnfitError) else "out of memory"
                for deployment in self._deployments():
                    self.outcomes.append(Outcome(job, deployment, skipped=reason))

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        """Time that the budget does not count: it is of measuring, not of making ready."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._begin += time.monotonic() - begin

    def _captured(self, jobs: int) -> Couples | None:
        """Captures of the step as it is, as many as pairs can be had of each job; None: none."""
        seconds = self._options.budget_seconds / jobs / 2 if jobs else 0.0
        captures = Couples(self._way.whole(None), self._device, self._options.min_pairs, seconds)
        if captures.reason is not None:
            return None
        if captures.small:  # or a step that fills the memory would find none in a later visit
            self._held.append(captures)
        return captures

    def _deployments(self) -> list[Deployment]:
        return ["eager", "graph"] if self._graphs else ["eager"]

    def _share(self, jobs_left: int) -> float:
        """Seconds for one deployment of the next job."""
        left = self._options.budget_seconds - (time.monotonic() - self._begin)
        if left <= 0:
            raise UnfitError(f"{SPENT}{self._options.budget_seconds:g} s spent")
        return left / jobs_left / len(self._deployments())

    def _one(self, job: Job, seconds: float) -> None:
        stand_in = job.stand_in(self._modules[job.path])
        with self._untimed(), self._way.plainly():
            self._record(stand_in)
            self._check(stand_in)
        try:
            with self._untimed():
                changed = self._way.changed(stand_in, job.path)
                beside = self._way.beside(stand_in)
                whole = beside or self._way.whole(stand_in)  # which may compile it
            self._pairs(job, "eager", [(whole, changed)], seconds)
            if self._graphs is not None:
                self._graph(job, self._graphs, beside, changed, seconds)
        finally:
            stand_in.remove()

    def _record(self, stand_in: StandIn) -> None:
        try:
            self._reference.seed()
            stand_in.record(self._step)
            synchronize(self._device)
        except UnfitError:
            raise
        except Exception as error:
            raise UnfitError(f"cannot be recorded: {one_line(error)}") from error

    def _check(self, stand_in: StandIn) -> None:
        """Run the step without the module: it must do the same with the rest."""
        same = True
        try:
            with stand_in.installed():
                for number in range(WARMUP_STEPS):
                    self._reference.seed()
                    output = self._step()
                    if number == 0:
                        same = self._reference.same_values(output) or stand_in.draws
                    del output
                synchronize(self._device)
        except UnfitError:
            raise
        except Exception as error:
            raise UnfitError(f"the step fails without it: {one_line(error)}") from error
        if not same:
            self._reference.blame()
        if not stand_in.at_start():
            raise UnfitError("the step calls it another number of times without it")
        if stand_in.written():
            raise UnfitError("a later operator writes into its output")

    def _graph(
        self, job: Job, captures: Couples, beside: Side | None, changed: Side, seconds: float
    ) -> None:
        with self._untimed():
            couples = captures.changed(changed, beside)
            if isinstance(couples, str):
                self.outcomes.append(Outcome(job, "graph", skipped=couples))
                return
            for side in couples[0]:
                settle(side.run, self._device)
        self._pairs(job, "graph", couples, seconds)

    def _pairs(
        self,
        job: Job,
        deployment: Deployment,
        couples: Sequence[tuple[Side, Side]],
        seconds: float,
    ) -> None:
        least = self._options.min_pairs
        # As the bare steps are timed: eager steps back to back hide the start of each in the one
        # before it, and would be the steps of another loop.
        graphs = deployment == "graph"
        one = couples[0][0].run
        calls = calls_per_window(one, self._device, len(couples), seconds) if graphs else 1
        found = time_pairs(
            couples,
            self._device,
            min_pairs=least,
            max_seconds=seconds,
            calls=calls,
            queued=graphs,
        )
        self.outcomes.append(
            Outcome(
                job,
                deployment,
                found.first_ns,
                found.second_ns,
                found.dropped,
                found.couples if deployment == "graph" else [],
            )
        )


def knock_out(  # noqa: PLR0917 - the parts of one measurement, named at every call
    modules: Mapping[str, nn.Module],
    step: Step,
    device: torch.device,
    phase: Phase,
    options: KnockoutOptions,
    replays: Sequence[ReplayRecord],
    *,
    graph: bool,
    progress: Callable[[str], None],
    way: Way | None = None,
    held: list[Couples] | None = None,
) -> list[KnockoutRecord]:
    """Knock out the modules that the options choose; Ctrl-C keeps what was measured.

    :param graph: measure the step as a CUDA graph as well, if it can be captured.
    :param held: see :class:`Knockout`.
    :raises CbTraceError: a path that the model does not have.
    """
    jobs = [Job(path) for path in chosen_modules(options, replays, modules)]
    known = {r.path: COLLECTIVES for r in replays if r.skipped == COLLECTIVES}
    knockout = Knockout(modules, step, device, options, progress, way, held)
    _run(knockout, jobs, graph=graph and device.type == "cuda", known=known, progress=progress)
    return [
        KnockoutRecord(
            path=o.job.path,
            phase=phase,
            deployment=o.deployment,
            base_ns=o.base_ns,
            knocked_ns=o.changed_ns,
            dropped=o.dropped,
            visits=[len(o.base_ns)] if o.base_ns else [],
            captures=o.couples,
            skipped=o.skipped,
        )
        for o in knockout.outcomes
    ]


def speed_up(
    modules: Mapping[str, nn.Module],
    step: Step,
    device: torch.device,
    speedups: Sequence[Job],
    options: KnockoutOptions,
    *,
    graph: bool,
    progress: Callable[[str], None],
    way: Way | None = None,
) -> list[SpeedupRecord]:
    """Run modules on a part of their batch; otherwise as :func:`knock_out`."""
    measured = Knockout(modules, step, device, options, progress, way)
    _run(measured, speedups, graph=graph and device.type == "cuda", known={}, progress=progress)
    return [
        SpeedupRecord(
            path=o.job.path,
            factor=o.job.factor,
            deployment=o.deployment,
            base_ns=o.base_ns,
            faster_ns=o.changed_ns,
            dropped=o.dropped,
            captures=o.couples,
            skipped=o.skipped,
        )
        for o in measured.outcomes
    ]


def _run(
    knockout: Knockout,
    jobs: Sequence[Job],
    *,
    graph: bool,
    known: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    try:
        knockout.run(jobs, graph=graph, known=known)
    except KeyboardInterrupt:
        progress("knock-out stopped")
