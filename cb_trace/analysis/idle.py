"""Of what kind the idle time before a kernel is.

Read from the call that launched the kernel (facts: measuring, section 4; the host rule is HTA's).
In order of precedence:

- ``idle_copy``: the kernel is a memcpy and its launch blocks: the call is no ``…Async`` one, or
  it returned only after the copy had ended (pageable memory).
- ``idle_sync``: on the launching thread a ``…Synchronize`` call was issued before the launch and
  returned after the device had run dry.
- ``idle_host``: the launch was issued after the device had run dry. On a CPU: always.
- ``idle_gap``: otherwise: launched in time, so the gap is the device's; also where no launch is
  known.
"""

from __future__ import annotations

import polars as pl

from cb_trace.analysis.stats import IntArray

HOST, GAP, SYNC, COPY = "idle_host", "idle_gap", "idle_sync", "idle_copy"


def sync_calls(launch: pl.DataFrame) -> pl.DataFrame:
    """The calls that wait for the device: ``thread, start_ns, returned_ns``, by start.

    ``returned_ns`` is the latest return among the thread's calls so far (calls may nest).
    """
    return (
        launch.filter(pl.col("name").str.contains("Synchronize", literal=True))
        .select("thread", "start_ns", returned_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .sort("start_ns")
        .with_columns(pl.col("returned_ns").cum_max().over("thread"))
    )


def idle_kinds(
    kernel: pl.DataFrame, dry_ns: IntArray, launch: pl.DataFrame, *, cpu: bool
) -> pl.Series:
    """The kind of idle before each kernel.

    :param kernel: the kernels that end an idle stretch, one row each, in order.
    :param dry_ns: when the device ran dry before each.
    """
    called = launch.select(
        "launch_id",
        call="name",
        called_ns="start_ns",
        returned_ns=pl.col("start_ns") + pl.col("dur_ns"),
        caller="thread",
    )
    rows = (
        kernel.with_columns(dry_ns=pl.Series(dry_ns, dtype=pl.Int64))
        .with_row_index("order")
        .join(called, on="launch_id", how="left")
        .sort("called_ns")
        .join_asof(
            sync_calls(launch).rename({"returned_ns": "synced_ns"}),
            left_on="called_ns",
            right_on="start_ns",
            by_left="caller",
            by_right="thread",
            check_sortedness=False,  # both are sorted; polars cannot tell within groups
        )
        .sort("order")
    )
    ended = pl.col("start_ns") + pl.col("dur_ns")
    blocking = ~pl.col("call").str.contains("Async", literal=True) | (
        pl.col("returned_ns") >= ended
    )
    on_host = pl.lit(cpu) | (pl.col("kind") == "cpu")
    return rows.select(
        pl.when(on_host)
        .then(pl.lit(HOST))
        .when((pl.col("kind") == "memcpy") & blocking)
        .then(pl.lit(COPY))
        .when(pl.col("synced_ns") > pl.col("dry_ns"))
        .then(pl.lit(SYNC))
        .when(pl.col("called_ns") > pl.col("dry_ns"))
        .then(pl.lit(HOST))
        .otherwise(pl.lit(GAP))
    ).to_series()
