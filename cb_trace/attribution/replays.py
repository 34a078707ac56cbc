"""Kernels of an isolated trace to the replays that ran them."""

from __future__ import annotations

import polars as pl

from cb_trace.attribution.events import TraceEvents, origins
from cb_trace.columns import polars_schema
from cb_trace.range_names import REPLAY_PREFIX


def link_replays(events: TraceEvents, replay: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``replay_kernel``: the kernels launched inside ``cb_replay:<id>:<iteration>`` ranges.

    A range holds what starts in it on any thread: the autograd thread launches a backward replay's
    kernels while the range is open on the main one, and nothing else runs in a replay's process.
    ``position`` counts from 0 by start within the iteration. Ranges of replays that are not in
    ``replay`` are passed over.
    """
    ranges = _ranges(events.annotation, replay).sort("start_ns")
    origin = origins(events)
    kernel = events.kernel.select("kernel_id", "start_ns").with_columns(
        pl.Series("at", origin.at_ns), pl.Series("known", origin.known)
    )
    inside = (
        kernel.filter("known")
        .sort("at")
        .join_asof(
            ranges.select("replay_id", "iteration", "end_ns", pl.col("start_ns").alias("at")),
            on="at", strategy="backward", check_sortedness=False,
        )
        .filter(pl.col("at") < pl.col("end_ns"))
        .sort("replay_id", "iteration", "start_ns", "kernel_id")
    )  # fmt: skip
    position = pl.int_range(pl.len()).over("replay_id", "iteration").alias("position")
    schema = polars_schema("replay_kernel")
    return inside.with_columns(position).select(pl.col(n).cast(t) for n, t in schema.items())


def _ranges(annotation: pl.DataFrame, replay: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("name").str.extract_groups(f"^{REPLAY_PREFIX}(?<id>[0-9]+):(?<iteration>[0-9]+)$")
    found = annotation.filter(pl.col("layer") == "user").select(
        name.struct.field("id").cast(pl.Int32, strict=False),
        name.struct.field("iteration").cast(pl.Int32, strict=False),
        "start_ns",
        end_ns=pl.col("start_ns") + pl.col("dur_ns"),
    )
    measured = replay.select(id="replay_id", replay_id="measured_id")
    return found.drop_nulls().join(measured, on="id")
