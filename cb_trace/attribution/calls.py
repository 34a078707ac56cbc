"""Module calls: the intervals in which a module's forward ran, whatever named them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.attribution.events import step_of
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, Nest, column, lookup, nest
from cb_trace.columns import polars_schema

COLUMNS = ["trace_id", "module_id", "thread", "start_ns", "dur_ns"]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one trace by one method, in order of start; positions are rows of ``frame``.

    ``frame`` has the columns ``COLUMNS``; ``parent`` is the position of the calling module's call,
    or ``NOTHING``.
    """

    method: str  # range, python
    frame: pl.DataFrame
    nest: Nest
    parent: Ints

    def around(self, thread: Ints, at_ns: Ints) -> Ints:
        """The innermost call around each point."""
        return self.nest.locate(thread, at_ns)


def calls_of(method: str, frame: pl.DataFrame, parent: Ints | None = None) -> Calls:
    """Nest calls; ``parent`` is given where the trace states it, else found by nesting."""
    nested = nest(frame)
    return Calls(method, frame, nested, nested.parent if parent is None else parent)


def module_call(
    calls: Calls, step: pl.DataFrame, recomputed: Flags, original: Ints, first_call_id: int
) -> pl.DataFrame:
    """Rows of table ``module_call``, one a call, ``call_id`` by position from ``first_call_id``.

    ``call_index`` counts within module and step; a call repeated under activation checkpointing has
    the index of the call that it repeats (null: not known which), and moves no other's.

    :param original: that call's position, or ``NOTHING``.
    """
    identity = np.arange(calls.frame.height, dtype=np.int64) + first_call_id
    steps = step_of(step, column(calls.frame, "start_ns"))
    parent = lookup(identity, calls.parent)
    frame = calls.frame.with_columns(
        pl.Series("call_id", identity),
        pl.Series("parent_call_id", parent).replace(NOTHING, None),
        pl.Series("step", steps).replace(NOTHING, None),
        pl.Series("phase", np.where(recomputed, "recompute", "forward"), dtype=pl.String),
        dur_ns=calls.nest.end_ns - column(calls.frame, "start_ns"),
    )
    order = frame.select(pl.int_range(pl.len()).over("module_id", "step", "phase")).to_series()
    counted = order.to_numpy()
    index = np.where(recomputed, lookup(counted, original), counted)
    frame = frame.with_columns(pl.Series("call_index", index).replace(NOTHING, None))
    schema = polars_schema("module_call")
    return frame.select(pl.col(n).cast(t) for n, t in schema.items())
