"""Which call of a forward a repeated call repeats (activation checkpointing).

A backward operator asks for what a function computed, and the function's modules run again in it,
in their order, up to that operator. So the calls of one module in it are the last ones that the
function's caller made of that module before the operator's forward was over; inside them, calls
follow in the order of the original.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.calls import Calls
from cb_trace.attribution.lineage import Lineage
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, column, lookup


def originals(calls: Calls, around: Backward, line: Lineage, again: Flags) -> Ints:
    """The position of the original of each call, ``NOTHING`` where it is none or not known.

    :param again: which calls are repeated ones.
    """
    found = np.full(again.size, NOTHING, np.int64)
    if not again.any():
        return found
    node, _ = around.around(column(calls.frame, "thread"), column(calls.frame, "start_ns"))
    node = np.where(again, node, NOTHING)
    outer = again & (lookup(node, calls.parent) != node)
    table = pl.DataFrame(
        {
            "at": np.arange(again.size, dtype=np.int64),
            "caller": calls.parent,
            "module": column(calls.frame, "module_id"),
            "start_ns": column(calls.frame, "start_ns"),
            "node": node,
            "again": again,
            "outer": outer,
            "repeats": np.where(
                lookup(line.known, node, False), lookup(line.repeats, node), NOTHING
            ),
            "until_ns": lookup(around.forward_end_ns, node),
        }
    ).sort("start_ns", maintain_order=True)
    order = pl.int_range(pl.len(), dtype=pl.Int64)
    made = table.filter(~pl.col("again") & (pl.col("caller") != NOTHING)).select(
        "caller", "module", "start_ns", original="at", place=order.over("caller", "module")
    )
    _fill(found, _outermost(table.filter("outer"), made))
    inner = table.filter(pl.col("again") & ~pl.col("outer")).select(
        "at", "caller", "module", place=order.over("caller", "module")
    )
    return _descend(found, inner, made)


def _outermost(repeated: pl.DataFrame, made: pl.DataFrame) -> pl.DataFrame:
    """Originals of the calls that the function itself makes: counted from the end."""
    behind = pl.len() - 1 - pl.int_range(pl.len(), dtype=pl.Int64)
    last = repeated.with_columns(behind=behind.over("node", "module")).sort("until_ns").join_asof(
        made.rename({"caller": "repeats"}), left_on="until_ns", right_on="start_ns",
        by=["repeats", "module"], strategy="backward", allow_exact_matches=False,
        check_sortedness=False,
    )  # fmt: skip
    wanted = last.select("at", "repeats", "module", place=pl.col("place") - pl.col("behind"))
    return wanted.join(
        made.rename({"caller": "repeats"}), on=["repeats", "module", "place"]
    ).select("at", "original")


def _descend(found: Ints, inner: pl.DataFrame, made: pl.DataFrame) -> Ints:
    """Originals of the calls inside repeated calls, a level at a time."""
    while inner.height:
        caller = lookup(found, column(inner, "caller"))
        known = inner.with_columns(caller=pl.Series(caller)).filter(pl.col("caller") != NOTHING)
        level = known.join(made, on=["caller", "module", "place"]).select("at", "original")
        if level.is_empty():
            break
        _fill(found, level)
        inner = inner.join(level, on="at", how="anti", maintain_order="left")
    return found


def _fill(found: Ints, level: pl.DataFrame) -> None:
    found[column(level, "at")] = column(level, "original")
