"""Our rows of one trace, and HTA's rows linked to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from cb_trace.hta import link

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cb_trace.hta.process import Reading

# The kinds of `kernel` that are device activity; a row without sound timing has no place in sums.
_KERNELS = """
    SELECT k.kernel_id, k.name, k.stream, k.start_ns, k.dur_ns, k.correlation, k.launch_id, k.flaw,
        l.start_ns AS launch_start_ns
    FROM kernel AS k LEFT JOIN launch AS l USING (launch_id)
    WHERE k.trace_id = ? AND k.kind <> 'cpu' AND k.flaw IS DISTINCT FROM 'lost timing'
"""
_SHARES = """
    SELECT m.kernel_id, m.module_id, m.share
    FROM kernel_module AS m JOIN kernel AS k USING (kernel_id)
    WHERE k.trace_id = ? AND m.module_id IS NOT NULL
"""
_OPS = """
    SELECT op_id, name, thread, start_ns, dur_ns, sequence_number, forward_thread
    FROM op WHERE trace_id = ?
"""
_LAUNCHES = "SELECT launch_id, name, thread, start_ns FROM launch WHERE trace_id = ?"
_CALLS = "SELECT module_id, thread, start_ns, dur_ns FROM module_call WHERE trace_id = ?"
# What trace/ counts as dropped when it loads a window or some steps.
_PARTS = """
    SELECT events FROM "drop"
    WHERE trace_id = ? AND reason = 'outside window' AND events > 0
"""
_STEPS = """
    SELECT step, name, start_ns, dur_ns, start_ns + dur_ns AS end_ns FROM step WHERE trace_id = ?
"""


@dataclass(frozen=True, slots=True)
class TraceRows:
    """Our rows of one trace, as the comparison needs them; calls are those of modules."""

    kernels: pl.DataFrame
    shares: pl.DataFrame
    ops: pl.DataFrame
    launches: pl.DataFrame
    calls: pl.DataFrame
    steps: pl.DataFrame
    left_out: pl.DataFrame  # a row where only a part of the trace was loaded

    @property
    def last_step_end_ns(self) -> int | None:
        """When the last step's range ends; None without two steps, when HTA drops nothing."""
        return int(self.steps.select(pl.max("end_ns")).item()) if self.steps.height > 1 else None

    @property
    def end_ns(self) -> int:
        """When the last device activity ends, 0 without any."""
        ends = self.kernels.select((pl.col("start_ns") + pl.col("dur_ns")).max()).item()
        return int(ends or 0)


def trace_rows(connection: DuckDBPyConnection, trace_id: int) -> TraceRows:
    """Read them from an open profile."""
    statements = (_KERNELS, _SHARES, _OPS, _LAUNCHES, _CALLS, _STEPS, _PARTS)
    return TraceRows(*(_frame(connection, sql, trace_id) for sql in statements))


def _frame(connection: DuckDBPyConnection, sql: str, trace_id: int) -> pl.DataFrame:
    found = pl.from_arrow(connection.sql(sql, params=[trace_id]).to_arrow_table())
    if not isinstance(found, pl.DataFrame):
        raise TypeError("a query with columns gives a frame")
    return found


def linked_events(events: pl.DataFrame, ours: TraceRows) -> pl.DataFrame:
    """HTA's device rows with our ``kernel_id``, null where none of ours is meant."""
    links = link.link_kernels(events, ours.kernels)
    return events.join(links, on="event_index", how="left")


def critical_path(reading: Reading, events: pl.DataFrame, ours: TraceRows) -> pl.DataFrame:
    """HTA's critical path with our step, kernel, operator or launch, and module of each edge."""
    path = reading.tables["critical_path"]
    ops = link.link_host(path, ours.ops, "op_id")
    launches = link.link_host(path, ours.launches, "launch_id")
    kernels = events.select("event_index", "kernel_id").unique("event_index")
    path = (
        path.join(kernels, on="event_index", how="left")
        .join(ops, on="position", how="left")
        .join(launches, on="position", how="left")
        .join(link.main_module(ours.shares), on="kernel_id", how="left")
        .join(_host_module(ops, launches, ours), on="position", how="left", suffix="_of_call")
    )
    module = pl.coalesce("module_id", "module_id_of_call")
    step = ours.steps.filter(pl.col("name").eq_missing(pl.lit(reading.critical_path_step)))
    return path.with_columns(module_id=module, step=pl.lit(step["step"].first())).sort("position")


def _host_module(ops: pl.DataFrame, launches: pl.DataFrame, ours: TraceRows) -> pl.DataFrame:
    """The module call around each linked host row, or around the forward work it is backward of."""
    at = ["position", "thread", "start_ns"]
    rows = pl.concat(
        [
            ops.join(ours.ops, on="op_id").select(at),
            launches.join(ours.launches, on="launch_id").select(at),
        ]
    )
    around = link.calling_module(rows, ours.calls)
    made = link.made_by(rows.join(around, on="position", how="anti"), ours.ops, ours.steps)
    return pl.concat([around, link.calling_module(made, ours.calls)])
