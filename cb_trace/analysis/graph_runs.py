"""The step as its CUDA graph ran it: what its deployment is split by, where runs were profiled.

In an eager step that waits for the host no kernels of several streams overlap, and each finds
caches that idle time has left; what the graph's kernels take and hide only its own runs tell.

A run that counts has every kernel of the step once, and no other that nobody owns. The first of all
began on an idle device and is left out. Runs follow one another on the device, whenever the host
launched them: each begins where the one before has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from cb_trace.analysis.meeting import FEWEST
from cb_trace.analysis.program import StepEvents


@dataclass(frozen=True, slots=True)
class GraphSteps:
    """The runs that count, as profiled steps.

    A kernel has the operator that launched it in the step; calls are that step's.
    """

    events: StepEvents
    in_turn: pl.DataFrame  # the same kernels; ``start_ns`` is that in the step, for their order
    pairs: pl.DataFrame  # kernel_id, replayed_id: the step's kernels, and those of the last run

    def sequence(self, times: pl.DataFrame | None) -> pl.DataFrame | None:
        """Times of the step's kernels as those of one run's: ``kernel_id, run, ns``."""
        if times is None:
            return None
        found = times.join(self.pairs, on="kernel_id", maintain_order="left")
        return found.select("run", "ns", kernel_id="replayed_id")


def graph_steps(
    graph: StepEvents, step: StepEvents, captured: pl.DataFrame, times: pl.DataFrame
) -> GraphSteps | None:
    """The runs of a step's graph that count; None where fewer than three do.

    :param graph: the trace of its runs, attributed by the step's; ``step``: the step's own trace.
    :param captured: the kernels that those of a run stand for, columns of table ``kernel``.
    :param times: which is which: ``kernel_id`` (of ``captured``), ``run, replayed_id``.
    """
    inside = graph.kernel.drop_nulls("step")
    whole = _whole(inside, graph.kernel_module, captured.height, times)
    windows = _windows(inside, whole, graph.step)
    if windows.height < FEWEST:
        return None
    there = captured.select("op_id", from_ns="start_ns", from_id="kernel_id")
    known = times.select("replayed_id", from_id="kernel_id").join(there, on="from_id")
    kernel = (
        inside.join(windows, on="step", how="semi", maintain_order="left")
        .join(known, left_on="kernel_id", right_on="replayed_id", how="left", suffix="_there")
        .with_columns(op_id=pl.coalesce("op_id_there", "op_id"))
    )
    in_turn = kernel.with_columns(start_ns=pl.coalesce("from_ns", "start_ns"))
    columns = inside.columns
    last = times.filter(run=windows["step"].max())
    events = replace(
        graph,
        kernel=kernel.select(columns),
        kernel_module=graph.kernel_module.join(
            kernel, on="kernel_id", how="semi", maintain_order="left"
        ),
        module_call=step.module_call,
        op=pl.concat([step.op, graph.op]),
        step=windows,
    )
    return GraphSteps(events, in_turn.select(columns), last.select("kernel_id", "replayed_id"))


def _whole(
    inside: pl.DataFrame, kernel_module: pl.DataFrame, kernels: int, times: pl.DataFrame
) -> pl.DataFrame:
    """The runs that have every kernel once, and no other that nobody owns: ``step``."""
    paired = times.group_by("run").agg(pl.len(), one=pl.col("kernel_id").n_unique())
    every = paired.filter(pl.col("len") == kernels, pl.col("one") == kernels)
    nobodys = (
        inside.join(kernel_module.drop_nulls("module_id"), on="kernel_id", how="anti")
        .join(times, left_on="kernel_id", right_on="replayed_id", how="anti")
        .select("step")
    )
    return every.select(step="run").join(nobodys, on="step", how="anti")


def _windows(inside: pl.DataFrame, whole: pl.DataFrame, step: pl.DataFrame) -> pl.DataFrame:
    """Rows of table ``step`` for whole runs but the first of all: the device's time of each.

    From the end of the run before, idle time between the two included; from its own first kernel
    where the run before lacks some.
    """
    end = pl.col("start_ns") + pl.col("dur_ns")
    spans = inside.group_by("step").agg(pl.col("start_ns").min(), end_ns=end.max())
    known = spans.join(whole, on="step", how="semi")
    before = known.select(pl.col("step") + 1, before_ns="end_ns")
    found = (
        known.filter(pl.col("step") > spans["step"].min())
        .join(before, on="step", how="left")
        .select("step", "end_ns", begin_ns=pl.coalesce("before_ns", "start_ns"))
        .with_columns(ns=pl.col("end_ns") - pl.col("begin_ns"))
    )
    return (
        step.join(found, on="step", maintain_order="left")
        .with_columns(start_ns="begin_ns", dur_ns="ns", window_ns="ns")
        .select(step.columns)
    )
