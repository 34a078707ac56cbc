"""Kernel time by what it says about a module's bound, and by operators that no formula covers.

Rules: shared facts, measuring.md section 6; docs/counting.md states them for readers.
"""

from __future__ import annotations

import polars as pl

from cb_trace.columns import polars_schema

SHORT_NS = 5_000  # a kernel this short is bound by latency
COLLECTIVES = r"(?i)\b(nccl|rccl|mscclpp)|^(c10d|_c10d_functional)::|::all_reduce|::all_to_all"


def kernel_class(
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module: pl.DataFrame,
    *,
    steps: int,
    processors: int | None,
    run_id: str,
) -> pl.DataFrame:
    """Rows of table ``kernel_class``: per step, children included, times as profiled.

    :param processors: multiprocessors of the device; None leaves the test for a whole wave out.
    """
    blocks = pl.col("grid").str.split(",").list.eval(pl.element().cast(pl.Int64, strict=False)).list
    wave = pl.lit(False) if processors is None else _product(blocks) < processors
    marked = kernel.filter(pl.col("step").is_not_null()).select(
        "kernel_id",
        collective=pl.col("name").str.contains(COLLECTIVES),
        short=(pl.col("dur_ns") < SHORT_NS) | wave.fill_null(value=False),
    )
    own = (
        kernel_module.filter(pl.col("module_id").is_not_null())
        .join(marked, on="kernel_id")
        .group_by("module_id", "phase")
        .agg(
            kernel_ns=pl.col("ns").sum(),
            communication_ns=pl.col("ns").filter("collective").sum(),
            short_ns=pl.col("ns").filter("short").sum(),
        )
    )
    summed = (
        _with_ancestors(own, module)
        .group_by("module_id", "phase")
        .agg(pl.col("kernel_ns", "communication_ns", "short_ns").sum() // max(steps, 1))
    )
    return _typed("kernel_class", _with_steps(summed).with_columns(run_id=pl.lit(run_id)))


def uncounted_time(
    uncounted: pl.DataFrame,
    *,
    kernel: pl.DataFrame,
    launch: pl.DataFrame,
    op: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module: pl.DataFrame,
    steps: int,
) -> pl.DataFrame:
    """Rows of table ``uncounted_op``, ``kernel_ns`` filled in.

    A kernel counts for an operator if it was launched inside a run of it, at whatever depth.
    """
    names = uncounted["name"].unique().sort()
    begun = _begun(kernel, launch)
    inside = [
        _inside(begun, op.filter(pl.col("name") == name)).select(
            "kernel_id", name=pl.lit(name, pl.String)
        )
        for name in names
    ]
    if not inside:
        return _typed("uncounted_op", uncounted)
    own = (
        kernel_module.filter(pl.col("module_id").is_not_null())
        .join(pl.concat(inside), on="kernel_id")
        .group_by("module_id", "phase", "name")
        .agg(kernel_ns=pl.col("ns").sum())
    )
    spent = (
        _with_ancestors(own, module)
        .group_by("module_id", "phase", "name")
        .agg(pl.col("kernel_ns").sum() // max(steps, 1))
    )
    found = uncounted.drop("kernel_ns").join(spent, on=["module_id", "phase", "name"], how="left")
    return _typed("uncounted_op", found.with_columns(pl.col("kernel_ns").fill_null(0)))


def _product(parts: pl.expr.list.ExprListNameSpace) -> pl.Expr:
    x, y, z = (parts.get(place, null_on_oob=True) for place in range(3))
    return x * y * z


def _begun(kernel: pl.DataFrame, launch: pl.DataFrame) -> pl.DataFrame:
    """``kernel_id, thread, at_ns``: where on the host each kernel of a step came from."""
    launched = kernel.filter(pl.col("step").is_not_null()).join(
        launch.select("launch_id", at_thread="thread", at_ns="start_ns"), on="launch_id", how="left"
    )
    on_host = pl.col("kind") == "cpu"
    return launched.select(
        "kernel_id",
        thread=pl.when(on_host).then("thread").otherwise("at_thread"),
        at_ns=pl.when(on_host).then("start_ns").otherwise("at_ns"),
    ).drop_nulls()


def _inside(begun: pl.DataFrame, op: pl.DataFrame) -> pl.DataFrame:
    """Kernels begun inside one of these operator calls; calls of one name do not nest."""
    runs = op.select("thread", begin_ns="start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    found = begun.sort("at_ns").join_asof(
        runs.sort("begin_ns"),
        left_on="at_ns",
        right_on="begin_ns",
        by="thread",
        check_sortedness=False,
    )
    return found.filter(pl.col("at_ns") < pl.col("end_ns"))


def _with_ancestors(own: pl.DataFrame, module: pl.DataFrame) -> pl.DataFrame:
    """Every row once for its module and once for each that holds it."""
    above = module.select("module_id", "parent_id")
    parts, level = [own], own
    while level.height:
        level = (
            level.join(above, on="module_id")
            .filter(pl.col("parent_id").is_not_null())
            .with_columns(module_id=pl.col("parent_id"))
            .drop("parent_id")
        )
        parts.append(level)
    return pl.concat(parts)


def _with_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Add rows of phase ``step``: all phases of a module together."""
    together = (
        rows.group_by("module_id")
        .agg(pl.col(n).sum() for n in rows.columns if n.endswith("_ns"))
        .with_columns(phase=pl.lit("step"))
    )
    return pl.concat([rows, together.select(rows.columns)])


def _typed(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    schema = polars_schema(table)
    order = ["module_id", "phase", *(["name"] if "name" in schema else [])]
    return rows.select(pl.col(n).cast(t) for n, t in schema.items()).sort(order)
