"""Host overheads of operators (T1 to T5) in bare time, and a step predicted from those of others.

As in the performance-model papers (shared facts, models.md section 8), with figures measured here:
what the profiler saw, times the factor of the module it was seen in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from cb_trace.analysis.calibrate import Scale, bare_host
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.program import Program
from cb_trace.analysis.segments import T1
from cb_trace.analysis.stats import FloatArray
from cb_trace.columns import polars_schema

_KEY = ["kind", "name", "launches", "boundaries"]


def host_overheads(steps: Sequence[Program], parts: Parts, *, run_id: str) -> pl.DataFrame:
    """Table ``overhead``: medians and quartiles over all segments of some profiled steps.

    Where a kind of segment was seen in modules that the host bounds alone, they are of those.
    """
    if not steps:
        return pl.DataFrame(schema=polars_schema("overhead"))
    seen = pl.concat([_bare(program, parts) for program in steps])
    best = pl.col("bare").filter(pl.col("known") | ~pl.col("known").any())
    rows = seen.group_by(_KEY).agg(
        count=pl.len(), measured=pl.col("known").sum(), profiled=pl.col("ns").median(),
        value=best.median(), low=best.quantile(0.25), high=best.quantile(0.75),
    )  # fmt: skip
    named = rows.with_columns(run_id=pl.lit(run_id), unit=pl.lit("ns"))
    schema = polars_schema("overhead")
    return named.select(pl.col(name).cast(kind) for name, kind in schema.items()).sort(_KEY)


def _bare(program: Program, parts: Parts) -> pl.DataFrame:
    """The segments of a step with their ``bare`` length, and whether its factor is ``known``."""
    count = program.segments.height
    inside = program.work_segment >= 0
    rows = program.work_segment[inside]
    owner = program.work_owner[inside]
    work = program.work_ns[inside].astype(np.float64)
    between = program.work_between[inside].astype(np.int64)
    factor = parts.host(program.owners)[owner, between]
    own = np.array([module in parts.factors.own for module, _ in program.owners], np.float64)
    seen = np.bincount(rows, work, count)
    ratio = np.divide(
        np.bincount(rows, work * factor, count), seen, out=np.ones(count), where=seen > 0
    )
    known = np.bincount(rows, work * own[owner], count) > seen / 2
    return program.segments.select(
        *_KEY, "ns", bare=pl.col("ns") * pl.Series(ratio), known=pl.Series(known)
    )


def pooled(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One row a kind of segment of several recordings: the median of theirs, each by its count.

    What no recording measured stands only where none did.
    """
    every = pl.concat(tables).sort(*_KEY, "value")
    every = every.filter((pl.col("measured") > 0) | ~(pl.col("measured") > 0).any().over(_KEY))
    half = pl.col("count").cum_sum() >= pl.col("count").sum() / 2
    return every.group_by(_KEY).agg(
        pl.col("value", "profiled").filter(half).first(), pl.col("count", "measured").sum()
    )


def with_overheads(program: Program, table: pl.DataFrame) -> Scale:
    """The eager step whose host takes as long as the rows of ``table`` say.

    A segment that the table has no like of takes what those of its operator take, or those of its
    kind; a gap what a line through the gaps gives for its boundaries. Work between segments shrinks
    as gaps do.
    """
    gaps = table.filter(pl.col("kind") == T1)
    ratio = _weighted(gaps, "value") / _weighted(gaps, "profiled") if gaps.height else 1.0
    program, _ = bare_host(program, np.full((len(program.owners), 2), ratio))
    wanted = _wanted(program.segments, table)
    inside = program.work_segment >= 0
    rows = program.work_segment[inside]
    now = np.bincount(rows, program.work_ns[inside].astype(np.float64), program.segments.height)
    scale = np.divide(wanted, now, out=np.ones(now.size), where=(now > 0) & ~np.isnan(wanted))
    work = program.work_ns.astype(np.float64)
    work[inside] *= scale[rows]
    made = replace(program, work_ns=np.round(work).astype(np.int64))
    return Scale(program=made, host=1.0, device=1.0, gap=1.0)


def _weighted(rows: pl.DataFrame, column: str) -> float:
    return float((rows[column] * rows["count"]).sum())


def _wanted(segments: pl.DataFrame, table: pl.DataFrame) -> FloatArray:
    """What each segment should take; NaN where the table does not say."""
    found = segments.with_row_index("row")
    exact = found.join(table, on=_KEY, how="left", nulls_equal=True)
    for number, key in enumerate((["kind", "name"], ["kind"])):
        mean = table.filter(pl.col("kind") != T1).group_by(key).agg(
            (pl.col("value") * pl.col("count")).sum().alias(f"like_{number}")
            / pl.col("count").sum()
        )  # fmt: skip
        exact = exact.join(mean, on=key, how="left", nulls_equal=True)
    line = _line(table.filter(pl.col("kind") == T1))
    gap = pl.when(pl.col("kind") == T1).then(line[0] + line[1] * pl.col("boundaries"))
    wanted = pl.coalesce("value", "like_0", "like_1", gap)
    return exact.sort("row").select(wanted.cast(pl.Float64)).to_series().to_numpy()


def _line(gaps: pl.DataFrame) -> tuple[float, float]:
    """Length of a gap by the boundaries in it: what there is without any, and of each."""
    if gaps["boundaries"].n_unique() < 2:
        return (_weighted(gaps, "value") / float(gaps["count"].sum()) if gaps.height else 0.0), 0.0
    weight = np.sqrt(gaps["count"].to_numpy())
    slope, rest = np.polyfit(gaps["boundaries"].to_numpy(), gaps["value"].to_numpy(), 1, w=weight)
    return max(0.0, float(rest)), max(0.0, float(slope))
