"""How long modules keep the device busy alone, a step."""

from __future__ import annotations

import polars as pl


def device_alone(replay: pl.DataFrame, modules: pl.DataFrame) -> pl.DataFrame:
    """``module_id, condition, ns``: all calls of a step; none where one of them is not known.

    :param replay: forward replays, none skipped; figures stand where they were measured.
    :param modules: those wanted, with all their calls in ``replay``.
    """
    source = replay.filter(pl.col("replay_id") == pl.col("measured_id")).select(
        "measured_id", ns="busy_ns"
    )
    rows = replay.join(modules.select("module_id").unique(), on="module_id", how="semi").join(
        source, on="measured_id", how="left"
    )
    per_step = rows.group_by("module_id", "condition").agg(
        ns=(pl.col("calls") * pl.col("ns")).sum(), unknown=pl.col("ns").null_count()
    )
    return per_step.filter(pl.col("unknown") == 0).drop("unknown")
