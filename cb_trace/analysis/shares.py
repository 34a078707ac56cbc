"""Kernels over the module tree: ancestors, and shares as whole parts so that sums stay exact."""

from __future__ import annotations

import numpy as np
import polars as pl

WHOLE = 1 << 20  # a share of 1; parts of it keep durations up to two hours within int64


def ancestors(module: pl.DataFrame) -> pl.DataFrame:
    """Every module with itself and each of its ancestors: ``module_id``, ``ancestor_id``."""
    own = module["module_id"].to_numpy()
    row = dict(zip(own.tolist(), range(len(own)), strict=True))
    up = np.array([row.get(parent, -1) for parent in module["parent_id"].to_list()], np.int64)
    below = at = np.arange(len(own))
    levels = [(below, at)]
    for _ in range(len(own)):  # as deep as a chain of all of them; a cycle cannot hang it
        known = up[at] >= 0
        below, at = below[known], up[at[known]]
        if not len(at):
            break
        levels.append((below, at))
    module_id, ancestor_id = (own[np.concatenate(side)] for side in zip(*levels, strict=True))
    return pl.DataFrame({"module_id": module_id, "ancestor_id": ancestor_id})


def kernel_shares(kernel_module: pl.DataFrame) -> pl.DataFrame:
    """``kernel_id, module_id, phase, ns, weight, upto, fused``: a row a kernel, module and phase.

    The ``weight`` of one kernel's rows sum to :data:`WHOLE`; ``upto`` is their running sum, this
    row included, so that a time t splits exactly into t·upto − t·(upto − weight), each rounded.
    ``fused``: the kernel has several rows.
    """
    names = ["kernel_id", "module_id", "phase", "ns"]
    several = pl.col("kernel_id").is_duplicated()
    single = kernel_module.filter(~several).select(
        *names,
        weight=pl.lit(WHOLE, pl.Int64),
        upto=pl.lit(WHOLE, pl.Int64),
        fused=pl.lit(value=False),
    )
    last = pl.col("kernel_id").is_last_distinct()
    running = (pl.col("share").cum_sum().over("kernel_id") * WHOLE).round().cast(pl.Int64)
    fused = (
        kernel_module.filter(several)
        .group_by(names[:3], maintain_order=True)
        .agg(pl.col("ns").sum(), pl.col("share").sum())
        .sort("kernel_id", maintain_order=True)
        .with_columns(upto=pl.when(last).then(WHOLE).otherwise(running.clip(0, WHOLE)))
        .with_columns(
            weight=pl.col("upto") - pl.col("upto").shift(1, fill_value=0).over("kernel_id")
        )
        .select(*names, "weight", "upto", fused=pl.lit(value=True))
    )
    return pl.concat([single, fused])


def with_step_phase(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the rows of phase ``step``, all phases together, where modules work in more than one."""
    attributed = rows.drop_nulls(["module_id", "phase"])
    if attributed["phase"].n_unique() < 2 or "step" in attributed["phase"]:
        return rows
    return pl.concat([rows, attributed.with_columns(phase=pl.lit("step"))])


def split_by_share(ns: str) -> pl.Expr:
    """The part of column ``ns`` that a row of :func:`kernel_shares` owns."""
    before = pl.col("upto") - pl.col("weight")
    return _portion(ns, pl.col("upto")) - _portion(ns, before)


def _portion(ns: str, weight: pl.Expr) -> pl.Expr:
    return (pl.col(ns) * weight + WHOLE // 2) // WHOLE


def inclusive(kernel: pl.DataFrame, shares: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """Kernels under each module, children included: one row a module, phase and kernel.

    ``module_id, phase, kernel_id, step, device, start_ns, dur_ns, ns, weight``.
    """
    owned = shares.drop_nulls("module_id").join(tree, on="module_id")
    key = [pl.col("ancestor_id").alias("module_id"), pl.col("phase"), pl.col("kernel_id")]
    single = owned.filter(~pl.col("fused")).select(*key, "ns", "weight")
    fused = owned.filter("fused").group_by(key).agg(pl.col("ns").sum(), pl.col("weight").sum())
    events = kernel.select("kernel_id", "step", "device", "start_ns", "dur_ns")
    return pl.concat([single, fused]).join(events, on="kernel_id")
