"""How long modules keep the device busy alone, a step."""

from __future__ import annotations

import polars as pl


def device_alone(replay: pl.DataFrame, modules: pl.DataFrame) -> pl.DataFrame:
    """``module_id, condition, calls, ns``, a step; none where one of the calls is not known.

    :param replay: forward replays, none skipped, with the figures of their measurements.
    :param modules: those wanted, with all their calls in ``replay``.
    """
    rows = replay.join(modules.select("module_id").unique(), on="module_id", how="semi")
    per_step = rows.group_by("module_id", "condition").agg(
        pl.col("calls").sum(),
        ns=(pl.col("calls") * pl.col("busy_ns")).sum(),
        unknown=pl.col("busy_ns").null_count(),
    )
    return per_step.filter(pl.col("unknown") == 0).drop("unknown")
