"""Method ``parameter``: work that belongs to a parameter, and so to the module that owns it.

The node that accumulates a gradient has no forward operator; in our recordings the hook of each
parameter leaves a ``cb_grad:`` mark inside it. The optimizer's kernels work on many parameters at
once and are split over their owners by bytes. A shared parameter is its first module's; the product
that makes its gradient is of the module that used it, and so is the sum of two such.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.events import TraceEvents, step_of
from cb_trace.attribution.nesting import NOTHING, column
from cb_trace.attribution.optimizer import updates
from cb_trace.attribution.ranges import module_by_path
from cb_trace.bundle import GRADIENT_PREFIX, ParameterRecord, parameter_of_range


def gradient_owners(
    events: TraceEvents,
    module: pl.DataFrame,
    parameters: Sequence[ParameterRecord],
    around: Backward,
) -> pl.DataFrame:
    """The module whose parameter each backward operator accumulates: ``node, owner``.

    ``node`` is a row of ``around.op``. Operators that hold no mark are left out, and those that
    hold marks of several modules: one node has one parameter.
    """
    marks = _marks(events.annotation, events.op, _owners(module, parameters))
    node, _ = around.around(column(marks, "thread"), column(marks, "start_ns"))
    found = marks.with_columns(pl.Series("node", node)).filter(pl.col("node") != NOTHING)
    return (
        found.join(_accumulations(around), on="node", how="semi")
        .group_by("node")
        .agg(owner=pl.col("module_id").first(), owners=pl.col("module_id").n_unique())
        .filter(pl.col("owners") == 1)
        .select("node", pl.col("owner").cast(pl.Int32))
    )


def _accumulations(around: Backward) -> pl.DataFrame:
    node = pl.int_range(pl.len(), dtype=pl.Int64)
    return around.op.select("accumulation", node=node).filter("accumulation")


def _marks(annotation: pl.DataFrame, op: pl.DataFrame, owners: dict[str, int]) -> pl.DataFrame:
    """``thread, start_ns, module_id`` of the marks of known parameters."""
    ours = pl.col("name").str.starts_with(GRADIENT_PREFIX)
    columns = ["name", "thread", "start_ns"]
    on_host = annotation.filter((pl.col("layer") == "user") & ours)
    marks = pl.concat([on_host.select(columns), op.filter(ours).select(columns)])
    names = marks["name"].unique()
    known = [owners.get(parameter_of_range(name) or "") for name in names]
    table = pl.DataFrame({"name": names, "module_id": pl.Series(known, dtype=pl.Int64)})
    return marks.join(table.drop_nulls(), on="name")


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
    marks = _marks(events.annotation, events.op, owners)
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
