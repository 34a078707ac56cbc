"""The conductor of a recording: what is measured, in which order, into one bundle folder.

Order is part of the method (design section 5, Truth): live inputs, then everything that is timed
bare, then everything that is profiled, since a profiler leaves a slow-down behind; a last bare
block shows how much and is never mixed in.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch
from torch.nn.parameter import is_lazy

from cb_trace.bundle import (
    Deployment,
    KnockoutRecord,
    Manifest,
    Note,
    RunRecord,
    SampleKind,
    StepSamples,
    TraceRecord,
    file_sha256,
    write_bundle,
)
from cb_trace.capture.counting import Counting
from cb_trace.capture.environment import Environment, environment
from cb_trace.capture.intact import intact
from cb_trace.capture.options import RecordOptions, device_of
from cb_trace.capture.profiled import profile_steps
from cb_trace.capture.step import Step, dtype_name, grad_note, step_of, uses_grad, warm_up
from cb_trace.capture.tree import ModuleTree, check_eager, module_tree
from cb_trace.providers.workload import Workload
from cb_trace.replay.graph import capture_graph
from cb_trace.replay.knockout import check_paths, knock_out
from cb_trace.replay.timing import time_block
from cb_trace.replay.walk import Replayer, ReplayOptions
from cb_trace.version import VERSION

CONTEXT_TRACE = "context.json.gz"
INTERRUPTED = "interrupted"
UNSTEADY_RATIO = 0.05

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

    :raises CbTraceError: the device is missing, or the workload's step raises.
    """
    check_eager(workload.model)
    recording = _Recording(workload, folder, options or RecordOptions(), progress or _silent)
    if any(is_lazy(parameter) for parameter in workload.model.parameters()):
        warm_up(recording.step, workload.name, 1, recording.device)  # gives it its shapes
    own_step = workload.step is not None
    with intact(workload.model, recording.device, values=own_step) as watch:
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
    )


class _Recording:
    """One recording as it goes; each method is one part of it, called once, in order."""

    def __init__(
        self, workload: Workload, folder: Path, options: RecordOptions, progress: Progress
    ) -> None:
        self.workload, self.folder, self.options, self.progress = (
            workload,
            folder,
            options,
            progress,
        )
        self.device = device_of(options.device)
        self.counting = Counting(self.device, options)
        self.step: Step = step_of(workload, options, self.device)
        self.samples: list[StepSamples] = []
        self.traces: list[TraceRecord] = []
        self.knockouts: list[KnockoutRecord] = []
        self.notes: list[Note] = [grad_note(uses_grad(workload, options))]

    def run(self) -> None:
        torch.manual_seed(self.options.seed)
        self.progress("warm-up")
        warm_up(self.step, self.workload.name, self.options.warmup, self.device)
        self.counting.warmed_up()
        self.tree: ModuleTree = module_tree(self.workload.model)
        if self.options.knockout is not None:
            check_paths(self.options.knockout, self.tree.modules)
        self.replayer = self._replayer()
        if self.replayer:
            self.progress("live inputs")
            self.replayer.capture()
        self._bare("bare")
        self._graph()
        self.environment: Environment = environment(self.device, self.step)
        if self.replayer:
            self._interruptible(self.replayer.time)
        if self.options.knockout is not None:
            self._interruptible(self._knock_out)
        self._interruptible(self._count)
        self._profile()
        if self.replayer:
            self._interruptible(self._profile_replays)
        if self.replayer and self.replayer.interrupted:
            self.notes.append(Note(reason=INTERRUPTED, detail="replay was stopped by Ctrl-C"))
            return
        self._interruptible(lambda: self._bare("bare_after"))
        self.notes += unsteady(self.samples)

    def manifest(self, provider: str | None, changes: list[Note]) -> Manifest:
        replays = self.replayer.records if self.replayer else []
        notes = self.replayer.notes if self.replayer else []
        return Manifest(
            run=run_record(self.workload, self.options, self.environment, provider),
            modules=self.tree.records,
            traces=self.traces,
            step_samples=self.samples,
            replays=replays,
            notes=[*self.notes, *notes, *changes, *self.counting.notes()],
            parameters=self.tree.parameters,
            costs=self.counting.costs,
            memories=self.counting.memories,
            ceilings=self.counting.ceilings,
            knockouts=self.knockouts,
        )

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

    def _bare(
        self, kind: SampleKind, deployment: Deployment = "eager", run: Step | None = None
    ) -> None:
        self.progress(f"{kind.replace('_', ' ')} steps, {deployment}")
        samples = time_block(
            run or self.step,
            self.device,
            min_samples=self.options.bare_samples,
            min_seconds=self.options.bare_seconds,
        )
        self.samples.append(StepSamples(kind=kind, deployment=deployment, ns=samples))

    def _graph(self) -> None:
        if self.device.type != "cuda" or not self.options.graph:
            return
        captured = capture_graph(self.step, self.device)
        if captured.reason is not None:
            self.notes.append(Note(reason="no graph deployment", detail=captured.reason))
            return
        self._bare("bare", "graph", captured.replay)

    def _knock_out(self) -> None:
        assert self.options.knockout is not None
        self.knockouts = knock_out(
            self.tree.modules,
            self.step,
            self.device,
            "forward",
            self.options.knockout,
            self.replayer.records if self.replayer else [],
            graph=self.options.graph,
            progress=self.progress,
        )

    def _profile(self) -> None:
        self.progress("profiled steps")
        target, steps = self.folder / CONTEXT_TRACE, self.options.steps
        samples = profile_steps(
            self.step, self.device, self.tree.modules, steps=steps, target=target
        )
        self.samples.append(StepSamples(kind="profiled", deployment="eager", ns=samples))
        self.traces.append(
            TraceRecord(file=target.name, role="context", sha256=file_sha256(target))
        )

    def _count(self) -> None:
        self.progress("counting work and memory")
        self.counting.count(
            self.workload.model, self.tree.records, self.step, self.replayer, self.progress
        )

    def _profile_replays(self) -> None:
        assert self.replayer is not None
        self.traces += self.replayer.profile(self.folder)

    def _interruptible(self, part: Callable[[], None]) -> None:
        """Run a part that a recording can do without."""
        try:
            part()
        except KeyboardInterrupt:
            self.notes.append(Note(reason=INTERRUPTED, detail="stopped by Ctrl-C"))


def unsteady(samples: Sequence[StepSamples]) -> list[Note]:
    """A note where the step ran at another speed after the profile than before it."""
    medians = {s.kind: median(s.ns) for s in samples if s.deployment == "eager"}
    before, after = medians.get("bare"), medians.get("bare_after")
    if before is None or after is None or abs(after - before) <= UNSTEADY_RATIO * before:
        return []
    detail = f"bare step {before / 1e3:.0f} µs before the profile, {after / 1e3:.0f} µs after it"
    return [Note(reason="unsteady step", detail=detail)]


def run_record(
    workload: Workload, options: RecordOptions, where: Environment, provider: str | None
) -> RunRecord:
    """The run's record: how and where it was made."""
    return RunRecord(
        run_id=secrets.token_hex(8),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        workload=workload.name,
        provider=provider,
        settings=dict(workload.settings),
        mode="eager",
        phases=["forward"],
        dtype=dtype_name(workload.model, options.dtype),
        seed=options.seed,
        tool_version=VERSION,
        **asdict(where),
    )


def _silent(_: str) -> None:
    return None
