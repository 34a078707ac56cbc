"""The conductor: every trace of a profile through HTA, linked, compared and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.columns import TABLES, polars_schema
from cb_trace.errors import CbTraceError
from cb_trace.files import located_path, original_trace
from cb_trace.hta import process
from cb_trace.hta.process import ANALYSES, Reading
from cb_trace.store import amend, append, open_profile

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from cb_trace.hta.events import TraceRows

TIMEOUT_S = 3_600
HTA_TABLES = tuple(name for name in TABLES if name.startswith("hta_"))
# Which of the worker's frames belongs in which table, and the analysis that makes it.
_BREAKDOWNS = {
    "hta_temporal": ("temporal", "temporal"),
    "hta_idle": ("idle", "idle"),
    "hta_kernel_type": ("kernels", "kernel_types"),
    "hta_kernel": ("kernels", "kernels"),
}


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """What was stored: frames of ``hta_check`` and ``hta_failure``, and of how many traces.

    :ivar traces: those that HTA was asked about.
    :ivar absent: why it was not asked about the others: the file is gone or another one.
    """

    traces: int
    checks: pl.DataFrame
    failures: pl.DataFrame
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Trace:
    trace_id: int
    path: str
    sha256: str | None
    resolution_ns: int
    device_type: str | None


def second_opinion(
    profile: Path,
    *,
    timeout_s: int = TIMEOUT_S,
    progress: Callable[[str], None] = lambda _: None,
) -> SecondOpinion:
    """Ask HTA about the context and foreign traces of a profile and store what it says.

    A trace that HTA cannot read is a row of ``hta_failure``. An earlier opinion on a trace is
    replaced, unless the file is no longer there to ask about. The profile changes only when all is
    done.

    :param timeout_s: how long HTA may take over one reading of one trace.
    :raises CbTraceError: ``profile`` is no profile or cannot be replaced, or none of its traces is
        there.
    """
    parts: dict[int, dict[str, pl.DataFrame]] = {}
    absent: list[CbTraceError] = []
    with open_profile(profile) as connection:
        for trace in _traces(connection):
            with ExitStack() as opened:
                try:
                    file = _file(opened, profile, trace)
                except CbTraceError as error:
                    absent.append(error)
                    continue
                progress(f"HTA reads {trace.path}")
                parts[trace.trace_id] = _opinion(connection, trace, file, timeout_s)
    if not parts:
        raise _nothing_to_ask(profile, absent)
    tables = _stored(profile, parts)
    reasons = tuple(error.message for error in absent)
    return SecondOpinion(len(parts), tables["hta_check"], tables["hta_failure"], reasons)


def _file(opened: ExitStack, profile: Path, trace: _Trace) -> Path | None:
    """The trace's file, there until ``opened`` ends; None where HTA has no use for it.

    :raises CbTraceError: it is gone or another one.
    """
    if trace.device_type == "cpu":
        return None
    file = located_path(trace.path, profile)
    return opened.enter_context(original_trace(file, trace.sha256, profile))


def _nothing_to_ask(profile: Path, absent: Sequence[CbTraceError]) -> CbTraceError:
    if not absent:
        return CbTraceError(f"{profile} holds no trace of a full pass", hint="record one")
    if len(absent) == 1:
        return absent[0]
    first = absent[0]
    return CbTraceError(
        f"none of the {len(absent)} traces of {profile} is there; {first.message}", hint=first.hint
    )


def _stored(profile: Path, parts: Mapping[int, dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Put the rows of these traces in the place of what the profile holds of them."""
    import polars as pl

    tables = {
        name: pl.concat(
            [
                pl.DataFrame(schema=polars_schema(name)),
                *(part[name] for part in parts.values() if name in part),
            ]
        )
        for name in HTA_TABLES
    }
    with amend(profile) as draft:
        for name, frame in tables.items():
            outdated = f"DELETE FROM {name} WHERE list_contains(?, trace_id)"  # noqa: S608 (a key of TABLES)
            draft.connection.execute(outdated, [list(parts)])
            append(draft.connection, name, frame)
    return tables


def _traces(connection: DuckDBPyConnection) -> list[_Trace]:
    rows = connection.execute("""
        SELECT t.trace_id, t.path, t.sha256, coalesce(t.resolution_ns, 1), r.device_type
        FROM trace AS t LEFT JOIN run AS r USING (run_id)
        WHERE t.role IN ('context', 'foreign')
        ORDER BY t.trace_id
    """).fetchall()
    return [_Trace(*row) for row in rows]


def _opinion(
    connection: DuckDBPyConnection, trace: _Trace, file: Path | None, timeout_s: int
) -> dict[str, pl.DataFrame]:
    """All ``hta_*`` rows of one trace."""
    from cb_trace.hta.events import trace_rows

    readings = _readings(trace, file, timeout_s)
    tables = _failures(trace, readings) | _breakdowns(trace, readings)
    if readings[0].loaded:
        tables |= _linked(trace, trace_rows(connection, trace.trace_id), readings)
    return tables


def _readings(trace: _Trace, file: Path | None, timeout_s: int) -> list[Reading]:
    """HTA as it comes, and once more unrounded where the file is finer than a microsecond."""
    if file is None:
        return [process.not_read("recorded on the CPU: HTA looks at device activity only")]
    first = process.read(file, rounded=True, analyses=ANALYSES, timeout_s=timeout_s)
    if not first.loaded or trace.resolution_ns >= 1_000:
        return [first]
    again = ("temporal", *(a for a in ANALYSES[1:] if a in first.failed))
    return [first, process.read(file, rounded=False, analyses=again, timeout_s=timeout_s)]


def _failures(trace: _Trace, readings: list[Reading]) -> dict[str, pl.DataFrame]:
    rows = [
        {"rounded": reading.rounded, "analysis": name, "reason": reason}
        for reading in readings
        for name, reason in reading.failures
    ]
    return {"hta_failure": _rows("hta_failure", trace, rows)}


def _breakdowns(trace: _Trace, readings: list[Reading]) -> dict[str, pl.DataFrame]:
    """Each breakdown from the first reading in which HTA managed it."""
    found: dict[str, pl.DataFrame] = {}
    for table, (analysis, frame) in _BREAKDOWNS.items():
        reading = _first_with(readings, analysis)
        if reading is not None:
            found[table] = _fitted(table, trace, reading.tables[frame], rounded=reading.rounded)
    reading = _first_with(readings, "overlap")
    if reading is not None:
        row = {"rounded": reading.rounded, "overlap_ratio": reading.overlap_ratio}
        found["hta_overlap"] = _rows("hta_overlap", trace, [row])
    return found


def _linked(trace: _Trace, ours: TraceRows, readings: list[Reading]) -> dict[str, pl.DataFrame]:
    """What is joined to our rows: HTA's events, the checks, the critical path."""
    from cb_trace.hta.events import critical_path, linked_events

    events = linked_events(readings[0].tables["events"], ours)
    found = {"hta_event": _fitted("hta_event", trace, events)}
    rows = [row for reading in readings for row in _checks(trace, ours, reading, events)]
    found["hta_check"] = _rows("hta_check", trace, rows)
    reading = _first_with(readings, "critical_path")
    if reading is not None:
        path = critical_path(reading, events, ours)
        found["hta_critical_path"] = _fitted(
            "hta_critical_path", trace, path, rounded=reading.rounded
        )
    return found


def _checks(
    trace: _Trace, ours: TraceRows, reading: Reading, first: pl.DataFrame
) -> list[dict[str, Any]]:
    """The rows of ``hta_check`` from one reading; counts do not depend on rounding."""
    from cb_trace.hta import check

    if not reading.loaded:
        return []
    links = first.select("event_index", "kernel_id").unique("event_index")
    events = reading.tables["events"].join(links, on="event_index", how="left")
    edge_ns = check.edges_ns(
        rounded=reading.rounded, resolution_ns=trace.resolution_ns, end_ns=ours.end_ns
    )
    found = list(check.count_checks(ours.kernels, events)) if reading.rounded else []
    found += check.time_checks(ours.kernels, events, edge_ns)
    if "temporal" in reading.tables:
        temporal = reading.tables["temporal"]
        found += check.idle_checks(ours.kernels, temporal, edge_ns, events.height)
    part = not ours.left_out.is_empty()
    reason = check.why(ours.kernels, events, ours.last_step_end_ns, part_of_trace=part)
    return [
        {
            **asdict(one),
            "rounded": reading.rounded,
            "agrees": one.agrees,
            "reason": None if one.agrees else reason or "unexplained",
        }
        for one in found
    ]


def _first_with(readings: list[Reading], analysis: str) -> Reading | None:
    return next((r for r in readings if r.loaded and analysis not in r.failed), None)


def _rows(
    table: str, trace: _Trace, rows: list[Mapping[str, Any]] | list[dict[str, Any]]
) -> pl.DataFrame:
    import polars as pl

    schema = polars_schema(table)
    complete = [{**row, "trace_id": trace.trace_id} for row in rows]
    return pl.DataFrame({n: [row[n] for row in complete] for n in schema}, schema=schema)


def _fitted(table: str, trace: _Trace, frame: pl.DataFrame, **constants: bool) -> pl.DataFrame:
    """A frame with the columns of a table, in its order and types."""
    import polars as pl

    added = {"trace_id": trace.trace_id, **constants}
    frame = frame.with_columns(**{name: pl.lit(value) for name, value in added.items()})
    return frame.select(pl.col(name).cast(kind) for name, kind in polars_schema(table).items())
