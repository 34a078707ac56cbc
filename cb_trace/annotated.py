"""Write a profile's trace for Perfetto, idle time and its kinds included: the conductor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from cb_trace import analysis
from cb_trace.errors import CbTraceError
from cb_trace.files import is_same
from cb_trace.reporters.perfetto import Annotated, Counter, annotate, find_source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cb_trace.reporters.perfetto_rows import Source

_KINDS = {
    "idle_host": "idle: waiting for the host",
    "idle_gap": "idle: between kernels",
    "idle_sync": "idle: synchronising",
    "idle_copy": "idle: around copies",
}


def write_annotated(
    connection: DuckDBPyConnection,
    profile: Path,
    target: Path,
    *,
    modules: Sequence[str] = (),
    whole: bool = True,
    rank: int | None = None,
) -> Annotated:
    """Write the annotated trace of a profile; see :func:`cb_trace.reporters.perfetto.annotate`.

    :param rank: of several ranks this one's trace, by default that of the lowest.
    :raises CbTraceError: unknown module or rank, or the trace file is gone or another one.
    """
    source = find_source(connection, profile, rank)
    if is_same(target, source.file):
        raise CbTraceError(f"{target} holds the trace to annotate", hint="name another with -o")
    counters = idle_counters(connection, source)
    return annotate(connection, source, target, modules=modules, whole=whole, counters=counters)


def idle_counters(connection: DuckDBPyConnection, source: Source) -> list[Counter]:
    """A counter a kind of idle time that occurs: 1 while the device is idle in that way."""
    names = ("kernel", "launch", "step", "module_call")
    frames = {name: _rows(connection, name, source.trace_id) for name in names}
    if frames["kernel"].is_empty() or frames["kernel"]["kind"].eq("cpu").all():
        return []  # on a CPU the rows of threads show it
    found = analysis.idle_stretches(**frames, device_type=None)
    counters = []
    for kind, name in _KINDS.items():
        stretches = found.filter(pl.col("kind") == kind).select("start_ns", "end_ns").rows()
        steps = [step for start, end in stretches for step in ((start, 1.0), (end, 0.0))]
        counters += [Counter(name, steps)] if steps else []
    return counters


def _rows(connection: DuckDBPyConnection, table: str, trace_id: int) -> pl.DataFrame:
    query = f'SELECT * FROM "{table}" WHERE trace_id = ?'  # noqa: S608  (ours)
    return pl.DataFrame(connection.sql(query, params=[trace_id]))
