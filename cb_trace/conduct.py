"""The conductor: bundle or trace → trace → attribution → analysis → store, in that order.

The stages are siblings that know only the frames of ``columns``; this file alone passes them on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from cb_trace import analysis, attribution, store
from cb_trace.analysis.partition import Overlap
from cb_trace.bundle import (
    Bundle,
    Deployment,
    Note,
    TraceRecord,
    file_sha256,
    is_bundle,
    open_bundle,
    readable,
    stored_path,
)
from cb_trace.bundle_frames import BundleFrames, bundle_frames, note_frame, table_frame
from cb_trace.columns import SCHEMA_VERSION
from cb_trace.errors import CbTraceError
from cb_trace.trace import LoadOptions, LoadReport, load_trace
from cb_trace.version import VERSION

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Progress = Callable[[str], None]
TRACE_NAMES = (".json", ".json.gz", ".json.zst", ".json.zip", ".pftrace")


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
        share = self.unattributed_ns / self.device_ns if self.device_ns else 0.0
        return (
            f"{count['slices']:,} slices, {count['kernels']:,} kernels; "
            f"{count['repaired']:,} repaired, {count['dropped']:,} dropped; "
            f"{share:.2%} of device time unattributed"
        )

    def remarks(self) -> list[str]:
        """A line for each trace that was not sound."""
        return [line for trace in self.traces if (line := trace.summary())]


@dataclass(frozen=True, slots=True)
class _Ingest:
    """One ingest as it goes: where it writes, and what the user asked for."""

    connection: DuckDBPyConnection
    target: Path
    load: LoadOptions
    overlap: Overlap
    progress: Progress
    reports: list[LoadReport] = field(default_factory=list)

    def append(self, table: str, frame: pl.DataFrame) -> None:
        store.append(self.connection, table, frame)


@dataclass(frozen=True, slots=True)
class _Context:
    """One attributed trace."""

    run_id: str
    module: pl.DataFrame
    events: attribution.TraceEvents
    found: attribution.Attributed


def ingest(
    source: Path,
    target: Path,
    *,
    force: bool = False,
    load: LoadOptions | None = None,
    overlap: Overlap = "first",
    progress: Progress = lambda _: None,
) -> IngestReport:
    """Make a profile from a bundle, from one Kineto file, or from a folder of one file a rank.

    :param source: a bundle (folder or zip), a Kineto file, or a folder of Kineto files.
    :param target: the profile to write; it appears whole or not at all.
    :param load: which part of each trace to load.
    :param overlap: who owns the instants at which two kernels run.
    :raises CbTraceError: the source cannot be read, or the target not be written.
    """
    if not source.exists():
        raise CbTraceError(f"no such file: {source}", hint="check the path")
    if target.exists() and source.samefile(target):
        raise CbTraceError(f"{source} is its own target", hint="name another file with -o")
    with store.create(target, force=force) as draft:
        run = _Ingest(draft.connection, target, load or LoadOptions(), overlap, progress)
        ours = is_bundle(source)
        run_ids = (
            [_ingest_bundle(run, open_bundle(source))] if ours else _ingest_foreign(run, source)
        )
        device_ns, unattributed_ns = _device_time(run.connection)
    return IngestReport(
        profile=target,
        run_ids=tuple(run_ids),
        traces=tuple(run.reports),
        device_ns=device_ns,
        unattributed_ns=unattributed_ns,
    )


# --- our own recordings -----------------------------------------------------------------------


def _ingest_bundle(run: _Ingest, bundle: Bundle) -> str:
    manifest = bundle.manifest
    frames = bundle_frames(manifest)
    for table in ("run", "module", "step_sample", "replay_sample", "note", "knockout"):
        run.append(table, getattr(frames, table))
    loaded: dict[str, list[int]] = {}
    for trace_id, record in enumerate(manifest.traces):
        _load_member(run, bundle, trace_id, record)
        loaded.setdefault(record.role, []).append(trace_id)
    for trace_id in loaded.get("sequence", []):
        _attribute(run, trace_id, manifest.run.run_id, frames.module, root_glue=True)
    contexts = [
        _attribute(run, trace_id, manifest.run.run_id, frames.module, root_glue=True)
        for trace_id in loaded.get("context", [])
    ]
    device_type = manifest.run.device_type
    replay = _link_replays(run, frames, loaded.get("isolated", []), device_type)
    run.append("replay", replay)
    for context in contexts[:1]:  # the first rank's; ranks of one run are not averaged
        partition = _analyse(run, context, device_type, frames.bare)
        _compare(run, context, partition, replay, device_type)
    return manifest.run.run_id


def _load_member(run: _Ingest, bundle: Bundle, trace_id: int, record: TraceRecord) -> None:
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
    _keep(run, run_id, replace(report, notes=()) if record.role == "isolated" else report)


def _link_replays(
    run: _Ingest, frames: BundleFrames, traces: list[int], device_type: str
) -> pl.DataFrame:
    """Give every kernel of the isolated traces to its replay; the replays with their figures."""
    parts = []
    for trace_id in traces:
        linked = attribution.link_replays(_events(run, trace_id), frames.replay)
        run.append("replay_kernel", linked)
        parts.append(linked)
    return analysis.replay_figures(
        frames.replay,
        frames.replay_sample,
        pl.concat(parts) if parts else table_frame("replay_kernel", []),
        _table(run, "kernel", traces),
        _table(run, "annotation", traces),
        device_type=device_type,
    )


# --- traces of others -------------------------------------------------------------------------


def _ingest_foreign(run: _Ingest, source: Path) -> list[str]:
    run_ids: list[str] = []
    for trace_id, file in enumerate(_trace_files(source)):
        run.progress(f"reading {file.name}")
        sha256 = file_sha256(file)
        run_id = sha256[:12]
        run_id += f"-{trace_id}" if run_id in run_ids else ""  # a copy of another rank's file
        report = load_trace(
            run.connection,
            file,
            trace_id=trace_id,
            run_id=run_id,
            role="foreign",
            path=stored_path(file, run.target),
            sha256=sha256,
            options=run.load,
        )
        run_ids.append(run_id)
        _foreign_run(run, report, run_id, file.name.split(".")[0])
        _keep(run, run_id, report)
        module = attribution.foreign_modules(
            _events(run, trace_id),
            run_id=run_id,
            first_module_id=_next_id(run, "module", "module_id"),
        )
        run.append("module", module)
        context = _attribute(run, trace_id, run_id, module, root_glue=False)
        _analyse(run, context, None, {})
    _separate_ranks(run, run_ids)
    return run_ids


def _trace_files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = sorted(p for p in source.iterdir() if p.is_file() and p.name.endswith(TRACE_NAMES))
    if not found:
        raise CbTraceError(
            f"{source} is neither a bundle nor a folder of traces",
            hint=f"it needs a manifest.json, or files that end in {', '.join(TRACE_NAMES[:2])}",
        )
    return found


def _foreign_run(run: _Ingest, report: LoadReport, run_id: str, name: str) -> None:
    """The run row of a foreign trace: what its header says, no more."""
    header = report.header
    origin_ns, first_ns, step_ns = run.connection.execute(
        "SELECT origin_ns, first_ns, (SELECT quantile_disc(window_ns, 0.5) FROM step WHERE "
        "step.trace_id = trace.trace_id) FROM trace WHERE trace_id = ?",
        [report.trace_id],
    ).fetchall()[0]
    row = {
        "run_id": run_id,
        "created_at": _moment(origin_ns + first_ns) if origin_ns and first_ns else None,
        "workload": name,
        "device_name": header.device_names[0] if header.device_names else None,
        "torch_version": header.torch_version,
        "cuda_version": header.cuda_version,
        "driver_version": header.driver_version,
        "tool_version": VERSION,
        "schema_version": SCHEMA_VERSION,
        "step_profiled_ns": step_ns,
    }
    run.append("run", table_frame("run", [row]))


def _moment(ns: int) -> datetime:
    """Nanoseconds since 1970 as a naive time in UTC, as DuckDB's TIMESTAMP has it."""
    return datetime(1970, 1, 1) + timedelta(microseconds=ns // 1000)


def _separate_ranks(run: _Ingest, run_ids: list[str]) -> None:
    """Give files that claim one rank, or none, the free numbers, and say so."""
    taken: set[int] = set()
    repeated: list[int] = []
    for report in run.reports:
        if report.rank in taken:
            repeated.append(report.trace_id)
        taken.add(report.rank)
    for trace_id in repeated:
        rank = next(n for n in range(len(run_ids)) if n not in taken)
        taken.add(rank)
        run.connection.execute("UPDATE trace SET rank = ? WHERE trace_id = ?", [rank, trace_id])
        note = Note(reason="rank assigned", detail=f"two files have one rank; this one is {rank}")
        run.append("note", note_frame(run_ids[trace_id], [note], {}))


# --- steps of both ----------------------------------------------------------------------------


def _keep(run: _Ingest, run_id: str, report: LoadReport) -> None:
    """Keep a report, and in the profile what a reader of the figures must know of it."""
    run.reports.append(report)
    notes = [Note(reason="on reading the trace", detail=text) for text in report.notes]
    if report.damage:
        notes.append(Note(reason="damaged trace file", detail=report.damage))
    if report.truncated:
        lost = f"{report.lost_bytes} bytes after the last whole event"
        notes.append(Note(reason="truncated trace file", detail=lost))
    run.append("note", note_frame(run_id, notes, {}))


def _table(run: _Ingest, table: str, traces: list[int]) -> pl.DataFrame:
    """A table's rows of some traces."""
    relation = run.connection.table(table)
    chosen = ", ".join(map(str, traces)) or "NULL"
    return pl.DataFrame(relation.filter(f"trace_id IN ({chosen})"))


def _events(run: _Ingest, trace_id: int) -> attribution.TraceEvents:
    tables = attribution.TraceEvents.__dataclass_fields__
    return attribution.TraceEvents(**{table: _table(run, table, [trace_id]) for table in tables})


def _attribute(
    run: _Ingest, trace_id: int, run_id: str, module: pl.DataFrame, *, root_glue: bool
) -> _Context:
    run.progress("attribution")
    events = _events(run, trace_id)
    first = _next_id(run, "module_call", "call_id")
    found = attribution.attribute(events, module, first_call_id=first, root_glue=root_glue)
    run.append("module_call", found.module_call)
    run.append("kernel_module", found.kernel_module)
    return _Context(run_id, module, events, found)


def _next_id(run: _Ingest, table: str, column: str) -> int:
    highest = run.connection.table(table).max(column).fetchall()[0][0]
    return 0 if highest is None else int(highest) + 1


def _analyse(
    run: _Ingest,
    context: _Context,
    device_type: str | None,
    bare: dict[Deployment, analysis.BareStep],
) -> pl.DataFrame:
    """What each module does in context, and the step's partition, which is returned."""
    run.progress("analysis")
    events, found = context.events, context.found
    shared = (events.kernel, found.kernel_module, found.module_call, events.step)
    figures = analysis.module_context(*shared, context.module, run_id=context.run_id)
    run.append("module_context", figures)
    partition = analysis.step_partition(
        *shared,
        events.launch,
        context.module,
        run_id=context.run_id,
        bare=bare,
        device_type=device_type,
        overlap=run.overlap,
    )
    run.append("partition", partition)
    return partition


def _compare(
    run: _Ingest,
    context: _Context,
    partition: pl.DataFrame,
    replay: pl.DataFrame,
    device_type: str,
) -> None:
    """The terms of each module's error, and the verdict on it."""
    isolated = run.connection.execute("SELECT trace_id FROM trace WHERE role = 'isolated'")
    traces = [row[0] for row in isolated.fetchall()]
    term = analysis.terms(
        partition=partition,
        kernel=context.events.kernel,
        kernel_module=context.found.kernel_module,
        op=context.events.op,
        step=context.events.step,
        module=context.module,
        replay=replay,
        replay_kernel=pl.DataFrame(run.connection.table("replay_kernel")),
        isolated_kernel=_table(run, "kernel", traces),
        isolated_op=_table(run, "op", traces),
        run_id=context.run_id,
        device_type=device_type,
    )
    run.append("term", term)
    verdict = analysis.verdicts(
        partition, term, replay, context.module, run_id=context.run_id, device_type=device_type
    )
    run.append("verdict", verdict)


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
