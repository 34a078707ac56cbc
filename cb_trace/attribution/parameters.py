"""Method ``parameter``: work that belongs to a parameter, and so to the module that owns it.

The node that accumulates a gradient has no forward operator; in our recordings the hook of each
parameter leaves a ``cb_grad:`` mark inside it. The optimizer's kernels work on many parameters at
once and are split over their owners by bytes. A shared parameter is its first module's; the product
that makes its gradient is of the module that used it, and so is the sum of two such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.events import TraceEvents, step_of
from cb_trace.attribution.nesting import NOTHING, Flags, column
from cb_trace.attribution.optimizer import updates
from cb_trace.attribution.ranges import module_by_path
from cb_trace.bundle import ParameterRecord
from cb_trace.range_names import GRADIENT_PREFIX, parameter_of_range


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
    """``module_id, bytes``: what the optimizer updates, by owner; empty where that is uncertain.

    That is every trainable parameter, or where gradients left marks those that got one. Of several
    optimizers in a step nothing says which updates what, unless each comes after gradients of all.
    """
    owners = _owners(module, parameters)
    trained = [p for p in parameters if p.trainable and p.name in owners]
    marks = _marks(events.annotation, events.op)
    got = {parameter_of_range(name) for name in marks["name"].unique()}
    if not _certain(events, marks):
        trained = []
    rows = [(owners[p.name], p.bytes) for p in trained if not got or p.name in got]
    schema = {"module_id": pl.Int32(), "bytes": pl.Int64()}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return (
        table.group_by("module_id", maintain_order=True)
        .agg(pl.col("bytes").sum())
        .filter(pl.col("bytes") > 0)
    )


def _certain(events: TraceEvents, marks: pl.DataFrame) -> bool:
    """Whether an optimizer runs once a step, or each run comes after marks of the same parameters.

    Marks since the run before it, in its step.
    """
    runs = updates(events.annotation, events.op).select(run="start_ns")
    runs = runs.with_columns(step=pl.Series(step_of(events.step, column(runs, "run")))).sort("run")
    if runs["step"].is_unique().all():
        return True
    given = marks.select("name", "start_ns").sort("start_ns")
    given = given.with_columns(step=pl.Series(step_of(events.step, column(given, "start_ns"))))
    before = given.join_asof(
        runs, left_on="start_ns", right_on="run", by="step", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    names = pl.col("name").unique().sort().str.join(" ")
    sets = before.drop_nulls("run").group_by("run").agg(names)
    return sets.height == runs.height and sets["name"].n_unique() == 1


def optimizer_parts(kernels: pl.DataFrame, shares: pl.DataFrame) -> pl.DataFrame:
    """Each kernel of the optimizer once a module, weighed by the bytes of its parameters.

    :param kernels: has ``kernel_id`` and ``dur_ns``.
    """
    return kernels.select("kernel_id", "dur_ns").join(shares, how="cross").with_columns(
        share=pl.col("bytes").cast(pl.Float64), phase=pl.lit("optimizer"),
        method=pl.lit("parameter"),
    )  # fmt: skip
