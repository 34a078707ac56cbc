"""What modules own of the step, children included, and the bounds it is known within."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cb_trace.analysis.scaling import StepParts, Sums, sum_bounds
from cb_trace.analysis.shares import ancestors, with_step_phase
from cb_trace.analysis.stats import BareStep
from cb_trace.columns import polars_schema

if TYPE_CHECKING:
    from cb_trace.bundle import Deployment

_PLACE = ["module_id", "phase", "deployment"]
_BOUNDS = ["low_ns", "high_ns", "idle_low_ns", "idle_high_ns"]


def owned_parts(partition: pl.DataFrame, module: pl.DataFrame) -> pl.DataFrame:
    """B and I of each module, children included; they sum to what it costs, exactly.

    ``module_id, phase, deployment, busy_ns, idle_ns``.
    """
    idle = pl.col("kind").str.starts_with("idle_")
    return (
        partition.drop_nulls("module_id")
        .join(ancestors(module), on="module_id")
        .group_by("ancestor_id", "phase", "deployment")
        .agg(busy_ns=pl.col("ns").filter(~idle).sum(), idle_ns=pl.col("ns").filter(idle).sum())
        .rename({"ancestor_id": "module_id"})
        .sort(_PLACE)
    )


def cost_bounds(
    parts: StepParts,
    partition: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
    bare: Mapping[Deployment, BareStep],
) -> pl.DataFrame:
    """A ``cost_bounds`` frame: a row a module and phase, ``step`` included, of each deployment.

    ``partition`` is that of the same ``parts`` and ``bare``. Bounds: the 95 % tails of the module's
    sum over bootstrap resamples of the steps, scaled as the partition's are.
    """
    phases = with_step_phase(partition.select("module_id", "phase", part="phase")).drop_nulls()
    owned = owned_parts(with_step_phase(partition), module)
    members = (
        parts.rows.keys.select("module_id", part="phase")
        .with_row_index("row")
        .join(phases.select("part", "phase").unique(), on="part")
        .join(ancestors(module), on="module_id")
        .select("row", "phase", module_id="ancestor_id")
    )
    frames = [
        _bounded(rows.with_row_index("place"), members, parts, bare.get(name))
        for (name,), rows in owned.group_by("deployment", maintain_order=True)
    ]
    schema = polars_schema("cost_bounds")
    if not frames:
        return pl.DataFrame(schema=schema)
    found = pl.concat(frames).with_columns(run_id=pl.lit(run_id))
    return found.select(pl.col(name).cast(kind) for name, kind in schema.items())


def _bounded(
    owned: pl.DataFrame, members: pl.DataFrame, parts: StepParts, bare: BareStep | None
) -> pl.DataFrame:
    """The rows of one deployment with their bounds."""
    placed = members.join(owned.select("place", "module_id", "phase"), on=["module_id", "phase"])
    cost, idle = sum_bounds(parts, _sums(owned, placed, parts), bare)
    bounds = dict(zip(_BOUNDS, (*cost, *idle), strict=True))
    ns = pl.col("busy_ns") + pl.col("idle_ns")
    sides = (pl.Series(name, side) for name, side in bounds.items())
    return owned.with_columns(sides).with_columns(
        low_ns=pl.min_horizontal("low_ns", ns),
        high_ns=pl.max_horizontal("high_ns", ns),
        idle_low_ns=pl.min_horizontal("idle_low_ns", "idle_ns"),
        idle_high_ns=pl.max_horizontal("idle_high_ns", "idle_ns"),
    )


def _sums(owned: pl.DataFrame, placed: pl.DataFrame, parts: StepParts) -> Sums:
    row, place = placed["row"].to_numpy(), placed["place"].to_numpy()
    waits = row >= parts.rows.busy
    shape = (owned.height, parts.rows.ns.shape[1])
    busy, idle = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    np.add.at(busy, place[~waits], parts.rows.ns[row[~waits]])
    np.add.at(idle, place[waits], parts.rows.ns[row[waits]])
    rest = (pl.col("module_id") == parts.root) & pl.col("phase").is_in(["forward", "step"])
    return Sums(busy, idle, owned.select(rest.fill_null(value=False)).to_series().to_numpy())


def bounded_parts(
    partition: pl.DataFrame, bounds: pl.DataFrame, module: pl.DataFrame
) -> pl.DataFrame:
    """:func:`owned_parts` with ``ns``, what the module costs, and its ``cost_bounds``."""
    return (
        owned_parts(partition, module)
        .with_columns(ns=pl.col("busy_ns") + pl.col("idle_ns"))
        .join(bounds.select(*_PLACE, *_BOUNDS), on=_PLACE, how="left", maintain_order="left")
    )
