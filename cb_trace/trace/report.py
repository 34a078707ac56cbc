"""What the loader tells: the trace's row, its ``drop`` rows, and the report for the caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from cb_trace.trace import sql
from cb_trace.trace.decode import TRUNCATED, Decoder
from cb_trace.trace.flaws import LOST_HOST, Span
from cb_trace.trace.header import parse_header, rank_in_name
from cb_trace.trace.options import LoadOptions
from cb_trace.trace.results import Drop, LoadReport
from cb_trace.trace.salvage import NOT_OBJECT, OVERSIZED, UNREADABLE

if TYPE_CHECKING:
    import duckdb

    from cb_trace.bundle import Role

NO_LAUNCH = "no launch in file"
_ONLY_METADATA = "no events in this trace, only metadata"
_STEPS_OVERLAP = (
    "steps of several processes overlap in this file, and figures of a step mix them: "
    "ingest a file a process"
)
UNRECORDED = "graph that ran on after its last kernel"
_LONG_WAIT_NS = 100_000  # a wait returns some 10 µs after the last kernel
UNTIMED = "event without a usable time"
UNPHASED = "event of no known phase"
_DROPPED = (UNREADABLE, NOT_OBJECT, OVERSIZED, TRUNCATED, LOST_HOST, UNTIMED, UNPHASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of ``load_trace``."""

    connection: duckdb.DuckDBPyConnection
    trace_id: int
    run_id: str
    role: Role
    path: str
    sha256: str | None
    cpu_kernels: bool
    options: LoadOptions


def report(
    job: Job, decoder: Decoder, span: Span, drops: list[Drop], unmatched: str | None
) -> LoadReport:
    """Gather what happened, in a fixed order.

    :param unmatched: what there is to say of a step pattern that no name matches.
    """
    source, document = decoder.text.source, decoder.text.document
    header = parse_header(document.before, document.after)
    truncated = source.truncated or not document.closed
    cut = truncated and decoder.damage is None
    drops = [*_repairs(decoder, cut), *drops, *_tallies(job), *_unrecorded(job)]
    unlinked = sum(drop.events for drop in drops if drop.reason == NO_LAUNCH)
    stated = (job.options.rank, header.rank, rank_in_name(PurePath(job.path)))
    kernels, launches, ops, steps = sql.row(
        job.connection, sql.text("sizes"), trace_id=job.trace_id
    )
    return LoadReport(
        trace_id=job.trace_id,
        path=job.path,
        rank=next((rank for rank in stated if rank is not None), 0),
        world_size=header.world_size,
        header=header,
        slices=span.slices,
        kernels=kernels,
        launches=launches,
        ops=ops,
        steps=steps,
        repaired=sum(drop.events for drop in drops if drop.reason.startswith("repaired")),
        dropped=sum(drop.events for drop in drops if drop.reason in _DROPPED),
        kernels_without_launch=unlinked,
        lost_bytes=document.lost_bytes,
        truncated=truncated,
        damage=source.damage or decoder.damage or _nothing_read(span, decoder),
        drops=tuple(drops),
        notes=_notes(job, (span.slices, kernels, launches, steps), unlinked, drops, unmatched),
    )


def store(job: Job, found: LoadReport, span: Span) -> None:
    """Write the rows of ``trace`` and ``drop``."""
    sql.run(
        job.connection,
        sql.text("trace"),
        trace_id=job.trace_id,
        run_id=job.run_id,
        role=job.role,
        path=job.path,
        sha256=job.sha256,
        rank=found.rank,
        world_size=found.world_size,
        origin_ns=found.header.base_ns,
        first_ns=span.first_ns,
        span_ns=span.end_ns - span.first_ns,
        resolution_ns=span.resolution_ns,
        slices=found.slices,
        repaired=found.repaired,
        dropped=found.dropped,
        kernels_without_launch=found.kernels_without_launch,
    )
    for drop in found.drops:
        job.connection.execute(
            'INSERT INTO "drop" VALUES (?, ?, ?, ?)',
            [job.trace_id, drop.reason, drop.events, drop.ns],
        )


def _repairs(decoder: Decoder, truncated: bool) -> list[Drop]:
    counts = decoder.counts
    drops = [Drop(reason, counts[reason]) for reason in sorted(counts) if reason != TRUNCATED]
    return [*drops, Drop(TRUNCATED, counts[TRUNCATED])] if truncated else drops


def _nothing_read(span: Span, decoder: Decoder) -> str | None:
    """An empty profile of a file that holds something is no answer."""
    broken = sum(decoder.counts[reason] for reason in (UNREADABLE, NOT_OBJECT, OVERSIZED))
    return "none of its events can be read" if broken and not span.slices else None


def _tallies(job: Job) -> list[Drop]:
    given = {"trace_id": job.trace_id, "role": job.role}
    rows = job.connection.execute(sql.text("tallies"), given).fetchall()
    return [Drop(reason, events, ns) for reason, events, ns in rows if events]


def _unrecorded(job: Job) -> list[Drop]:
    """Graphs that ran on after the last kernel recorded of them, and for how long.

    CUPTI records the first iteration of a conditional node only (traces.md row 31), and a tool that
    loses records looks alike (row 29). Nothing is made up for them.
    """
    waits = {"trace_id": job.trace_id, "least_ns": _LONG_WAIT_NS}
    sql.run(job.connection, sql.text("graph_waits"), **waits)
    if not sql.value(job.connection, "SELECT count(*) FROM raw_wait"):
        return []
    events, ns = sql.row(job.connection, sql.text("graph_idle"), trace_id=job.trace_id)
    return [Drop(UNRECORDED, events, ns)] if events else []


def _notes(
    job: Job,
    counts: tuple[int, int, int, int],
    unlinked: int,
    drops: list[Drop],
    unmatched: str | None,
) -> tuple[str, ...]:
    """What a reader of the figures must know about this trace."""
    slices, kernels, launches, steps = counts
    if not slices:
        return ("no usable event in this trace" if drops else _ONLY_METADATA,)
    notes = []
    if launches and not kernels:
        notes.append("launches but no device events in this trace")
    elif kernels and unlinked == kernels:
        notes.append("no launch link in this trace")
    notes += [
        f"the host waited {(drop.ns or 0) / 1e6:.1f} ms more for graphs than their kernels last: "
        "kernels are missing, idle is not to be trusted"
        for drop in drops
        if drop.reason == UNRECORDED
    ]
    if sql.value(job.connection, sql.text("steps_overlap"), trace_id=job.trace_id):
        notes.append(_STEPS_OVERLAP)
    if not steps:
        part = job.options.window_ns is not None
        what = "no whole step in this window" if part else "no steps in this trace"
        notes.append(f"{unmatched or what}: the whole {'window' if part else 'trace'} is one step")
    return tuple(notes)
