"""Method ``python``: the ``nn.Module: Class_N`` frames that a profile with stacks leaves."""

from __future__ import annotations

import numpy as np
import polars as pl

from cb_trace.attribution.calls import COLUMNS, Calls, calls_of
from cb_trace.attribution.nesting import NOTHING, Ints, column, lookup, nearest

SIGNATURE_PREFIX = "nn.Module: "


def slice_calls(python_module: pl.DataFrame, module: pl.DataFrame) -> Calls:
    """Calls from the slices whose instance is in the tree of :func:`foreign.foreign_modules`.

    The stated parent is the truth for who called whom. A frame without a return runs on past its
    parent's end in old traces (traces.md row 23): nesting clips it, here among module frames only.
    """
    slices = in_order(python_module)
    frame = slices.join(instances(module), on="name", how="left", maintain_order="left")
    parent, known = stated_parents(slices), frame["module_id"].is_not_null().to_numpy()
    kept = np.cumsum(known) - 1  # position among the calls kept
    above = lookup(nearest(parent, known), parent)
    return calls_of("python", frame.filter(known).select(COLUMNS), lookup(kept, above)[known])


def instances(module: pl.DataFrame) -> pl.DataFrame:
    """Module id by instance name (``Linear_3``), of the modules that came from slices."""
    theirs = module.filter(pl.col("signature").str.starts_with(SIGNATURE_PREFIX))
    name = pl.col("signature").str.strip_prefix(SIGNATURE_PREFIX).alias("name")
    return theirs.select("module_id", name).unique("name", keep="first", maintain_order=True)


def in_order(python_module: pl.DataFrame) -> pl.DataFrame:
    """By start, callers before what they call; Python ids count up, so they break ties."""
    return python_module.sort("start_ns", -pl.col("dur_ns"), "python_id", maintain_order=True)


def stated_parents(slices: pl.DataFrame) -> Ints:
    """Position of each slice's stated parent among slices :func:`in_order`.

    ``NOTHING`` where there is none, or one that comes later and so cannot be the caller.
    """
    above = slices.select(
        pl.col("python_id").alias("parent_python_id"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("at"),
    ).unique("parent_python_id", keep="first", maintain_order=True)
    joined = slices.select("parent_python_id").join(
        above, on="parent_python_id", how="left", maintain_order="left"
    )
    at = column(joined, "at")
    return np.where(at < np.arange(len(at)), at, NOTHING)
