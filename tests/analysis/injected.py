"""Small recordings to inject into: a step of a few kernels, its modules alone, its sequence.

Written as the bundle of a recording (manifest and Kineto files) and read by the real ingest. All
times are µs. Two steps that are alike are profiled, and the bare step is as long as a profiled one,
so that nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import cb_trace
from cb_trace.bundle import (
    CompiledGraph,
    Deployment,
    Manifest,
    ReplayRecord,
    Role,
    StepSamples,
    TraceRecord,
    file_sha256,
    write_bundle,
)
from cb_trace.range_names import range_name, replay_range
from tests.bundles import module_record, run_record
from tests.kineto import STREAM, Event, annotation, event, kernel, launch, op, write_trace

STEPS = 2
GRAPH_RUNS = 5
Changes = dict[tuple[str, str], int]  # path and term → ns


@dataclass(frozen=True)
class Work:
    """One kernel of the step: launched by an operator of a module, 9 µs ahead if not said."""

    path: str
    op: str
    name: str
    start: float
    dur: float
    stream: int = STREAM
    launched: float | None = None
    alone: float | None = None  # in the sequence; as in the step if not said
    graphed: float | None = None  # its start in the graph; as in the step if not said


@dataclass(frozen=True)
class Alone:
    """A module replayed alone: its wall time and its kernels (operator, name, duration)."""

    wall: float
    kernels: tuple[tuple[str, str, float], ...]
    at_once: bool = False  # each on a stream of its own, instead of one after another


@dataclass(frozen=True)
class Recording:
    """One recording; ``window`` is the length of its steps, bare and profiled."""

    work: tuple[Work, ...]
    alone: Mapping[str, Alone]
    window: float
    graph: CompiledGraph | None = None  # the step runs compiled
    sequence: bool = True
    bare: float | None = None  # of the bare step, where the profiler made it longer
    graphed: bool = False  # the step was captured, too, and the graph's replays profiled

    def but(self, **changes: object) -> Recording:
        """The same with some of it changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def read(self, folder: Path) -> Read:
        """Write it as a bundle, and read what a profile makes of it: of the graph, if captured."""
        self._write(folder / "bundle")
        way = "graph" if self.graphed else "eager"
        with cb_trace.ingest(folder / "bundle", folder / "x.duckdb") as profile:
            found = profile.sql(_TERMS.format(way))
            figures = profile.sql(_COSTS.format(way))
            idle = profile.sql(_PARTS.format(way))
        terms = {(path, kind): ns for path, kind, ns in found.iter_rows()}
        errors = {path: alone - cost for path, alone, cost in figures.iter_rows()}
        for path in {path for path, _ in terms}:  # the identity, to the nanosecond
            assert errors[path] == sum(ns or 0 for (of, _), ns in terms.items() if of == path)
        return Read(
            terms,
            {path: alone for path, alone, _ in figures.iter_rows()},
            {path: cost for path, _, cost in figures.iter_rows()},
            dict(idle.iter_rows()),
        )

    # --- the bundle -------------------------------------------------------------------------------

    def _write(self, folder: Path) -> None:
        folder.mkdir()
        files: list[tuple[Role, list[Event]]] = [
            ("context", [e for n in range(STEPS) for e in self._step(n)]),
            ("isolated", [e for n, path in enumerate(self.alone) for e in self._replay(n, path)]),
        ]
        if self.sequence:
            files.append(("sequence", [e for n in range(STEPS) for e in self._serial(n)]))
        if self.graphed:
            files.append(("graph", [e for n in range(GRAPH_RUNS) for e in self._replayed(n)]))
        traces = []
        for role, events in files:
            file = write_trace(folder / f"{role}.json.gz", events, baseTimeNanoseconds=0)
            traces.append(TraceRecord(file=file.name, role=role, sha256=file_sha256(file)))
        write_bundle(folder, self._manifest(traces))

    def _manifest(self, traces: list[TraceRecord]) -> Manifest:
        paths = dict.fromkeys(path for path in (*self.alone, *(w.path for w in self.work)) if path)
        children = [module_record(path, "Linear", "", n + 1) for n, path in enumerate(paths)]
        steps: dict[Deployment, float] = {"eager": self.bare or self.window}
        if self.graphed:
            steps["graph"] = self._graph_window
        return Manifest(
            run=run_record(mode="compile" if self.graph else "eager"),
            modules=[module_record("", "Net", None, 0), *(replace(c, depth=1) for c in children)],
            traces=traces,
            step_samples=[
                StepSamples(kind="bare", deployment=way, ns=[round(us * 1000)] * 5)
                for way, us in steps.items()
            ],
            replays=[
                ReplayRecord(
                    replay_id=n, path=path, phase="forward", condition="hot", call_index=0,
                    calls=1, measured_id=n, samples_ns=[round(alone.wall * 1000)] * 5,
                    calls_per_sample=10, profiled_calls=1,
                )
                for n, (path, alone) in enumerate(self.alone.items())
            ],
            graphs=[self.graph] if self.graph else [],
        )  # fmt: skip

    def _step(self, number: int) -> list[Event]:
        at, first = 1e4 * (number + 1), 100 * number + 1
        events = [
            annotation(f"ProfilerStep#{number}", at, self.window),
            annotation("cb:<root>", at, self.window - 1),
        ]
        if self.graph:
            events.append(annotation(f"## Call CompiledFxGraph {self.graph.key} ##", at, 9e3))
        for place, work in enumerate(self.work):
            launched = work.start - 9 if work.launched is None else work.launched
            if not self.graph:
                events.append(annotation(range_name(work.path), at + launched - 1, 4))
            events += [
                op(work.op, at + launched - 0.5, 3),
                launch(at + launched, 2, first + place),
                kernel(work.name, at + work.start, work.dur, first + place, stream=work.stream),
            ]
        return events

    @property
    def _graph_window(self) -> float:
        """From the start of the first kernel to the end of the last, and 4 µs to the next run."""
        starts = [work.start if work.graphed is None else work.graphed for work in self.work]
        ends = [at + work.dur for at, work in zip(starts, self.work, strict=True)]
        return max(ends) - min(starts) + 4

    def _replayed(self, number: int) -> list[Event]:
        """A replay of the graph, right after the one before and launched long before that."""
        launched, correlation = 9e3 + 10 * number, 800 + number
        at = 2e4 + self._graph_window * number
        events = [
            annotation(f"ProfilerStep#{number}", launched, 8),
            event("cuda_runtime", "cudaGraphLaunch", launched + 1, 5, correlation=correlation),
        ]
        for work in self.work:
            start = work.start if work.graphed is None else work.graphed
            stream = 20 if work.stream == STREAM else 21
            events.append(kernel(work.name, at + start, work.dur, correlation, stream=stream))
        return events

    def _replay(self, number: int, path: str) -> list[Event]:
        at, correlation = 1e4 * (number + 1), 1000 * (number + 1)
        events = [annotation(replay_range(number, 0), at, 5e3)]
        alone = self.alone[path]
        for place, (operator, name, dur) in enumerate(alone.kernels):
            correlation += 1
            at += 500 if place == 0 or not alone.at_once else 0.25
            events += [
                op(operator, at, 3), launch(at + 1, 1, correlation),
                kernel(name, at + 10, dur, correlation, stream=STREAM + place * alone.at_once),
            ]  # fmt: skip
        return events

    def _serial(self, number: int) -> list[Event]:
        at, correlation = 1e4 * (number + 1), 500 + number
        events = [
            annotation(f"ProfilerStep#{number}", at, 5e3),
            event("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=correlation),
        ]
        at += 10
        for work in self.work:
            dur = work.dur if work.alone is None else work.alone
            events.append(kernel(work.name, at, dur, correlation))
            at += dur + 1
        return events


@dataclass(frozen=True)
class Read:
    """What the profile says, ns."""

    terms: dict[tuple[str, str], int | None]
    alone: dict[str, int]
    cost: dict[str, int]
    partition: dict[str, int] = field(default_factory=dict)  # by kind, over all modules

    def moved_from(self, base: Read) -> Changes:
        """The terms that differ, and by how much."""
        assert self.terms.keys() == base.terms.keys()
        both = {key: (base.terms[key], ns) for key, ns in self.terms.items()}
        known = {key: (a, b) for key, (a, b) in both.items() if a is not None and b is not None}
        assert len(known) == len(both), "a term was not measured"
        return {key: now - then for key, (then, now) in known.items() if now != then}


def read_both(base: Recording, injected: Recording, folder: Path) -> tuple[Read, Read]:
    """Both recordings, read."""
    for name in ("base", "injected"):
        (folder / name).mkdir()
    return base.read(folder / "base"), injected.read(folder / "injected")


def moves(base: Recording, injected: Recording, folder: Path) -> Changes:
    """By how much each term moved from one recording to the other."""
    before, after = read_both(base, injected, folder)
    return after.moved_from(before)


_TERMS = """
    SELECT path, kind, term.ns FROM term JOIN module USING (module_id) WHERE deployment = '{}'
"""
_COSTS = """
    SELECT module.path, alone.wall_ns, cost.ns
    FROM module
    JOIN _cost AS cost USING (module_id)
    JOIN _isolated AS alone USING (module_id)
    WHERE alone.condition = 'hot' AND cost.deployment = '{}'
"""
_PARTS = "SELECT kind, sum(ns) AS ns FROM step_partition WHERE deployment = '{}' GROUP BY kind"
