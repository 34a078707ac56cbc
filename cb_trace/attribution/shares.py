"""Split durations by shares so that the parts sum to the whole, to the nanosecond."""

from __future__ import annotations

import polars as pl


def split_by_shares(rows: pl.DataFrame) -> pl.DataFrame:
    """Set ``share`` and ``ns`` of rows that hold several shares of one kernel.

    :param rows: has ``kernel_id``, ``dur_ns`` and ``share``, a weight ≥ 0 in any unit; the weights
        of one kernel need not sum to 1 but must not all be 0. The rows' order is kept.
    :returns: the rows with ``share`` summing to 1 and integer ``ns`` summing to ``dur_ns`` for each
        kernel: the running sums are rounded, not the parts, and the last is the duration itself.
    """
    whole = pl.col("share").sum().over("kernel_id")
    running = pl.col("share").cum_sum().over("kernel_id") / whole
    rounded = (running * pl.col("dur_ns")).round().cast(pl.Int64)
    last = pl.int_range(pl.len()).over("kernel_id") == pl.len().over("kernel_id") - 1
    until = pl.when(last).then("dur_ns").otherwise(pl.min_horizontal(rounded, "dur_ns"))
    return (
        rows.with_columns(until.alias("until"), share=pl.col("share") / whole)
        .with_columns(ns=pl.col("until") - pl.col("until").shift(1, fill_value=0).over("kernel_id"))
        .drop("until")
    )
