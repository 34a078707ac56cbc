"""The host's time in a step cut by operator, into the five kinds of the performance-model papers.

Shared facts, models.md section 8: T1 between operators, T2 from an operator's start to its first
launch, T4 the launch call itself, T5 between two launches of one operator (all of it where it
launches nothing), T3 from the last launch to the operator's end. An operator here is an outermost
one: what it calls is part of it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

T1, T2, T3, T4, T5 = "T1", "T2", "T3", "T4", "T5"

# What makes two segments alike. ``boundaries``: module calls that begin or end in a gap.
KEY = ["kind", "name", "launches", "inner", "boundaries"]
_PLACE = ["step", "thread"]


def host_segments(
    *,
    op: pl.DataFrame,
    launch: pl.DataFrame,
    kernel: pl.DataFrame,
    module_call: pl.DataFrame,
    step: pl.DataFrame,
) -> pl.DataFrame:
    """Segments of all steps, apart and in order on each thread.

    Columns ``step, thread, start_ns, ns``, those of :data:`KEY`, and ``usual_ns``: the median of
    all like segments, which a cold start or a full launch queue does not move.
    """
    started = launch.join(kernel.select("launch_id").unique(), on="launch_id", how="semi")
    calls = _in_steps(started, step)
    tops = _outermost(_in_steps(op, step))
    calls = _inside(calls, tops)
    parts = [_in_operators(tops, calls), _calls(tops, calls)]
    gaps = _gaps(pl.concat([_ends(tops), _ends(calls.filter(pl.col("top").is_null()))]))
    parts.append(_with_boundaries(gaps, module_call))
    found = pl.concat(parts, how="diagonal_relaxed").filter(pl.col("ns") > 0)
    usual = pl.col("ns").median().over(KEY, mapping_strategy="group_to_rows")
    return found.with_columns(usual_ns=usual.cast(pl.Float64)).sort(*_PLACE, "start_ns")


def _in_steps(rows: pl.DataFrame, step: pl.DataFrame) -> pl.DataFrame:
    """``step, thread, name, start_ns, end_ns`` of what starts in a step."""
    steps = step.sort("start_ns").select(
        "step", step_start="start_ns", step_end=pl.col("start_ns") + pl.col("dur_ns")
    )
    ends = rows.select("thread", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    return (
        ends.sort("start_ns")
        .join_asof(steps, left_on="start_ns", right_on="step_start")
        .filter(pl.col("start_ns") < pl.col("step_end"))
        .select(*_PLACE, "name", "start_ns", "end_ns")
    )


def _outermost(ops: pl.DataFrame) -> pl.DataFrame:
    """Operators that no other holds, numbered by ``top``, with how many each holds."""
    ordered = ops.sort(*_PLACE, "start_ns", pl.col("end_ns"), descending=[False] * 3 + [True])
    before = pl.col("end_ns").cum_max().over(_PLACE).shift(1).over(_PLACE)
    outer = before.is_null() | (pl.col("start_ns") >= before)
    numbered = ordered.with_columns(top=outer.cast(pl.Int64).cum_sum() - 1)
    return numbered.group_by("top", maintain_order=True).agg(
        pl.col("step", "thread", "name", "start_ns", "end_ns").first(), inner=pl.len() - 1
    )


def _inside(calls: pl.DataFrame, tops: pl.DataFrame) -> pl.DataFrame:
    """Launch calls with the outermost operator around each; ``top`` null outside all."""
    around = tops.select(*_PLACE, "top", "start_ns", top_end="end_ns").sort("start_ns")
    found = calls.sort("start_ns").join_asof(
        around, on="start_ns", by=_PLACE, check_sortedness=False
    )
    inside = pl.col("start_ns") < pl.col("top_end")
    top = pl.when(inside).then(pl.col("top"))
    return found.with_columns(top=top).sort("top", "start_ns")


def _in_operators(tops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """T2, T3 and T5: what operators do beside their launch calls."""
    edges = calls.drop_nulls("top").group_by("top", maintain_order=True).agg(
        begins="start_ns", ends="end_ns", launches=pl.len()
    )  # fmt: skip
    rows = tops.join(edges, on="top", how="left").with_columns(
        pl.col("launches").fill_null(0).cast(pl.Int64), pl.col("inner").cast(pl.Int64)
    )
    empty = pl.lit([], pl.List(pl.Int64))
    own = pl.concat_list
    rows = rows.with_columns(
        start_ns=own("start_ns", pl.col("ends").fill_null(empty)),
        end_ns=own(pl.col("begins").fill_null(empty), "end_ns"),
    )
    parts = rows.explode("start_ns", "end_ns").with_columns(
        number=pl.int_range(pl.len()).over("top")
    )
    kind = (
        pl.when(pl.col("launches") == 0).then(pl.lit(T5))
        .when(pl.col("number") == 0).then(pl.lit(T2))
        .when(pl.col("number") == pl.col("launches")).then(pl.lit(T3))
        .otherwise(pl.lit(T5))
    )  # fmt: skip
    return _rows(parts.with_columns(kind=kind), "launches", "inner")


def _calls(tops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """T4; outside operators it bears the name of the call."""
    named = calls.join(tops.select("top", operator="name"), on="top", how="left")
    return _rows(named.with_columns(pl.coalesce("operator", "name").alias("name"), kind=pl.lit(T4)))


def _ends(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(*_PLACE, "start_ns", "end_ns")


def _gaps(items: pl.DataFrame) -> pl.DataFrame:
    """T1: between what follows one another on a thread in a step."""
    after = items.sort(*_PLACE, "start_ns").with_columns(
        begin=pl.col("end_ns").shift(1).over(_PLACE)
    )
    gaps = after.drop_nulls("begin").with_columns(start_ns="begin", end_ns="start_ns")
    return _rows(gaps.with_columns(kind=pl.lit(T1), name=pl.lit(None, pl.String)))


def _rows(rows: pl.DataFrame, *more: str) -> pl.DataFrame:
    ns = pl.col("end_ns") - pl.col("start_ns")
    return rows.select(*_PLACE, "start_ns", "kind", "name", *more, ns=ns)


def _with_boundaries(gaps: pl.DataFrame, module_call: pl.DataFrame) -> pl.DataFrame:
    """How many calls of modules begin or end in each gap."""
    counts = np.zeros(gaps.height, np.int64)
    threads = gaps["thread"].to_numpy()
    begin = gaps["start_ns"].to_numpy()
    end = begin + gaps["ns"].to_numpy()
    for thread in gaps["thread"].unique().to_list():
        mine = module_call.filter(pl.col("thread") == thread)
        edges = pl.concat([mine["start_ns"], mine["start_ns"] + mine["dur_ns"]]).sort().to_numpy()
        here = threads == thread
        counts[here] = np.searchsorted(edges, end[here]) - np.searchsorted(edges, begin[here])
    return gaps.with_columns(boundaries=pl.Series(counts, dtype=pl.Int64))
