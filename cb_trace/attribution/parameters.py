"""Method ``parameter``: work that belongs to a parameter, and so to the module that owns it.

The node that accumulates a gradient has no forward operator; in our recordings the hook of each
parameter leaves a ``cb_grad:`` mark inside it. The optimizer's kernels work on many parameters at
once and are split over their owners by bytes, those of several optimizers each over its own. A
shared parameter is its first module's; the product that makes its gradient is of the module that
used it, and so is the sum of two such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.events import TraceEvents, step_of
from cb_trace.attribution.nesting import NOTHING, Flags, column
from cb_trace.attribution.optimizer import STEP, ZERO, optimizer_intervals, updates
from cb_trace.attribution.ranges import module_by_path
from cb_trace.range_names import GRADIENT_PREFIX, parameter_of_range

if TYPE_CHECKING:
    from cb_trace.bundle import ParameterRecord


@dataclass(frozen=True, slots=True)
class Gradients:
    """The nodes that accumulate gradients; positions are rows of ``Backward.op``.

    ``owner``: the module whose parameter it is, ``node, owner``. ``leaf``: which nodes accumulate
    the gradient of what is no parameter, an input for one: they hold no mark where others do.
    """

    owner: pl.DataFrame
    leaf: Flags


def gradients(
    events: TraceEvents,
    module: pl.DataFrame,
    parameters: Sequence[ParameterRecord],
    around: Backward,
) -> Gradients:
    """Tell the nodes that accumulate apart by the marks in them.

    One that holds marks of several modules is nobody's, and no leaf's: a node has one parameter.
    """
    marks = _marks(events.annotation, events.op)
    node, _ = around.around(column(marks, "thread"), column(marks, "start_ns"))
    owner = _owner_of(marks["name"], _owners(module, parameters))
    held = marks.with_columns(owner=owner, node=pl.Series(node)).filter(pl.col("node") != NOTHING)
    accumulates = around.op["accumulation"].to_numpy()
    one = (pl.col("owner").n_unique() == 1) & pl.col("node").first().is_in(
        np.flatnonzero(accumulates)
    )
    owners = held.group_by("node").agg(pl.col("owner").first(), one=one)
    leaf = accumulates.copy() if marks.height else np.zeros_like(accumulates)
    leaf[column(held, "node")] = False
    return Gradients(owners.filter("one").drop_nulls("owner").select("node", "owner"), leaf)


def _marks(annotation: pl.DataFrame, op: pl.DataFrame) -> pl.DataFrame:
    """``name, thread, start_ns`` of the marks that the hooks of parameters left."""
    ours = pl.col("name").str.starts_with(GRADIENT_PREFIX)
    columns = ["name", "thread", "start_ns"]
    on_host = annotation.filter((pl.col("layer") == "user") & ours)
    return pl.concat([on_host.select(columns), op.filter(ours).select(columns)])


def _owner_of(marks: pl.Series, owners: dict[str, int]) -> pl.Series:
    """The module of each mark, null where its parameter is not of the model."""
    known = {name: owners.get(parameter_of_range(name) or "") for name in marks.unique()}
    return marks.replace_strict(known, return_dtype=pl.Int32)


def _owners(module: pl.DataFrame, parameters: Sequence[ParameterRecord]) -> dict[str, int]:
    """Module ids by parameter name."""
    known = module_by_path(module)
    return {p.name: known[p.path] for p in parameters if p.path in known}


def updated_bytes(
    events: TraceEvents, module: pl.DataFrame, parameters: Sequence[ParameterRecord]
) -> pl.DataFrame:
    """``run, module_id, bytes``: what the optimizer updates, by owner; empty where it is unknown.

    That is every trainable parameter, or where gradients left marks those that got one. Of several
    optimizers in a step nothing says which updates what, unless each comes after gradients of all,
    or each after gradients of its own: then ``run`` is the row of :func:`updates`, else null.
    """
    owners = _owners(module, parameters)
    known = [(p.name, owners[p.name], p.bytes) for p in parameters if p.name in owners]
    trainable = {p.name for p in parameters if p.trainable}
    schema = {"name": pl.String(), "module_id": pl.Int32(), "bytes": pl.Int64()}
    trained = pl.DataFrame(known, schema=schema, orient="row").filter(
        pl.col("name").is_in(trainable)
    )
    return (
        _of_runs(events, trained)
        .group_by("run", "module_id", maintain_order=True)
        .agg(pl.col("bytes").sum())
        .filter(pl.col("bytes") > 0)
    )


def _of_runs(events: TraceEvents, trained: pl.DataFrame) -> pl.DataFrame:
    """What is updated of the ``trained`` parameters, and in which ``run``; null: in any."""
    marks = _marks(events.annotation, events.op)
    names = {name: parameter_of_range(name) for name in marks["name"].unique()}
    marks = marks.with_columns(pl.col("name").replace_strict(names, return_dtype=pl.String))
    runs = updates(events.annotation, events.op).with_row_index("run").with_columns(
        pl.col("run").cast(pl.Int64), pl.col("start_ns").alias("at"),
    ).sort("at")  # fmt: skip
    runs = _in_steps(runs, events.step)
    got = trained.filter(pl.col("name").is_in(marks["name"].implode())) if marks.height else trained
    of_any = got.with_columns(run=pl.lit(None, pl.Int64))
    if runs["step"].is_unique().all():
        return of_any
    # Marks since the run before, in the same step.
    before = _in_steps(marks, events.step).sort("start_ns").join_asof(
        runs.select("step", "at", "run"), left_on="start_ns", right_on="at", by="step",
        strategy="forward", check_sortedness=False,
    )  # fmt: skip
    given = before.drop_nulls("run").select("step", "run", "name").unique()
    sets = given.group_by("run").agg(pl.col("name").sort().str.join(" "))
    if sets.height < runs.height:
        return of_any.clear()
    if sets["name"].n_unique() == 1:
        return of_any
    apart = given.select("step", "name").is_unique().all() and before["run"].null_count() == 0
    if apart and not _stale(runs, events):
        return got.join(given.select("run", "name"), on="name")
    return of_any.clear()


def _in_steps(rows: pl.DataFrame, step: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(step=pl.Series(step_of(step, column(rows, "start_ns"))))


def _stale(runs: pl.DataFrame, events: TraceEvents) -> bool:
    """Whether a run may update again what a run before it did: one optimizer, nothing zeroed."""
    optimizer = pl.col("name").str.strip_prefix(STEP).str.strip_suffix(".step")
    zeroed = optimizer_intervals(events.annotation, events.op).filter(
        pl.col("name").str.starts_with(ZERO)
    ).select(
        optimizer=pl.col("name").str.strip_prefix(ZERO).str.strip_suffix(".zero_grad"),
        zeroed="start_ns",
    )  # fmt: skip
    again = (
        runs.with_columns(optimizer=optimizer)
        .with_columns(last=pl.col("at").shift(1).over("step", "optimizer"))
        .drop_nulls("last")
        .join_asof(
            zeroed.sort("zeroed"), left_on="at", right_on="zeroed", by="optimizer",
            check_sortedness=False,
        )
    )  # fmt: skip
    return not (again["zeroed"] > again["last"]).fill_null(value=False).all()


def optimizer_parts(kernels: pl.DataFrame, shares: pl.DataFrame) -> pl.DataFrame:
    """Each kernel of the optimizer once a module, weighed by the bytes of its parameters.

    :param kernels: has ``kernel_id``, ``dur_ns`` and ``run``, the update it is in.
    :param shares: :func:`updated_bytes`.
    """
    rows = kernels.select("kernel_id", "dur_ns", "run")
    each = shares["run"].null_count() == 0
    found = rows.join(shares, on="run") if each else rows.drop("run").join(shares, how="cross")
    return found.drop("run").with_columns(
        share=pl.col("bytes").cast(pl.Float64), phase=pl.lit("optimizer"),
        method=pl.lit("parameter"),
    )  # fmt: skip
