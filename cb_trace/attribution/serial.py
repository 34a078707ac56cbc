"""Runs of a graph by the step they repeat: on one stream, in the order of launches, and on all."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cb_trace.attribution.events import TraceEvents
from cb_trace.attribution.evidence import Reference
from cb_trace.attribution.graphs import paired, paired_on_streams


def serial(events: TraceEvents) -> TraceEvents:
    """The same kernels on one stream, in the order the host launched them in.

    That is how a sequence run holds them. ``start_ns`` numbers them; kernels of one launch (a CUDA
    graph) go by their start.
    """
    called = events.launch.select("launch_id", called_ns="start_ns")
    ordered = (
        events.kernel.join(called, on="launch_id", how="left")
        .sort(pl.coalesce("called_ns", "start_ns"), "start_ns", "kernel_id")
        .with_columns(start_ns=pl.int_range(pl.len()), stream=pl.lit(0, pl.Int64))
    )
    return replace(events, kernel=ordered.select(events.kernel.columns))


def sequence_times(sequence: TraceEvents, reference: Reference) -> pl.DataFrame:
    """How long the step's kernels take in the sequence: ``kernel_id, run, ns``.

    ``kernel_id`` is one of the reference's kernels, ``run`` the step of the sequence. Only certain
    pairs are there.

    :param reference: of the step that the sequence repeats, made :func:`serial`.
    """
    inside = sequence.kernel.drop_nulls("step")
    pairs = paired(inside, reference).select("kernel_id", "from_id")
    return pairs.join(inside, on="kernel_id").select(kernel_id="from_id", run="step", ns="dur_ns")


def graph_times(graph: TraceEvents, reference: Reference) -> pl.DataFrame:
    """When the step's kernels ran in runs of its graph.

    ``kernel_id, run, start_ns, dur_ns`` as :func:`sequence_times`, and ``replayed_id``, the run's
    own kernel; the reference is the step as it was recorded.
    """
    # One whose times were lost makes its run incomplete.
    inside = graph.kernel.drop_nulls("step").filter(pl.col("dur_ns") > 0)
    return (
        paired_on_streams(inside, reference)
        .join(inside, on="kernel_id")
        .select("start_ns", "dur_ns", kernel_id="from_id", run="step", replayed_id="kernel_id")
    )
