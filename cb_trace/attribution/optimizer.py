"""Work of the optimizer: launches inside its own annotation, or operator in older traces.

What a step does outside the optimizer once its last backward is over, to clip gradients for one,
is of the optimizer's phase as well; it is glue, and belongs to no parameter.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.events import step_of
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, column, nest

STEP, ZERO = "Optimizer.step#", "Optimizer.zero_grad#"
PREFIXES = [STEP, ZERO]


def optimizer_intervals(annotation: pl.DataFrame, op: pl.DataFrame) -> pl.DataFrame:
    """Each run of an optimizer's ``step`` or ``zero_grad``: ``thread, start_ns, dur_ns, name``."""
    theirs = pl.any_horizontal(pl.col("name").str.starts_with(p) for p in PREFIXES)
    columns = ["thread", "start_ns", "dur_ns", "name"]
    on_host = annotation.filter((pl.col("layer") == "user") & theirs)
    return pl.concat([on_host.select(columns), op.filter(theirs).select(columns)])


def updates(annotation: pl.DataFrame, op: pl.DataFrame) -> pl.DataFrame:
    """The runs of ``step``, one where an optimizer runs another inside."""
    intervals = optimizer_intervals(annotation, op).unique(maintain_order=True)
    runs = intervals.filter(pl.col("name").str.starts_with(STEP))
    return runs.filter(pl.Series(nest(runs).parent == NOTHING))


def after_backward(
    step: pl.DataFrame, calls: pl.DataFrame, autograd: Backward, at_ns: Ints
) -> Flags:
    """Whether each instant comes after its step's last backward operator and last module call.

    What is outside every step is taken together. False where there is no backward.
    """
    nodes = autograd.op.filter("backward")
    begun, called = column(nodes, "start_ns"), column(calls, "start_ns")
    last = np.full(column(step, "step").max(initial=NOTHING) + 2, np.iinfo(np.int64).max)
    of_node = step_of(step, begun) - NOTHING  # the first place is that outside every step
    last[of_node] = np.iinfo(np.int64).min
    np.maximum.at(last, of_node, begun + column(nodes, "dur_ns"))
    of_call = step_of(step, called) - NOTHING
    np.maximum.at(last, of_call, called)
    return at_ns >= last[step_of(step, at_ns) - NOTHING]
