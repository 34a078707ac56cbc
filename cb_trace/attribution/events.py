"""What goes in and what comes out: the event frames of one trace, and its attribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.attribution.nesting import NOTHING, Flags, Ints, column


@dataclass(frozen=True, slots=True)
class TraceEvents:
    """The events of one trace; every frame has the columns of its table in ``columns.TABLES``."""

    kernel: pl.DataFrame
    launch: pl.DataFrame
    op: pl.DataFrame
    annotation: pl.DataFrame
    python_module: pl.DataFrame
    step: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Attributed:
    """Rows of the tables ``module_call`` and ``kernel_module``."""

    module_call: pl.DataFrame
    kernel_module: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Origins:
    """Where each kernel was set off on the host, one value a row of the kernel frame.

    For device work that is its launch, found by correlation id alone; a row of CPU work is its own
    origin. Where neither is known, ``thread`` is ``NOTHING``.
    """

    thread: Ints
    at_ns: Ints
    by_graph: Flags  # one launch of a whole CUDA or HIP graph

    @property
    def known(self) -> Flags:
        """Whether there is an origin at all."""
        return np.not_equal(self.thread, NOTHING)


def origins(events: TraceEvents) -> Origins:
    """The host instant that set off each kernel."""
    launch = events.launch.select(
        "launch_id",
        pl.col("thread").alias("launch_thread"),
        pl.col("start_ns").alias("launch_ns"),
        pl.col("name").str.contains("GraphLaunch", literal=True).alias("by_graph"),
    )
    joined = events.kernel.select("launch_id", "kind", "thread", "start_ns").join(
        launch, on="launch_id", how="left", maintain_order="left"
    )
    on_cpu = pl.col("kind") == "cpu"
    found = joined.select(
        pl.when(on_cpu).then("thread").otherwise("launch_thread").alias("thread"),
        pl.when(on_cpu).then("start_ns").otherwise("launch_ns").alias("at_ns"),
        pl.col("by_graph").fill_null(False),
    )
    return Origins(column(found, "thread"), column(found, "at_ns"), found["by_graph"].to_numpy())


def step_of(step: pl.DataFrame, at_ns: Ints) -> Ints:
    """The step whose range holds each instant, on any thread; ``NOTHING`` outside every step."""
    ordered = step.sort("start_ns")
    start = column(ordered, "start_ns")
    last = np.searchsorted(start, at_ns, side="right") - 1
    end = np.append(start + column(ordered, "dur_ns"), np.iinfo(np.int64).min)[last]
    number = np.append(column(ordered, "step"), NOTHING)[last]
    return np.where(at_ns < end, number, NOTHING)
