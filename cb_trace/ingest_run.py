"""The steps that every ingest takes, from a loaded trace to the figures of its modules.

With :mod:`conduct` and :mod:`foreign_runs` the conductor: the stages are siblings that know only
the frames of ``columns``; these files alone pass them on. The stages after the trace are imported
where they are used, so that the first trace can be read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace import store

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from cb_trace import analysis, attribution
    from cb_trace.analysis.partition import Overlap
    from cb_trace.bundle import Deployment
    from cb_trace.trace import LoadOptions, LoadReport

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ingest:
    """One ingest as it goes: where it writes, and what the user asked for."""

    connection: DuckDBPyConnection
    target: Path
    load: LoadOptions
    overlap: Overlap
    progress: Progress
    imported: Callable[[], None]  # waits for what comes after the first trace
    reports: list[LoadReport] = field(default_factory=list)
    writer: store.Writer | None = None  # adds rows beside other work

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Add rows to a table."""
        if self.writer is not None:
            self.writer.append(table, frame)
        else:
            store.append(self.connection, table, frame)


@dataclass(frozen=True, slots=True)
class Context:
    """One attributed trace."""

    run_id: str
    module: pl.DataFrame
    events: attribution.TraceEvents
    found: attribution.Attributed
    source: Context | None = None  # what its CUDA graph was captured from

    @property
    def calls(self) -> pl.DataFrame:
        """The module calls of the step; a graph's own trace has none, the captured run does."""
        return (self.source or self).found.module_call


@dataclass(frozen=True, slots=True)
class Split:
    """The step over its modules: tables ``partition`` and ``cost_bounds``."""

    partition: pl.DataFrame
    cost_bounds: pl.DataFrame


def keep(run: Ingest, run_id: str, report: LoadReport) -> None:
    """Keep a report, and in the profile what a reader of the figures must know of it."""
    from cb_trace.bundle_frames import note_frame
    from cb_trace.notes import Note

    run.reports.append(report)
    notes = [Note(reason="on reading the trace", detail=text) for text in report.notes]
    if report.damage:
        notes.append(Note(reason="damaged trace file", detail=report.damage))
    if report.truncated:
        lost = f"{report.lost_bytes} bytes after the last whole event"
        notes.append(Note(reason="truncated trace file", detail=lost))
    run.append("note", note_frame(run_id, notes, {}))


def rows_of(run: Ingest, table: str, traces: list[int]) -> pl.DataFrame:
    """A table's rows of some traces."""
    import polars as pl

    relation = run.connection.table(table)
    chosen = ", ".join(map(str, traces)) or "NULL"
    return pl.DataFrame(relation.filter(f"trace_id IN ({chosen})"))


def events_of(run: Ingest, trace_id: int) -> attribution.TraceEvents:
    """The events of a trace."""
    from cb_trace import attribution

    tables = attribution.TraceEvents.__dataclass_fields__
    return attribution.TraceEvents(**{table: rows_of(run, table, [trace_id]) for table in tables})


def attribute(
    run: Ingest,
    events: attribution.TraceEvents,
    run_id: str,
    module: pl.DataFrame,
    *,
    root_glue: bool,
    evidence: attribution.Evidence | None = None,
    source: Context | None = None,
    on_streams: bool = False,
    autograd: attribution.Backward | None = None,
) -> Context:
    """Give every kernel of a loaded trace its modules, and keep the rows.

    :param source: what the trace's CUDA graphs were captured from; ``on_streams``: they may
        have run on several, whichever those were.
    :param autograd: the events' backward operators, where they have been found already.
    """
    from cb_trace import attribution

    run.progress("attribution")
    evidence = evidence or attribution.Evidence()
    first = next_id(run, "module_call", "call_id")
    if source is not None:
        reference = attribution.reference(source.events, source.found)
        reference = replace(reference, on_streams=on_streams)
        evidence = replace(evidence, reference=reference)
    found = attribution.attribute(
        events, module, first_call_id=first, root_glue=root_glue, evidence=evidence,
        autograd=autograd,
    )  # fmt: skip
    run.append("module_call", found.module_call)
    run.append("kernel_module", found.kernel_module)
    return Context(run_id, module, events, found, source)


def next_id(run: Ingest, table: str, column: str) -> int:
    """The first free number of an id column."""
    highest = run.connection.table(table).max(column).fetchall()[0][0]
    return 0 if highest is None else int(highest) + 1


def analyse(
    run: Ingest,
    context: Context,
    device_type: str | None,
    bare: dict[Deployment, analysis.BareStep],
    graph: analysis.GraphSteps | None = None,
) -> Split:
    """What each module does in context, and how the step is split, which is returned.

    :param graph: what the deployment of that name is split by, in place of the context.
    """
    import polars as pl

    from cb_trace import analysis

    run.progress("analysis")
    events, found = context.events, context.found
    shared = (events.kernel, found.kernel_module, found.module_call, events.step)
    figures = analysis.module_context(*shared, context.module, run_id=context.run_id)
    run.append("module_context", _with_calls(figures, context.source))
    its = None if graph is None or "graph" not in bare else graph.events
    if its is not None:
        run.append("graph_context", _of_graph(its, run_id=context.run_id))
    rest = {name: one for name, one in bare.items() if its is None or name != "graph"}
    splits = []
    if rest or its is None:
        splits.append(_split(run, context, (*shared, events.launch), device_type, rest))
    if its is not None:
        frames = (its.kernel, its.kernel_module, its.module_call, its.step, its.launch)
        splits.append(_split(run, context, frames, device_type, {"graph": bare["graph"]}))
    split = Split(
        pl.concat([one.partition for one in splits]), pl.concat([one.cost_bounds for one in splits])
    )
    run.append("partition", split.partition)
    run.append("cost_bounds", split.cost_bounds)
    return split


def _of_graph(events: analysis.StepEvents, *, run_id: str) -> pl.DataFrame:
    """Rows of table ``graph_context``: what kernels did in the runs of the step's graph."""
    from cb_trace import analysis
    from cb_trace.columns import TABLES

    frames = (events.kernel, events.kernel_module, events.module_call, events.step)
    figures = analysis.module_context(*frames, events.module, run_id=run_id)
    return figures.select(list(TABLES["graph_context"]))


def _split(
    run: Ingest,
    context: Context,
    frames: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame],
    device_type: str | None,
    bare: dict[Deployment, analysis.BareStep],
) -> Split:
    """The step of some deployments by the frames of one trace."""
    from cb_trace import analysis

    parts = analysis.step_parts(
        *frames, context.module, device_type=device_type, overlap=run.overlap
    )
    partition = analysis.scaled_partition(parts, run_id=context.run_id, bare=bare)
    bounds = analysis.cost_bounds(
        parts, partition, context.module, run_id=context.run_id, bare=bare
    )
    return Split(partition, bounds)


def _with_calls(figures: pl.DataFrame, source: Context | None) -> pl.DataFrame:
    """Calls of modules in a CUDA graph: those of the run that was captured."""
    if source is None:
        return figures
    import polars as pl

    from cb_trace import analysis

    there = analysis.module_context(
        source.events.kernel,
        source.found.kernel_module,
        source.found.module_call,
        source.events.step,
        source.module,
        run_id=source.run_id,
    ).select("module_id", "phase", captured="calls")
    counted = figures.join(there, on=["module_id", "phase"], how="left", maintain_order="left")
    calls = pl.col("calls") + pl.col("captured").fill_null(0.0)
    return counted.with_columns(calls=calls).select(figures.columns)
