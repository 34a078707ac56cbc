"""Which of our kernels, operators and modules a row of HTA's is. Frames in, frames out."""

from __future__ import annotations

import numpy as np
import polars as pl

from cb_trace.attribution import backward

_KEY = ("correlation", "stream", "name", "us")


def ceil_us(column: str) -> pl.Expr:
    """Start as HTA rounds it: up to the next whole microsecond."""
    return (pl.col(column) + 999) // 1000


def link_kernels(events: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Match HTA's device rows to ours by correlation, stream, name and start.

    HTA rounds a start up to the microsecond; where the file's times exceed what its doubles hold,
    the next or the previous one is tried. Kernels of one graph launch share the correlation: equal
    keys are paired in time order.

    :param events: columns event_index, correlation, stream, name, start_ns.
    :param kernels: columns of ``kernel``.
    :returns: event_index, kernel_id: one row a matched event, each kernel at most once.
    """
    theirs = events.unique("event_index", keep="first").select(
        "event_index", "correlation", "stream", "name", us=pl.col("start_ns") // 1000
    )
    ours = kernels.select(
        "kernel_id", pl.col("correlation").fill_null(-1), "stream", "name", "start_ns",
        us=ceil_us("start_ns"),
    ).sort("start_ns", "kernel_id")  # fmt: skip
    found = []
    for shift in (0, 1, -1):
        pairs = _pairs(theirs.with_columns(pl.col("us") + shift).sort("event_index"), ours)
        found.append(pairs)
        theirs = theirs.join(pairs, on="event_index", how="anti")
        ours = ours.join(pairs, on="kernel_id", how="anti")
    return pl.concat(found)


def _pairs(theirs: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    place = pl.int_range(pl.len()).over(_KEY).alias("place")
    return theirs.with_columns(place).join(
        ours.with_columns(place), on=[*_KEY, "place"], how="inner"
    ).select("event_index", "kernel_id")  # fmt: skip


def link_host(path: pl.DataFrame, host: pl.DataFrame, key: str) -> pl.DataFrame:
    """Match host rows of the critical path to operators or launches by name and start.

    Two of ours with one name and one rounded start cannot be told apart: then neither is taken.

    :param path: columns position, name, start_ns, stream.
    :param host: columns ``key``, name, start_ns.
    :returns: position, ``key``.
    """
    ours = host.with_columns(us=ceil_us("start_ns")).filter(pl.len().over("name", "us") == 1)
    theirs = path.filter(pl.col("stream").is_null()).with_columns(us=pl.col("start_ns") // 1000)
    return theirs.join(ours, on=["name", "us"], how="inner").select("position", key)


def main_module(kernel_module: pl.DataFrame) -> pl.DataFrame:
    """The module with the largest share of each kernel: kernel_id, module_id.

    A fused kernel has several modules, each with a row a phase; ``kernel_module`` keeps them all.
    """
    whole = kernel_module.group_by("kernel_id", "module_id").agg(pl.col("share").sum())
    return (
        whole.sort("share", "module_id", descending=[True, False], nulls_last=True)
        .unique("kernel_id", keep="first", maintain_order=True)
        .select("kernel_id", "module_id")
    )


def calling_module(rows: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The innermost module call around each host row, on its thread.

    :param rows: columns position, thread, start_ns.
    :param calls: columns of ``module_call``.
    :returns: position, module_id; rows outside every call are left out.
    """
    around = calls.select(
        "thread", "module_id", begin="start_ns", end=pl.col("start_ns") + pl.col("dur_ns")
    )
    inside = rows.select("position", row_thread="thread", at="start_ns").join_where(
        around,
        pl.col("row_thread") == pl.col("thread"),
        pl.col("begin") <= pl.col("at"),
        pl.col("at") < pl.col("end"),
    )
    # The latest begin is the innermost; of calls that begin together, the one that ends first.
    return (
        inside.sort("begin", "end", descending=[True, False])
        .unique("position", keep="first", maintain_order=True)
        .select("position", "module_id")
    )


def made_by(rows: pl.DataFrame, ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Where the forward operator ran that made the autograd node around each host row.

    By sequence number, as the attribution of kernels has it (traces.md row 41).

    :param rows: columns position, thread, start_ns.
    :param ops, steps: columns of ``op`` and ``step``.
    :returns: position, thread, start_ns; rows in no linked backward operator are left out.
    """
    known = backward(ops, steps)
    node, _ = known.around(rows["thread"].to_numpy().astype(np.int64), rows["start_ns"].to_numpy())
    linked = (node >= 0) & np.append(known.linked, False)[node]
    return rows.select("position").with_columns(
        thread=pl.Series(np.append(known.forward_thread, -1)[node], dtype=rows["thread"].dtype),
        start_ns=pl.Series(np.append(known.forward_ns, -1)[node]),
    ).filter(pl.Series(linked, dtype=pl.Boolean))  # fmt: skip
