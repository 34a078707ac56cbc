"""Who launched what, in which operator, step and module slice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cb_trace.arrays import distinct
from cb_trace.trace import sql
from cb_trace.trace.nest import Ints, nest
from cb_trace.trace.python_modules import Frames, module_tree
from cb_trace.trace.results import Drop

if TYPE_CHECKING:
    import duckdb

REFUSED = "correlation id of several ranks, not linked"
CLAMPED_FRAME = "python frame clamped to its caller"


def link_launches(connection: duckdb.DuckDBPyConnection, trace_id: int) -> None:
    """Fill ``launch_op``: the innermost operator around each launch's start, on its thread."""
    calls = _arrays(
        connection, "SELECT launch_id, CAST(thread AS BIGINT) AS thread, start_ns FROM raw_launch"
    )
    ops = _intervals(connection, trace_id)
    if len(calls["launch_id"]):
        at = nest(ops["thread"], ops["start_ns"], ops["dur_ns"]).innermost(
            calls["thread"], calls["start_ns"]
        )
    else:
        at = np.zeros(0, np.int64)
    inside = at >= 0
    found = {"launch_id": calls["launch_id"][inside], "op_id": ops["op_id"][at[inside]]}
    _create(connection, "launch_op", found)


def link_kernels(connection: duckdb.DuckDBPyConnection) -> list[Drop]:
    """Fill ``raw_link``: kernel to launch by correlation id; list what must stay unlinked."""
    calls, ids = connection.execute(
        "SELECT count(correlation), count(DISTINCT correlation) FROM raw_launch"
    ).fetchall()[0]
    drops = []
    if calls == ids:
        sql.run(connection, sql.text("link"))
    else:
        sql.run(connection, sql.text("link_shared"))
        if refused := sql.value(connection, "SELECT count(*) FROM raw_choice WHERE refused"):
            drops.append(Drop(REFUSED, refused))
    if sql.value(connection, sql.text("foreign_launches")):
        sql.run(connection, sql.text("foreign"))
    sql.run(connection, sql.text("moment"), one_process=_one_process(connection))
    return drops


def link_modules(connection: duckdb.DuckDBPyConnection, trace_id: int, first_id: int) -> list[Drop]:
    """Fill ``python_module`` from the ``nn.Module:`` frames."""
    if not sql.value(connection, "SELECT count(name) FROM raw_frame"):
        return []
    clamped = 0
    for frames, row in _frames(connection):
        parent, end, moved = module_tree(frames)
        clamped += moved
        tree = {
            "row": row[frames.module],
            "python_id": first_id + np.arange(len(parent)),
            "parent": np.where(parent >= 0, first_id + parent, -1),
            "end_ns": end,
        }
        _create(connection, "raw_module", tree)
        sql.run(connection, sql.text("module"), trace_id=trace_id)
        first_id += len(parent)
    return [Drop(CLAMPED_FRAME, clamped)] if clamped else []


def link_cpu_kernels(connection: duckdb.DuckDBPyConnection, trace_id: int, first_id: int) -> None:
    """One ``kernel`` row an uninterrupted stretch of an operator's self time (CPU recordings)."""
    ops = _intervals(connection, trace_id)
    at, start, end = nest(ops["thread"], ops["start_ns"], ops["dur_ns"]).stretches()
    order = np.lexsort((ops["thread"][at], start))
    at, start, end = at[order], start[order], end[order]
    stretches = {
        "kernel_id": first_id + np.arange(len(at)),
        "op_id": ops["op_id"][at],
        "start_ns": start,
        "dur_ns": end - start,
    }
    _create(connection, "raw_stretch", stretches)
    one_process = _one_process(connection)
    sql.run(connection, sql.text("cpu_kernel"), trace_id=trace_id, one_process=one_process)


def _one_process(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the steps are of one process, and so hold for every thread and device."""
    return sql.value(connection, "SELECT any_value(pid) FROM raw_step") in ("", None)


def _frames(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Frames, Ints]]:
    """The frames of each process (Python ids count anew) and their rows in the staging table."""
    columns = _arrays(
        connection,
        "SELECT rowid AS row, CAST(thread AS BIGINT) AS thread, "
        "coalesce(python_id, -1) AS python_id, coalesce(python_parent_id, -1) AS parent_id, "
        "start_ns, start_ns + dur_ns AS end_ns, CAST(name IS NOT NULL AS BIGINT) AS is_module "
        "FROM raw_frame",
    )
    tracks = sql.rows(connection, "SELECT pid, thread FROM raw_track ORDER BY thread")
    number = {pid: at for at, pid in enumerate(dict.fromkeys(pid for pid, _ in tracks))}
    process = np.array([number[pid] for pid, _ in tracks])[columns["thread"] - tracks[0][1]]
    for own in distinct(process):
        rows = {name: column[process == own] for name, column in columns.items()}
        module = np.flatnonzero(rows["is_module"])
        # Rows lie as threads of the reader left them; numbers are to be the same in every run.
        keys = (rows["python_id"][module], rows["thread"][module], rows["start_ns"][module])
        frames = Frames(
            rows["thread"], rows["python_id"], rows["parent_id"], rows["start_ns"],
            rows["end_ns"], module[np.lexsort(keys)],
        )  # fmt: skip
        if len(frames.module):
            yield frames, rows["row"]


def _intervals(connection: duckdb.DuckDBPyConnection, trace_id: int) -> dict[str, Ints]:
    return _arrays(
        connection,
        "SELECT op_id, CAST(thread AS BIGINT) AS thread, start_ns, dur_ns FROM op "
        "WHERE trace_id = $trace_id",
        trace_id=trace_id,
    )


def _arrays(
    connection: duckdb.DuckDBPyConnection, query: str, **parameters: Any
) -> dict[str, Ints]:
    """The columns of a query of integers, none of them null."""
    columns = connection.execute(query, parameters or None).fetchnumpy()
    return {name: np.asarray(column, np.int64) for name, column in columns.items()}


def _create(connection: duckdb.DuckDBPyConnection, table: str, columns: dict[str, Ints]) -> None:
    connection.register("columns", columns)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS FROM columns")
    connection.unregister("columns")
