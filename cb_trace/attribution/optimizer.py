"""Work of the optimizer: launches inside its own annotation, or operator in older traces."""

from __future__ import annotations

import polars as pl

PREFIXES = ["Optimizer.step#", "Optimizer.zero_grad#"]


def optimizer_intervals(annotation: pl.DataFrame, op: pl.DataFrame) -> pl.DataFrame:
    """``thread, start_ns, dur_ns`` of each run of an optimizer's ``step`` or ``zero_grad``."""
    theirs = pl.any_horizontal(pl.col("name").str.starts_with(p) for p in PREFIXES)
    columns = ["thread", "start_ns", "dur_ns"]
    on_host = annotation.filter((pl.col("layer") == "user") & theirs)
    return pl.concat([on_host.select(columns), op.filter(theirs).select(columns)])
