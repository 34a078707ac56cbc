"""The conductor: bundle or trace → trace → attribution → analysis → store, in that order.

The stages are siblings that know only the frames of ``columns``; the conductor alone passes them
on: here our own recordings, in :mod:`foreign_runs` the traces of others, in :mod:`ingest_run` what
both need.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace import engine, store
from cb_trace.errors import CbTraceError
from cb_trace.files import check_output, file_sha256, is_bundle, readable, stored_path
from cb_trace.foreign_runs import TRACE_NAMES, check_name, ingest_foreign
from cb_trace.imports import importing
from cb_trace.ingest_run import (
    Context,
    Ingest,
    Progress,
    Split,
    analyse,
    attribute,
    events_of,
    keep,
    rows_of,
)
from cb_trace.trace import LoadOptions, Unpacked, load_trace

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from cb_trace.analysis import GraphSteps, StepEvents
    from cb_trace.analysis.partition import Overlap
    from cb_trace.bundle import Bundle, Manifest, Role, TraceRecord
    from cb_trace.bundle_frames import BundleFrames
    from cb_trace.trace import LoadReport


# What comes after the trace, for the traces of others.
_LATER = (
    "duckdb",
    "cb_trace.bundle_frames",
    "cb_trace.notes",
    "cb_trace.trace.complete",
    "cb_trace.attribution",
    "cb_trace.analysis.context",
    "cb_trace.analysis.costs",
    "cb_trace.analysis.partition",
    "numpy.ma",  # which polars looks at for every array it is given
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What went into a profile."""

    profile: Path
    run_ids: tuple[str, ...]
    traces: tuple[LoadReport, ...]
    device_ns: int  # of the recorded steps
    unattributed_ns: int  # of that

    def summary(self) -> str:
        """One line for a person."""
        count = {
            name: sum(getattr(trace, name) for trace in self.traces)
            for name in ("slices", "kernels", "repaired", "dropped")
        }
        device = "no device time"
        if self.device_ns:
            share = self.unattributed_ns / self.device_ns
            device = f"{share:.2%} of device time unattributed"
        return (
            f"{count['slices']:,} slices, {count['kernels']:,} kernels; "
            f"{count['repaired']:,} repaired, {count['dropped']:,} dropped; {device}"
        )

    def remarks(self) -> list[str]:
        """A line for each trace that was not sound."""
        several = len(self.traces) > 1
        return [
            f"{Path(trace.path).name}: {line}" if several else line
            for trace in self.traces
            if (line := trace.summary())
        ]


def ingest(
    source: Path,
    target: Path,
    *,
    force: bool = False,
    load: LoadOptions | None = None,
    overlap: Overlap = "first",
    capture: Path | None = None,
    text: Unpacked | None = None,
    progress: Progress = lambda _: None,
) -> IngestReport:
    """Make a profile from a bundle, from one Kineto file, or from a folder of one file a rank.

    :param source: a bundle (folder or zip), a Kineto file, or a folder of Kineto files.
    :param target: the profile to write; it appears whole or not at all.
    :param load: which part of each trace to load.
    :param overlap: who owns the instants at which two kernels run.
    :param capture: the trace in which the CUDA graphs of a foreign trace were captured.
    :param text: the Kineto file, where its unpacking has begun already.
    :raises CbTraceError: the source cannot be read, or the target not be written.
    """
    _check_given(source, target, capture)
    ours = is_bundle(source)
    check_output(target, force=force, sources=_inputs(source, target, capture))
    # the first blocks are unpacked while DuckDB starts, and what comes after the trace is imported
    # while an empty profile is made and DuckDB reads: polars takes as long as a small one
    given = text is not None or ours or source.is_dir()
    begun = nullcontext(text) if given else Unpacked(source)
    later = nullcontext(_at_once) if ours else importing(*_LATER)
    if ours:
        import_module(_LATER[0])
    else:
        engine.begin()
    with begun as unpacked, store.create(target, force=force) as draft, later as imported:
        run = Ingest(draft.connection, target, load or LoadOptions(), overlap, progress, imported)
        if ours:
            run_ids = [_ingest_bundle(run, source)]
        else:
            run_ids = ingest_foreign(run, source, capture, unpacked)
        device_ns, unattributed_ns = _device_time(run.connection)
    return IngestReport(
        profile=target,
        run_ids=tuple(run_ids),
        traces=tuple(run.reports),
        device_ns=device_ns,
        unattributed_ns=unattributed_ns,
    )


def _at_once() -> None:
    """Nothing to wait for."""


def _check_given(source: Path, target: Path, capture: Path | None) -> None:
    for named in (source, *([] if capture is None else [capture])):
        _check_readable(named)
    check_name(target)
    if capture is not None and (is_bundle(source) or source.is_dir() or capture.is_dir()):
        raise CbTraceError(
            f"{capture if capture.is_dir() else source} is no single trace",
            hint="--capture goes with one Kineto file",
        )


def _inputs(source: Path, target: Path, capture: Path | None) -> list[Path]:
    """Files that are read and could be taken for the target; of a folder only that one."""
    named = [source] if capture is None else [source, capture]
    inside = source.is_dir() and target.resolve().is_relative_to(source.resolve())
    return [*named, target] if inside and target.name.endswith(TRACE_NAMES) else named


def _check_readable(source: Path) -> None:
    check_name(source)
    if not source.exists():
        raise CbTraceError(f"no such file: {source}", hint="check the path")
    if not (source.is_file() or source.is_dir()):
        raise CbTraceError(
            f"{source} is a pipe or a device, which can be read only once",
            hint="write it to a file first",
        )


def _ingest_bundle(run: Ingest, source: Path) -> str:
    from cb_trace.analysis import without_elsewhere
    from cb_trace.bundle import open_bundle
    from cb_trace.bundle_frames import bundle_frames
    from cb_trace.causal import append_graph_runs, append_predictions, append_sequence
    from cb_trace.conduct_work import append_work

    bundle = open_bundle(source)
    # Numbered by rank, so that the first of a role is the first rank's wherever that is asked for.
    by_rank = sorted(bundle.manifest.traces, key=lambda trace: trace.rank)
    manifest = replace(bundle.manifest, traces=by_rank)
    frames = bundle_frames(manifest)
    for table in (
        "run", "module", "step_sample", "replay_sample", "note", "knockout", "host_span",
        "host_window", "host_tour",
    ):  # fmt: skip
        run.append(table, getattr(frames, table))
    loaded: dict[Role, list[int]] = {}
    for trace_id, record in enumerate(manifest.traces):
        _load_member(run, bundle, trace_id, record)
        loaded.setdefault(record.role, []).append(trace_id)
    contexts = _attribute_members(run, manifest, frames.module, loaded)
    append_work(run.connection, manifest)
    device_type = manifest.run.device_type
    replay = _link_replays(run, frames, loaded.get("isolated", []), device_type)
    for context in contexts[:1]:  # the first rank's; ranks of one run are not averaged
        _note_other_calls(run, replay, context)
        replay = without_elsewhere(replay, context.calls, context.module)
    run.append("replay", replay)
    for context in contexts[:1]:
        sequence = append_sequence(run, context, loaded.get("sequence", [])[:1])
        graph = append_graph_runs(run, context, loaded.get("graph", [])[:1])
        steps = None if graph is None else graph.steps
        split = analyse(run, context, device_type, frames.bare, steps)
        marginal, speedup = append_predictions(
            run=run, context=context, split=split, replay=replay, host_span=frames.host_span,
            host_tour=frames.host_tour, speedup=frames.speedup, bare=frames.bare,
            device_type=device_type, sequence=sequence, graph=graph,
        )  # fmt: skip
        _compare(
            run=run, context=context, split=split, replay=replay, sequence=sequence, graph=steps,
            device_type=device_type, mode=manifest.run.mode, knockout=frames.knockout,
            marginal=marginal, speedup=speedup,
        )  # fmt: skip
    return manifest.run.run_id


def _note_other_calls(run: Ingest, replay: pl.DataFrame, context: Context) -> None:
    from cb_trace.analysis import other_calls
    from cb_trace.bundle_frames import note_frame
    from cb_trace.notes import Note

    paths = dict(context.module.select("module_id", "path").iter_rows())
    rows = other_calls(replay, context.calls).iter_rows()
    notes = [
        Note(
            reason="other number of calls",
            detail=f"{captured} in the step it was captured in, {profiled:.3g} in those profiled",
            path=paths[module_id],
        )
        for module_id, captured, profiled in rows
    ]
    ids = {path: module_id for module_id, path in paths.items()}
    run.append("note", note_frame(context.run_id, notes, ids))


def _attribute_members(
    run: Ingest, manifest: Manifest, module: pl.DataFrame, loaded: dict[Role, list[int]]
) -> list[Context]:
    """Attribute the traces of a bundle's steps; the contexts.

    What a CUDA graph was captured from comes before the graph's own trace, rank by rank.
    """
    from cb_trace import attribution

    evidence = attribution.Evidence(
        parameters=manifest.parameters,
        graphs=manifest.graphs if "compile" in manifest.run.mode else None,
    )

    def attributed(trace_id: int, source: Context | None = None) -> Context:
        return attribute(
            run, events_of(run, trace_id), manifest.run.run_id, module, root_glue=True,
            evidence=evidence, source=source,
        )  # fmt: skip

    rank = {trace_id: record.rank for trace_id, record in enumerate(manifest.traces)}
    captured = {rank[trace_id]: attributed(trace_id) for trace_id in loaded.get("capture", [])}
    return [
        attributed(trace_id, captured.get(rank[trace_id])) for trace_id in loaded.get("context", [])
    ]


def _load_member(run: Ingest, bundle: Bundle, trace_id: int, record: TraceRecord) -> None:
    from cb_trace.bundle_frames import note_frame
    from cb_trace.notes import Note

    run_id, member = bundle.manifest.run.run_id, bundle.trace_file(record)
    run.progress(f"reading {record.file}")
    with readable(member) as file:
        if file_sha256(file) != record.sha256:
            changed = Note(reason="trace changed since it was recorded", detail=record.file)
            run.append("note", note_frame(run_id, [changed], {}))
        report = load_trace(
            run.connection,
            file,
            trace_id=trace_id,
            run_id=run_id,
            role=record.role,
            path=stored_path(member, run.target),
            sha256=record.sha256,
            cpu_kernels=bundle.manifest.run.device_type == "cpu",
            options=run.load,
        )
    # Replays have ranges of their own: that they have no steps is no news.
    keep(run, run_id, replace(report, notes=()) if record.role == "isolated" else report)


def _link_replays(
    run: Ingest, frames: BundleFrames, traces: list[int], device_type: str
) -> pl.DataFrame:
    """Give every kernel of the isolated traces to its replay; the replays with their figures."""
    import polars as pl

    from cb_trace import analysis, attribution
    from cb_trace.bundle_frames import table_frame

    parts = []
    for trace_id in traces:
        linked = attribution.link_replays(events_of(run, trace_id), frames.replay)
        run.append("replay_kernel", linked)
        parts.append(linked)
    return analysis.replay_figures(
        frames.replay,
        frames.replay_sample,
        pl.concat(parts) if parts else table_frame("replay_kernel", []),
        rows_of(run, "kernel", traces),
        rows_of(run, "annotation", traces),
        device_type=device_type,
    )


def _compare(
    *,
    run: Ingest,
    context: Context,
    split: Split,
    replay: pl.DataFrame,
    device_type: str,
    mode: str,
    sequence: pl.DataFrame | None,
    graph: GraphSteps | None,
    knockout: pl.DataFrame,
    marginal: pl.DataFrame,
    speedup: pl.DataFrame,
) -> None:
    """The terms of each module's error, and the verdict on it."""
    from cb_trace.analysis.verdicts import verdicts

    term = _terms(run, context, split, replay, sequence, graph, device_type)
    run.append("term", term)
    verdict = verdicts(
        split.partition, split.cost_bounds, term, replay, context.module,
        run_id=context.run_id, device_type=device_type, mode=mode,
        knockout=knockout, marginal=marginal, speedup=speedup,
    )  # fmt: skip
    run.append("verdict", verdict)


def _terms(  # noqa: PLR0917 - as _compare
    run: Ingest,
    context: Context,
    split: Split,
    replay: pl.DataFrame,
    sequence: pl.DataFrame | None,
    graph: GraphSteps | None,
    device_type: str,
) -> pl.DataFrame:
    """The terms of each deployment, by the trace that it is split by."""
    import polars as pl

    from cb_trace import analysis
    from cb_trace.causal import step_events

    isolated = run.connection.execute("SELECT trace_id FROM trace WHERE role = 'isolated'")
    traces = [row[0] for row in isolated.fetchall()]
    alone = {
        "replay": replay,
        "replay_kernel": pl.DataFrame(run.connection.table("replay_kernel")),
        "isolated_kernel": rows_of(run, "kernel", traces),
        "isolated_op": rows_of(run, "op", traces),
    }
    of_graph = pl.col("deployment") == "graph" if graph is not None else pl.lit(value=False)

    def of(
        events: StepEvents,
        mine: pl.Expr,
        sequence: pl.DataFrame | None,
        in_turn: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        return analysis.terms(
            partition=split.partition.filter(mine), cost_bounds=split.cost_bounds.filter(mine),
            kernel=events.kernel, kernel_module=events.kernel_module, op=events.op,
            step=events.step, module=events.module, sequence=sequence, in_turn=in_turn,
            run_id=context.run_id, device_type=device_type, **alone,
        )  # fmt: skip

    found = [of(step_events(context), ~of_graph, sequence)]
    if graph is not None:
        found.append(of(graph.events, of_graph, graph.sequence(sequence), graph.in_turn))
    return pl.concat(found)


def _device_time(connection: DuckDBPyConnection) -> tuple[int, int]:
    """Device time of the recorded steps, and the part that no module was given, ns."""
    total, unattributed = connection.execute("""
        SELECT coalesce(sum(part.ns), 0)::BIGINT,
            coalesce(sum(part.ns) FILTER (WHERE part.module_id IS NULL), 0)::BIGINT
        FROM kernel_module AS part
        JOIN kernel USING (kernel_id)
        JOIN trace USING (trace_id)
        WHERE trace.role IN ('context', 'foreign')
            AND part.reason IS DISTINCT FROM 'outside every step'
    """).fetchall()[0]
    return total, unattributed
