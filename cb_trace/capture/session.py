"""Recording of a user's own loop: ``with record(model, "run") as r: … r.step()``."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.profiler import record_function

from cb_trace.bundle import (
    Manifest,
    Note,
    SampleKind,
    StepSamples,
    TraceRecord,
    file_sha256,
    write_bundle,
)
from cb_trace.capture.counting import Counting
from cb_trace.capture.environment import environment, run_record
from cb_trace.capture.given import Given, as_written
from cb_trace.capture.intact import intact
from cb_trace.capture.modes import Deployed, mode_of
from cb_trace.capture.options import RecordOptions, device_of
from cb_trace.capture.output import bundle_at, check_target
from cb_trace.capture.phases import PhaseWatch
from cb_trace.capture.profiled import profiled
from cb_trace.capture.record import CONTEXT_TRACE, INTERRUPTED, replay_options
from cb_trace.capture.step import dtype_name
from cb_trace.capture.tree import ModuleTree, module_tree
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload
from cb_trace.range_names import STEP_PREFIX
from cb_trace.replay.cost import StepAccount
from cb_trace.replay.likes import calls_seen
from cb_trace.replay.timing import synchronize
from cb_trace.replay.walk import Replayer


def record(
    model: nn.Module,
    name: str,
    path: Path | str | None = None,
    *,
    options: RecordOptions | None = None,
    bare_steps: int = 10,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Session:
    """Record a loop of your own; call ``step()`` on the result at the end of every step.

    The first steps warm up, ``bare_steps`` are timed bare, one has its module inputs kept, the
    next ones are profiled; further steps run untouched. Modules are timed alone between the step
    of the inputs and the first profiled one, before any profiler, and their kernels recorded when
    the block ends; then the bundle is written to ``path`` (default ``NAME.zip``).

    A step is everything from one ``step()`` to the next, the device synchronised at its end; its
    phases are those that the loop has. In mode ``compile`` the model runs compiled for as long as
    the block lasts, in an empty compiler; a model that came compiled does so in any case.

    :raises CbTraceError: ``path`` exists and not ``force``; or the loop ended too early; or the
        mode is one of a CUDA graph, which a loop cannot be captured into.
    """
    target = Path(path) if path is not None else Path(f"{name}.zip")
    check_target(target, force=force)
    options = replace(options or RecordOptions(), device=str(_device(model)))
    if options.graphed:
        raise CbTraceError(
            f"a loop of your own cannot be recorded in mode {options.mode}",
            hint="give cb_trace.profile one step of it, as step=…",
        )
    return Session(
        Workload(name, model), target, options, bare_steps, force=force, progress=progress
    )


class Session:
    """A loop under recording; ``path`` is its bundle, ``manifest`` what is in it once written."""

    def __init__(
        self,
        workload: Workload,
        path: Path,
        options: RecordOptions,
        bare_steps: int,
        *,
        force: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.path, self.options, self.bare_steps = path, options, bare_steps
        self.manifest: Manifest | None = None
        self.steps = 0
        self._workload, self._force = workload, force
        self._progress = progress or _silent
        self._device = device_of(options.device)
        self._samples: list[StepSamples] = []
        self._traces: list[TraceRecord] = []
        self._notes: list[Note] = []
        self._complete = False
        self._counting = Counting(self._device)
        self._model = workload.model

    @property
    def steps_needed(self) -> int:
        """How many steps the loop must have; three are for inputs, counting and the profiler."""
        return self.options.warmup + self.bare_steps + 3 + self.options.steps

    def __enter__(self) -> Session:
        with ExitStack() as stack:
            self._folder = stack.enter_context(bundle_at(self.path, force=self._force))
            given = stack.enter_context(as_written(self._workload.model))
            self._model, self.options = given.model, given.options(self.options)
            self._notes += given.notes()
            self._how = stack.enter_context(_mode_of(given, self.options))
            self._plan = self._planned()
            stack.callback(self._plan.close)
            next(self._plan)
            self._stack = stack.pop_all()
        return self

    def step(self) -> None:
        """Mark the end of a step."""
        self.steps += 1
        if self._how.compilations:
            self._how.compilations.step_ended()
        next(self._plan, None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._plan.close()
        if error is not None and not (self._complete and isinstance(error, KeyboardInterrupt)):
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            if not self._complete:
                raise CbTraceError(
                    f"the loop ended after {self.steps} steps; recording needs {self.steps_needed}",
                    hint="run more steps, or lower bare_steps",
                )
            self._finish()

    def _planned(self) -> Generator[None, None, None]:
        """What happens around the user's steps; every ``yield`` is one of them."""
        with self._how.watching():
            for _ in range(self.options.warmup):
                yield
            self._tree = module_tree(self._model)
            yield from self._timed("bare", ["bare"] * self.bare_steps)
        with self._how.off():
            yield from self._looked_into()
            if self.options.replay:
                self._undisturbed(self._replayer.time)
        target = self._folder / CONTEXT_TRACE
        ranges = self._how.ranged(self.options.wrap)
        self._watch = PhaseWatch(ranges, self._tree.named_parameters())
        names = [f"{STEP_PREFIX}{number}" for number in range(self.options.steps)]
        with self._how.watching(), profiled(self._device, target) as start, self._watch:
            yield
            synchronize(self._device)
            start()
            yield from self._timed("profiled", names)
        record = TraceRecord(file=target.name, role="context", sha256=file_sha256(target))
        self._traces.append(record)
        seen = self._watch.called if self._how.sees_modules else self._replayer.called
        self._notes += self._watch.unseen(self._tree, seen)
        self._complete = True

    def _looked_into(self) -> Generator[None, None, None]:
        """One step whose module inputs are kept, and one whose work is counted; uncompiled."""
        model, records = self._model, self._tree.records
        self._replayer = Replayer(
            model, None, records, self._device, replay_options(self.options), self._progress
        )
        with self._replayer.capturing(), _autocast_of(model, self._device) as dtypes:
            yield
        account = StepAccount(model, records, self._device)
        with account.counting():
            yield
        self._counting.take_over(account)
        self._dtype = dtype_name(model, dtypes[0] if dtypes else "fp32")

    def _timed(self, kind: SampleKind, names: list[str]) -> Generator[None, None, None]:
        """One step of the user's a name, its wall time kept."""
        samples: list[int] = []
        synchronize(self._device)
        for name in names:
            begin = time.perf_counter_ns()
            with record_function(name):
                yield
            synchronize(self._device)
            samples.append(time.perf_counter_ns() - begin)
        self._samples.append(StepSamples(kind=kind, deployment="eager", ns=samples))

    def _finish(self) -> None:
        if self.options.replay:
            with self._how.off():
                self._undisturbed(self._profile_alone)
        graphs = self._how.graphs()
        where, phases = environment(self._device), self._watch.phases(graphs)
        run = run_record(self._workload, self.options, where, None, phases)
        self.manifest = Manifest(
            run=replace(run, dtype=self._dtype),
            modules=self._tree.records,
            traces=self._traces,
            step_samples=self._samples,
            replays=self._replayer.records,
            notes=[
                *(*self._notes, *self._how.notes()),
                *(*self._replayer.notes, *self._counting.notes()),
            ],
            parameters=self._tree.parameters,
            costs=self._counting.costs,
            memories=self._counting.memories,
            graphs=graphs,
            host_tours=self._replayer.tour.records(),
        )
        write_bundle(self._folder, self.manifest)

    def _profile_alone(self) -> None:
        """Whether modules that share a measurement are alike in the loop; the kernels of each."""
        self._replayer.part(*calls_seen(self._folder / CONTEXT_TRACE, self._replayer.groups()))
        self._traces.extend(self._replayer.profile(self._folder))

    def _undisturbed(self, part: Callable[[], None]) -> None:
        """Replay something; the loop must not notice, and Ctrl-C only ends the replay."""
        try:
            with intact(self._model, self._device):
                part()
        except KeyboardInterrupt:
            self._notes.append(Note(reason=INTERRUPTED, detail="stopped by Ctrl-C"))


@contextmanager
def _mode_of(given: Given, options: RecordOptions) -> Iterator[Deployed]:
    """The model as the mode has it; a compiler asks for the tree before the first step."""
    lazy = any(is_lazy(parameter) for parameter in given.model.parameters())
    if options.compiled and lazy:
        raise CbTraceError("a lazy model has no shapes yet", hint="run one step before recording")
    tree = ModuleTree([], {}, []) if lazy else module_tree(given.model)
    with mode_of(given, _nothing, tree, options) as how:
        yield how


def _nothing() -> None:
    """The steps are the user's."""


@contextmanager
def _autocast_of(model: nn.Module, device: torch.device) -> Iterator[list[str]]:
    """The autocast dtypes that the model's calls run under, by short name."""
    found: list[str] = []
    names = {torch.bfloat16: "bf16", torch.float16: "fp16"}

    def look(*_: Any) -> None:
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
            found.append(names.get(dtype, str(dtype)))

    handle = nn.Module.register_forward_pre_hook(model, look)  # a scripted one refuses the name
    try:
        yield found
    finally:
        handle.remove()


def _device(model: nn.Module) -> torch.device:
    tensors = (*model.parameters(), *model.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def _silent(_: str) -> None:
    return None
