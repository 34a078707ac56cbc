"""K, U and X of every module in the full pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from cb_trace.analysis.shares import WHOLE, ancestors, inclusive, kernel_shares, with_step_phase
from cb_trace.analysis.stats import IntArray
from cb_trace.analysis.timeline import Levels, levels
from cb_trace.columns import polars_schema

_KEY = ["module_id", "phase"]
_AT_ONCE = 400_000  # rows of a sweep, or those of one group where it has more


def module_context(
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module_call: pl.DataFrame,
    step: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
) -> pl.DataFrame:
    """Per module and phase, children included, means per profiled step: a ``module_context`` frame.

    The frames are those of ONE trace of role context or foreign (``module``: of the run). Only
    kernels and calls inside a step count; without steps the trace is one step. K, U, X in ns as
    DESIGN, section 2. U is taken per device over all its streams; an instant in which only a part
    of fused kernels runs for the module counts by that part, so X ≤ U ≤ K. A module that is never
    called has 0 calls, its descendants' kernels, and the first call among theirs; where there is no
    call either (compiled code, a replayed graph) its first kernel stands for the call. Where
    attributed work has several phases, rows of phase ``step`` hold them together.
    """
    steps = max(1, step.height)
    tree = ancestors(module)
    kernel = kernel.select(
        "kernel_id",
        "step",
        "start_ns",
        pl.col("device").fill_null(-1),
        pl.col("dur_ns").fill_null(0),
    )
    inside = kernel if step.is_empty() else kernel.drop_nulls("step")
    calls = module_call if step.is_empty() else module_call.drop_nulls("step")
    shares = with_step_phase(kernel_shares(kernel_module))
    rows = inclusive(inside, shares, tree)
    if "step" in shares["phase"]:
        first = calls.filter(phase="forward").with_columns(phase=pl.lit("step"))
        calls = pl.concat([calls, first])
    figures = (
        _first_calls(calls, tree, steps)
        .join(_sums(rows, steps), on=_KEY, how="full", coalesce=True, nulls_equal=True)
        .join(_busy(rows, kernel, steps), on=_KEY, how="left", nulls_equal=True)
        .with_columns(
            kernel_ns=(pl.col("kernel_ns") * 2 + steps) // (2 * steps), run_id=pl.lit(run_id)
        )
    )
    schema = polars_schema("module_context")
    columns = (pl.col(name).cast(kind) for name, kind in schema.items())
    return _filled(figures).select(columns).sort(_KEY)


def _filled(figures: pl.DataFrame) -> pl.DataFrame:
    """Nothing where nothing ran; the first kernel where there is no call; X ≤ U ≤ K."""
    return (
        figures.with_columns(
            pl.col("calls", "kernels").fill_null(0.0),
            pl.col("kernel_ns", "busy_ns", "exposed_ns").fill_null(0),
        )
        .with_columns(
            ts_ns=pl.coalesce("ts_ns", "first_ns"),
            dur_ns=pl.when(pl.col("ts_ns").is_null()).then("first_dur_ns").otherwise("dur_ns"),
        )
        # Parts of fused kernels are rounded once in K and once in U.
        .with_columns(busy_ns=pl.min_horizontal("busy_ns", "kernel_ns"))
        .with_columns(exposed_ns=pl.min_horizontal("exposed_ns", "busy_ns"))
    )


def _sums(rows: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Kernels per step, K over all steps and the first kernel, per module and phase."""
    return rows.group_by(_KEY).agg(
        kernels=pl.len() / steps,
        kernel_ns=pl.col("ns").sum(),
        first_ns=pl.col("start_ns").min(),
        first_dur_ns=pl.col("dur_ns").get(pl.col("start_ns").arg_min()),
    )


def _first_calls(calls: pl.DataFrame, tree: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Calls per step and the first call; of a module that has none, the first among its own."""
    told = {"start_ns": "ts_ns", "dur_ns": "dur_ns", "trace_id": "trace_id", "thread": "thread"}
    own = pl.col("ancestor_id") == pl.col("module_id")
    of_own = (pl.col(name).filter(own).first() for name in told)
    of_any = (pl.col(name).first() for name in told)
    return (
        calls.select("module_id", "phase", "call_id", *told)
        .sort("start_ns", "call_id")
        .join(tree, on="module_id", maintain_order="left")
        .group_by("ancestor_id", "phase")
        .agg(
            (own.sum() / steps).alias("calls"),
            *(
                pl.when(own.any()).then(mine).otherwise(first).alias(name)
                for mine, first, name in zip(of_own, of_any, told.values(), strict=True)
            ),
        )
        .rename({"ancestor_id": "module_id"})
    )


def _busy(rows: pl.DataFrame, kernel: pl.DataFrame, steps: int) -> pl.DataFrame:
    """U and X per module and phase, summed over devices, mean over steps (half up)."""
    keys = rows.select(_KEY).unique().sort(_KEY).with_row_index("group")
    wanted = (*_KEY, "device", "start_ns", "dur_ns", "weight")
    rows = rows.filter(pl.col("dur_ns") > 0).select(wanted)
    rows = rows.join(keys, on=_KEY, nulls_equal=True).drop(_KEY)
    totals = np.zeros((4, keys.height), np.int64)
    for device in rows["device"].unique().sort():
        every = kernel.filter((pl.col("device") == device) & (pl.col("dur_ns") > 0))
        start, end = _bounds(every)
        on_device = levels(start, end)
        for part in _by_groups(rows.filter(pl.col("device") == device)):
            totals += _sweep(part, on_device, keys.height)
    busy, busy_parts, exposed, exposed_parts = totals.tolist()
    return keys.drop("group").with_columns(
        busy_ns=_mean(busy, busy_parts, steps), exposed_ns=_mean(exposed, exposed_parts, steps)
    )


def _by_groups(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows in parts of whole groups: a sweep holds ten times what its rows do."""
    sizes = rows.group_by("group").len().sort("group")
    part = sizes["len"].cum_sum() // _AT_ONCE
    for groups in sizes.with_columns(part=part).partition_by("part", maintain_order=True):
        first, last = groups["group"][0], groups["group"][-1]
        yield rows.filter(pl.col("group").is_between(first, last))


def _sweep(rows: pl.DataFrame, device: Levels, groups: int) -> IntArray:
    """Sum U and X of every group in one pass over the starts and ends of its kernels.

    Returns rows U whole, U in parts of WHOLE, X whole, X in parts. Between two changes of a group
    n of its kernels run with the weights w; the part of that time in which exactly n kernels run
    on the device is exposed.
    """
    start, end = _bounds(rows)
    group, weight = rows["group"].to_numpy().astype(np.int64), rows["weight"].to_numpy()
    edge = np.concatenate([device.index(start), device.index(end)])
    order = _by_group(np.tile(group, 2), edge, groups)
    edge, group = edge[order], np.tile(group, 2)[order]
    one = np.ones_like(weight)
    running = np.cumsum(np.concatenate([one, -one])[order])[:-1]
    weighed = np.cumsum(np.concatenate([weight, -weight])[order])[:-1]
    busy = running > 0  # the last change of a group leaves none running: no stretch crosses groups
    first, last, group = edge[:-1][busy], edge[1:][busy], group[:-1][busy]
    length = device.edge[last] - device.edge[first]
    alone = device.between(running[busy], first, last)
    whole = weighed[busy] >= WHOLE
    part = np.where(whole, 0, weighed[busy])
    values = np.stack((length * whole, length * part, alone * whole, alone * part))
    sums = np.zeros((4, groups), np.int64)
    begin = np.flatnonzero(np.diff(group, prepend=-1))
    if begin.size:
        sums[:, group[begin]] = np.add.reduceat(values, begin, axis=1)
    return sums


def _by_group(group: IntArray, edge: IntArray, groups: int) -> IntArray:
    """The order by group, then edge. Times are almost in order, and few groups need no sorting."""
    by_edge = np.argsort(edge, kind="stable")
    number = group[by_edge]
    if groups <= np.iinfo(np.uint16).max:
        number = number.astype(np.uint16)
    return by_edge[np.argsort(number, kind="stable")]


def _bounds(rows: pl.DataFrame) -> tuple[IntArray, IntArray]:
    start = rows["start_ns"].to_numpy()
    return start, start + rows["dur_ns"].to_numpy()


def _mean(whole: list[int], parts: list[int], steps: int) -> pl.Series:
    unit = WHOLE * steps
    return pl.Series(
        [(w * WHOLE + p + unit // 2) // unit for w, p in zip(whole, parts, strict=True)],
        dtype=pl.Int64,
    )
