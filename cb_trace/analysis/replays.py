"""Figures of each module replayed alone (DESIGN, section 5, Isolated)."""

from __future__ import annotations

import polars as pl

from cb_trace.analysis.shares import ancestors
from cb_trace.analysis.stats import halves_up, interval_stats
from cb_trace.columns import polars_schema
from cb_trace.range_names import REPLAY_PREFIX

_FIGURES = ["median_ns", "low_ns", "high_ns", "samples", "kernel_ns", "busy_ns"]


def replay_figures(
    replay: pl.DataFrame,
    replay_sample: pl.DataFrame,
    replay_kernel: pl.DataFrame,
    kernel: pl.DataFrame,
    annotation: pl.DataFrame,
    *,
    device_type: str | None,
) -> pl.DataFrame:
    """The ``replay`` frame with median, bounds, samples, ``kernel_ns`` and ``busy_ns`` filled in.

    ``kernel`` and ``annotation`` are those of the traces of role isolated, all together. Figures
    are per call: the median of the bare samples; K and U as means over the profiled calls, on a
    CPU scaled by bare ÷ profiled wall (of the ``cb_replay:`` ranges). A record shares the figures
    of its ``measured_id``. What was skipped or not profiled stays NULL.
    """
    walls = _profiled_calls(annotation)
    device = _device_time(replay_kernel, kernel)
    figures = _bare(replay_sample).join(walls, on="measured_id", how="full", coalesce=True)
    figures = figures.join(device, on="measured_id", how="left").with_columns(
        pl.when(pl.col("calls_profiled") > 0).then(pl.col("kernel_sum", "busy_sum").fill_null(0))
    )
    rows = [
        {**row, **_per_call(row, cpu=device_type == "cpu")} for row in figures.iter_rows(named=True)
    ]
    schema = polars_schema("replay")
    filled = pl.DataFrame(
        rows, schema={"measured_id": pl.Int32, **{n: schema[n] for n in _FIGURES}}
    )
    measured = pl.col("skipped").is_null()
    return (
        replay.drop(_FIGURES)
        .join(filled, on="measured_id", how="left")
        .with_columns(pl.when(measured).then(pl.col(_FIGURES)))
        .select(pl.col(name).cast(kind) for name, kind in schema.items())
    )


def other_calls(replay: pl.DataFrame, module_call: pl.DataFrame) -> pl.DataFrame:
    """Modules that the profiled steps called another number of times than the captured one did.

    Both of the forward, a step; a call inside a call of its module is part of it. What they cost
    alone is then of other work than what they cost in the step, or nothing is known of it: some
    steps call a module, and the captured one did not. Where steps show none of their calls (a CUDA
    graph, compiled code) there is nothing to tell.

    :returns: ``module_id``, ``captured``, ``profiled``: the mean of the steps, as costs are.
    """
    forward = pl.col("phase") == "forward"
    rows = replay.filter(forward & (pl.col("condition") == "hot"))
    captured = rows.group_by("module_id").agg(captured=pl.col("calls").sum())
    if captured.is_empty():  # nothing was to be measured alone
        return captured.with_columns(profiled=pl.lit(None, pl.Float64))
    calls = _outermost(module_call.filter(forward)).filter(pl.col("step").is_not_null())
    steps = calls.select("step").unique()
    seen = calls.group_by("module_id", "step").agg(n=pl.len())
    return (
        seen.group_by("module_id")
        .agg(profiled=pl.col("n").sum() / steps.height, steps=pl.len())
        .join(captured, on="module_id", how="left")
        .filter(pl.col("captured").is_not_null() | (pl.col("steps") < steps.height))
        .with_columns(pl.col("captured").fill_null(0))
        .filter(pl.col("profiled") != pl.col("captured"))
        .select("module_id", "captured", "profiled")
        .sort("module_id")
    )


def _outermost(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls that no other call of the same module is around."""
    inner = _around(calls).filter(pl.col("above") == pl.col("module_id")).select("call_id")
    return calls.join(inner, on="call_id", how="anti")


def _around(calls: pl.DataFrame) -> pl.DataFrame:
    """``call_id, module_id`` of every call with the module of each call around it, ``above``."""
    known = calls.select(up="call_id", above="module_id", next="parent_call_id")
    climbing = calls.select("call_id", "module_id", up="parent_call_id").drop_nulls("up")
    found = [climbing.select("call_id", "module_id", above="module_id").clear()]
    while climbing.height:  # once a level of nesting
        climbing = climbing.join(known, on="up")
        found.append(climbing.select("call_id", "module_id", "above"))
        climbing = climbing.select("call_id", "module_id", up="next").drop_nulls("up")
    return pl.concat(found)


def without_elsewhere(
    replay: pl.DataFrame, module_call: pl.DataFrame, module: pl.DataFrame
) -> pl.DataFrame:
    """The ``replay`` frame without figures of modules that call one from elsewhere in the tree.

    A shared module has its place, and its figures, under the first that holds it. Others that call
    it have its work alone and not in the step: no difference of the two would be true.
    """
    forward = module_call.filter(pl.col("phase") == "forward")
    reason = pl.format("it calls {}, which stands elsewhere in the tree", "elsewhere")
    known = pl.col("elsewhere").is_null()
    return (
        replay.join(_calls_elsewhere(forward, module), on="module_id", how="left")
        .with_columns(
            pl.coalesce("skipped", reason).alias("skipped"),
            *(pl.when(known).then(pl.col(name)).alias(name) for name in _FIGURES),
        )
        .select(replay.columns)
    )


def _calls_elsewhere(module_call: pl.DataFrame, module: pl.DataFrame) -> pl.DataFrame:
    """``module_id`` of modules that call one outside their subtree; its path as ``elsewhere``."""
    inside = ancestors(module).select(called="module_id", module_id="ancestor_id")
    paths = module.select(called="module_id", elsewhere="path")
    return (
        _around(module_call)
        .select(called="module_id", module_id="above")
        .unique()
        .join(inside, on=["called", "module_id"], how="anti")
        .join(paths, on="called")
        .sort("module_id", "called")
        .unique("module_id", keep="first", maintain_order=True)
        .select("module_id", "elsewhere")
    )


def _bare(replay_sample: pl.DataFrame) -> pl.DataFrame:
    """Median, bounds and number of the bare samples of each measurement."""
    rows = []
    for (replay_id,), samples in replay_sample.group_by("replay_id", maintain_order=True):
        found = interval_stats(samples["ns"].to_numpy())
        rows.append((replay_id, found.median_ns, found.low_ns, found.high_ns, found.samples))
    names = ["measured_id", *_FIGURES[:4]]
    types = [pl.Int32, pl.Int64, pl.Int64, pl.Int64, pl.Int32]
    return pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")


def _profiled_calls(annotation: pl.DataFrame) -> pl.DataFrame:
    """Profiled calls of each measurement and their wall time together, from their ranges."""
    pattern = f"^{REPLAY_PREFIX}([0-9]+):[0-9]+$"
    measured = pl.col("name").str.extract(pattern).cast(pl.Int32, strict=False)
    return (
        annotation.filter(pl.col("layer") == "user")
        .with_columns(measured_id=measured)
        .drop_nulls("measured_id")
        .group_by("measured_id")
        .agg(calls_profiled=pl.len().cast(pl.Int64), wall=pl.col("dur_ns").sum())
    )


def _device_time(replay_kernel: pl.DataFrame, kernel: pl.DataFrame) -> pl.DataFrame:
    """Σ K and Σ U over the profiled calls; the union is taken within each call, per device."""
    group = ["replay_id", "iteration", "device"]
    end = pl.col("start_ns") + pl.col("dur_ns")
    covered = end.cum_max().shift(1).over(group)
    added = end - pl.max_horizontal("start_ns", covered)
    return (
        replay_kernel.join(
            kernel.select("kernel_id", "device", "start_ns", "dur_ns"), on="kernel_id"
        )
        .with_columns(pl.col("device").fill_null(-1), pl.col("dur_ns").fill_null(0))
        .sort(*group, "start_ns", "kernel_id")
        .with_columns(added=added.clip(0))
        .group_by(measured_id="replay_id")
        .agg(kernel_sum=pl.col("dur_ns").sum(), busy_sum=pl.col("added").sum())
    )


def _per_call(row: dict[str, int | None], *, cpu: bool) -> dict[str, int | None]:
    """K and U a call: over the number of calls, or on a CPU times bare ÷ profiled wall."""
    up, down = (row["median_ns"], row["wall"]) if cpu else (1, row["calls_profiled"])
    return {
        f"{name}_ns": None
        if row[f"{name}_sum"] is None or up is None or not down
        else halves_up(int(row[f"{name}_sum"] or 0) * up, down)
        for name in ("kernel", "busy")
    }
