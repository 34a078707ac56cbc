"""The conductor of a recording: what is measured, in which order, into one bundle folder.

Order is part of the method (design section 5, Truth): live inputs, then everything that is timed
bare, in turns (the step, the modules alone, the step without a module, and over again), so that a
slow drift of the machine meets all alike; then everything that is profiled, since a profiler leaves
a slow-down behind; a last bare block shows how much and is never mixed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch.nn.parameter import is_lazy

from cb_trace.bundle import (
    ONE_STREAM,
    Deployment,
    Manifest,
    Note,
    Phase,
    Role,
    StepSamples,
    TraceRecord,
    file_sha256,
    write_bundle,
)
from cb_trace.capture.anew import Anew
from cb_trace.capture.bare import BareSteps, unsteady
from cb_trace.capture.changed import ChangedSteps
from cb_trace.capture.counting import Counting
from cb_trace.capture.environment import Environment, environment, run_record
from cb_trace.capture.given import Given, as_written
from cb_trace.capture.graph_runs import profile_graph
from cb_trace.capture.intact import intact
from cb_trace.capture.modes import Deployed, deployed, same_kernels
from cb_trace.capture.one_stream import capture_on_one_stream
from cb_trace.capture.options import RecordOptions, device_of
from cb_trace.capture.phases import PhaseWatch
from cb_trace.capture.profiled import profile_steps
from cb_trace.capture.sequence import record_sequence
from cb_trace.capture.spans import SpannedSteps
from cb_trace.capture.step import (
    Step,
    check_mode,
    grad_note,
    raising,
    step_of,
    trains_by_us,
    uses_grad,
    warm_up,
)
from cb_trace.capture.training import TrainingStep
from cb_trace.capture.tree import ModuleTree, module_tree
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload
from cb_trace.replay.clock import clock_of
from cb_trace.replay.graph import GraphCapture, capture_step
from cb_trace.replay.likes import calls_seen
from cb_trace.replay.schedule import TURNS
from cb_trace.replay.walk import Replayer, ReplayOptions

CONTEXT_TRACE = "context.json.gz"
CAPTURE_TRACE = "capture.json.gz"
INTERRUPTED = "interrupted"

Progress = Callable[[str], None]


def record(
    workload: Workload,
    folder: Path,
    options: RecordOptions | None = None,
    *,
    provider: str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Record a workload into an existing folder, which is a complete bundle afterwards.

    The model, the random generators and gradients are as before, bit for bit. Ctrl-C while
    modules are replayed keeps what was measured; before that nothing is written.

    ``provider`` is the name that :func:`cb_trace.providers.load` builds the workload from again.

    :raises CbTraceError: the device is missing or has no such mode, or the workload's step raises.
    """
    folder = folder.absolute()  # a step may leave this working folder
    with as_written(workload.model) as given:
        workload = replace(workload, model=given.model)
        options = given.options(options or RecordOptions())
        recording = _Recording(workload, given, folder, options, progress or _silent)
        if any(is_lazy(parameter) for parameter in given.model.parameters()):
            warm_up(recording.step, workload.name, 1, recording.device)  # gives it its shapes
        writes = workload.step is not None or recording.trains
        with intact(given.model, recording.device, values=writes) as watch:
            with raising(workload.name, recording.step):  # a step whose data ends, say
                recording.run()
            manifest = recording.manifest(provider, watch.notes())
    write_bundle(folder, manifest)
    return manifest


def replay_options(options: RecordOptions) -> ReplayOptions:
    """The part of the options that is about replay."""
    return ReplayOptions(
        dedup=options.dedup,
        budget_seconds=options.replay_seconds,
        max_capture_bytes=options.max_capture_bytes,
        profiled_calls=options.profiled_calls,
        wrap=options.wrap,
        tour=options.mode == "eager",
        compile=options.compile if options.compiled else None,
    )


class _Recording:
    """One recording as it goes; each method is one part of it, called once, in order."""

    def __init__(
        self,
        workload: Workload,
        given: Given,
        folder: Path,
        options: RecordOptions,
        progress: Progress,
    ) -> None:
        self.workload, self.given, self.folder = workload, given, folder
        self.options, self.progress = options, progress
        self.device = device_of(options.device)
        check_mode(options, self.device)
        self.trains = trains_by_us(workload, options)
        self.counting = Counting(self.device, options)
        self.step: Step = step_of(workload, options, self.device)
        self.bare = BareSteps(self.device, options, clock_of(self.device), progress)
        self.samples: list[StepSamples] = []
        self.traces: list[TraceRecord] = []
        self.several = False  # whether the step uses several streams
        self.notes: list[Note] = [grad_note(uses_grad(workload, options)), *workload.notes]
        self.notes += given.notes()
        self.deployment: Deployment = "graph" if options.graphed else "eager"

    def run(self) -> None:
        torch.manual_seed(self.options.seed)
        self.progress("warm-up")
        if self.trains and not self.workload.model.training:
            self.workload.model.train()
        warm_up(self.step, self.workload.name, self.options.warmup, self.device)
        self.counting.warmed_up()
        self.tree: ModuleTree = module_tree(self.workload.model)
        phase: Phase = "step" if self.trains else "forward"
        self.changed = ChangedSteps(
            self.workload.model, self.tree, self.options, self.device, phase, self.progress
        )
        self.replayer = self._replayer()
        if self.replayer:
            self.progress("live inputs")
            self.replayer.capture()
        name = self.workload.name
        with deployed(self.given, name, self.step, self.tree, self.options) as how:
            self._measure(how)
            self.notes += how.notes()
            self.graphs = how.graphs()
        if self.options.compare_plain:
            self._interruptible(self._compare_with_plain)

    def manifest(self, provider: str | None, changes: list[Note]) -> Manifest:
        replays = self.replayer.records if self.replayer else []
        notes = self.replayer.notes if self.replayer else []
        own = self.step.notes if isinstance(self.step, TrainingStep) else []
        run = run_record(
            self.workload, self.options, self.environment, provider, self.watch.phases(self.graphs)
        )
        return Manifest(
            run=run,
            modules=self.tree.records,
            traces=self.traces,
            step_samples=self.samples,
            replays=replays,
            notes=[
                *self.notes,
                *own,
                *notes,
                *changes,
                *self.changed.notes,
                *self.counting.notes(),
                *self.spans.notes,
            ],
            parameters=self.tree.parameters,
            costs=self.counting.costs,
            memories=self.counting.memories,
            ceilings=self.counting.ceilings,
            graphs=self.graphs,
            knockouts=self.changed.knockouts,
            speedups=self.changed.speedups,
            host_spans=self.spans.records,
            host_window=self.spans.window,
            host_tours=self.replayer.tour.records() if self.replayer else [],
        )

    def _measure(self, how: Deployed) -> None:
        """What is measured while the model runs as the mode has it."""
        self.captured = captured = self._graph(how.step)
        run = captured.replay if self.options.graphed else how.step
        self.bare.add(self.deployment, run)
        if captured.graph is not None and not self.options.graphed:
            again = partial(capture_step, how.step, self.device, again=True)
            self.bare.add("graph", captured.replay, again=self._anew(captured, again))
        self._on_one_stream(how.step, captured)
        self.environment: Environment = environment(self.device, run)
        self.spans = SpannedSteps(self.workload.model, how, self.options, self.device)
        self._time_in_turns(how)
        with how.off():
            self._interruptible(self._count)
        self._profile(how, run)
        if self.replayer:
            with how.off():
                self._interruptible(self._part_likes)
        self._interruptible(lambda: self._sequence(how.step))
        if self.replayer:
            with how.off():
                self._interruptible(self._profile_replays)
        if self.replayer and self.replayer.interrupted:
            self.notes.append(Note(reason=INTERRUPTED, detail="replay was stopped by Ctrl-C"))
            return
        self._interruptible(lambda: self.samples.append(self.bare.once_more(self.deployment, run)))
        self.notes += unsteady(self.samples)

    def _time_in_turns(self, how: Deployed) -> None:
        """All that is timed bare: a block of steps, a turn of the modules alone, some knock-outs,
        over and over.
        """
        alone = self.replayer.turns() if self.replayer else iter(range(TURNS))
        turn, more = 0, True
        while more:
            if turn < TURNS:
                self._bare_block(turn)
            with how.off():
                more = next(alone, None) is not None
            if more and turn < TURNS:
                replays = self.replayer.records if self.replayer else []
                self._interruptible(partial(self.changed.part, how, turn, replays))
            turn += 1
        self._bare_block(turn)
        self.samples += self.bare.samples()

    def _bare_block(self, turn: int) -> None:
        """Bare steps, and beside them the same with clocks around the modules."""
        self.bare.block(turn)
        self.spans.block()

    def _part_likes(self) -> None:
        """Measure apart what shared a measurement and does other work in the step."""
        assert self.replayer is not None
        self.progress("likes compared")
        seen, _ = calls_seen(self.folder / CONTEXT_TRACE, self.replayer.groups())
        self.replayer.part(seen, self.bare.shortest_ns())

    def _replayer(self) -> Replayer | None:
        if not self.options.replay:
            return None
        return Replayer(
            self.workload.model,
            self.step,
            self.tree.records,
            self.device,
            replay_options(self.options),
            self.progress,
        )

    def _graph(self, step: Step) -> GraphCapture:
        """The step as a CUDA graph, where there can be one.

        :raises CbTraceError: the mode is made of it, and it cannot be had.
        """
        wanted = self.options.graph or self.options.graphed
        if self.device.type != "cuda" or not wanted:
            return GraphCapture(reason="not asked for")
        captured = capture_step(step, self.device)
        if captured.reason is None:
            return captured
        if self.options.graphed:
            raise CbTraceError(
                f"the step of {self.workload.name} {captured.reason}", hint="use --mode eager"
            )
        self.notes.append(Note(reason="no graph deployment", detail=captured.reason))
        if self.trains:  # gradients of the broken capture lie in memory that is gone
            self.workload.model.zero_grad(set_to_none=True)
        return captured

    def _anew(self, first: GraphCapture, again: Callable[[], GraphCapture]) -> Anew | None:
        """None where it trains: a capture holds the gradients of the step in its own memory."""
        trains = self.trains or self.workload.step is not None
        return None if trains else Anew(first, again, self.device)

    def _on_one_stream(self, step: Step, captured: GraphCapture) -> None:
        """Time it as a graph on one stream as well, where it uses several."""
        if captured.graph is None or self.options.compiled:
            return
        found = capture_on_one_stream(step, self.device, captured.graph.pool())
        self.several = found.capture is not None or bool(found.notes)
        if found.capture is not None:
            again = self._anew(found.capture, found.again)
            self.bare.add("graph", found.capture.replay, ONE_STREAM, again)
        elif found.notes and self.trains:  # as above
            self.workload.model.zero_grad(set_to_none=True)
        self.notes += found.notes

    def _profile(self, how: Deployed, run: Step) -> None:
        self.progress("profiled steps")
        self.watch = PhaseWatch(
            how.ranged(self.options.wrap),
            self.tree.named_parameters() if self.trains or self.workload.step else {},
            trains=self.trains,
        )
        count = self.options.steps
        if not self.options.graphed:
            with self.watch:
                self._profiled(CONTEXT_TRACE, "context", run, count)
        else:
            self._profiled(CONTEXT_TRACE, "context", run, count)
            with self.watch:
                self._profiled(CAPTURE_TRACE, "capture", how.step, 1)
        called = self.replayer.called if self.replayer else None
        seen = self.watch.called if how.sees_modules else called
        self.notes += self.watch.unseen(self.tree, seen)

    def _profiled(self, name: str, role: Role, step: Step, count: int) -> None:
        target = self.folder / name
        ns = profile_steps(step, self.device, steps=count, target=target)
        if role == "context":
            self.samples.append(StepSamples(kind="profiled", deployment=self.deployment, ns=ns))
        self.traces.append(TraceRecord(file=name, role=role, sha256=file_sha256(target)))

    def _sequence(self, step: Step) -> None:
        if self.device.type != "cuda" or not (self.options.graph or self.options.graphed):
            return
        self.progress("the step's kernels one by one")
        found = record_sequence(step, self.device, self.folder, self.options.steps)
        self.traces += found.traces
        self.samples += found.samples
        self.notes += found.notes
        if self.captured.graph is not None and not self.options.graphed:  # else it is the context
            runs = profile_graph(self.captured, self.device, self.folder, streams=self.several)
            self.traces.append(runs)
        if self.trains:  # gradients of the capture lie in its memory
            self.workload.model.zero_grad(set_to_none=True)

    def _count(self) -> None:
        self.progress("counting work and memory")
        self.counting.count(
            self.workload.model, self.tree.records, self.step, self.replayer, self.progress
        )

    def _profile_replays(self) -> None:
        assert self.replayer is not None
        self.traces += self.replayer.profile(self.folder)

    def _compare_with_plain(self) -> None:
        """Whether the step that was recorded is the one that runs when nobody looks."""
        self.progress("the same steps with nothing attached")
        seen = self.folder / (CAPTURE_TRACE if self.options.graphed else CONTEXT_TRACE)
        self.notes += same_kernels(self.given, self.step, self.tree, self.options, seen)

    def _interruptible(self, part: Callable[[], None]) -> None:
        """Run a part that a recording can do without."""
        try:
            part()
        except KeyboardInterrupt:
            self.notes.append(Note(reason=INTERRUPTED, detail="stopped by Ctrl-C"))


def _silent(_: str) -> None:
    return None
