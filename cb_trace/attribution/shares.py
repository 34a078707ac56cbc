"""Split durations by shares so that the parts sum to the whole, to the nanosecond."""

from __future__ import annotations

import polars as pl

FINEST = 2.0**52  # shares are multiples of its inverse: sums of such are exact, in any order


def split_by_shares(rows: pl.DataFrame) -> pl.DataFrame:
    """Set ``share`` and ``ns`` of rows that hold several shares of one kernel.

    :param rows: has ``kernel_id``, ``dur_ns`` and ``share``, a weight ≥ 0 in any unit; the weights
        of one kernel need not sum to 1 but must not all be 0. The rows' order is kept.
    :returns: the rows with ``share`` summing to 1 and integer ``ns`` summing to ``dur_ns`` for each
        kernel, both exactly: running sums are rounded, not parts, and the last is the whole.
    """
    whole = pl.col("share").sum().over("kernel_id")
    last = pl.int_range(pl.len()).over("kernel_id") == pl.len().over("kernel_id") - 1
    running = pl.min_horizontal(pl.col("share").cum_sum().over("kernel_id") / whole, pl.lit(1.0))
    part = pl.when(last).then(1.0).otherwise((running * FINEST).round() / FINEST)
    rounded = (part * pl.col("dur_ns")).round().cast(pl.Int64)
    until = pl.when(last).then("dur_ns").otherwise(pl.min_horizontal(rounded, "dur_ns"))

    def own(name: str) -> pl.Expr:
        return pl.col(name) - pl.col(name).shift(1, fill_value=0).over("kernel_id")

    return rows.with_columns(until=until, part=part).with_columns(
        ns=own("until"), share=own("part")
    ).drop("until", "part")  # fmt: skip
