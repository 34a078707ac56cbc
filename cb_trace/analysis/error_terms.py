"""Why the isolated figure of a module differs from its cost in the step (DESIGN, section 5).

With A alone, E in the step, W wall and U union alone, K sums of durations, B and I the busy and
idle time owned in the partition, the terms add up to isolated − cost = W_A − (B + I) exactly:

    launch          W_A − U_A
    cache           Σ A − E over matched kernels (without a sequence run; else Σ A − S)
    kernel_choice   Σ A − E over kernels of the same operator that differ
    fusion          Σ A of kernels only alone − Σ E of kernels only in the step
    overlap         (U_A − K_A) − (B − K_E)
    idle            −I
    contention, residual    NULL: they need a sequence run
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from cb_trace.analysis.matching import CHOICE, MATCHED, ONLY, pair
from cb_trace.analysis.sides import (
    Alone,
    InStep,
    alone_instances,
    alone_sides,
    context_instances,
    context_kernels,
    context_sums,
    hot_replays,
    in_step,
    owned_parts,
)
from cb_trace.analysis.stats import Interval
from cb_trace.analysis.timeline import step_windows
from cb_trace.columns import polars_schema


def terms(
    *,
    partition: pl.DataFrame,
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    op: pl.DataFrame,
    step: pl.DataFrame,
    module: pl.DataFrame,
    replay: pl.DataFrame,
    replay_kernel: pl.DataFrame,
    isolated_kernel: pl.DataFrame,
    isolated_op: pl.DataFrame,
    run_id: str,
    device_type: str | None,
) -> pl.DataFrame:
    """The error terms of every module whose hot replays were all measured: a ``term`` frame.

    ``partition`` comes from :func:`step_partition`, ``replay`` from :func:`replay_figures`;
    ``kernel``, ``kernel_module``, ``op``, ``step`` are of the context trace, ``isolated_*`` of the
    isolated traces together. Per module, phase and deployment the terms sum to
    Σ calls × median of the hot replays − Σ partition (children included), exactly. Where a replay
    was not profiled, only ``idle`` is known and the rest is NULL.

    Bounds: W from its samples, A and E from resamples of profiled calls and steps, I from the
    partition; those of a difference are as far apart as its parts allow.
    """
    schema = polars_schema("term")
    hot = hot_replays(replay)
    if step.is_empty() or hot.is_empty():
        return pl.DataFrame(schema=schema)
    rows = context_kernels(kernel, kernel_module, op, module, hot)
    context, alone = pair(
        context_instances(rows),
        alone_instances(hot, replay_kernel, isolated_kernel, isolated_op),
    )
    sides = alone_sides(hot, alone, replay_kernel, isolated_kernel)
    sums = context_sums(rows, context, step["step"].sort())
    fractions = _fractions(partition, step, cpu=device_type == "cpu")
    found = []
    for owned in owned_parts(partition, module).iter_rows(named=True):
        key = (owned["module_id"], owned["phase"])
        if key in sides:
            idle = Interval(owned["idle_ns"], owned["idle_low_ns"], owned["idle_high_ns"])
            here = in_step(
                sums.get(key, {}), fractions[owned["deployment"]], owned["busy_ns"], idle
            )
            for kind, term in error_terms(sides[key], here):
                bounds = (term.median_ns, term.low_ns, term.high_ns) if term else (None,) * 3
                found.append((run_id, *key, owned["deployment"], kind, *bounds))
    return pl.DataFrame(found, schema=schema, orient="row")


def error_terms(alone: Alone, here: InStep) -> Iterator[tuple[str, Interval | None]]:
    """The terms of one module and deployment; None where they were not measured."""
    idle = -here.idle
    if alone.busy_ns is None:
        yield from dict.fromkeys(("launch", "cache", "kernel_choice", "fusion", "overlap")).items()
    else:
        busy = alone.kernel.proportion(alone.busy_ns)
        hidden_alone = alone.kernel.proportion(alone.kernel.median_ns - alone.busy_ns)
        hidden_here = here.kernel.proportion(here.kernel.median_ns - here.busy_ns)
        yield "launch", alone.wall - busy
        yield "cache", alone.kernels[MATCHED] - here.kernels[MATCHED]
        yield "kernel_choice", alone.kernels[CHOICE] - here.kernels[CHOICE]
        yield "fusion", alone.kernels[ONLY] - here.kernels[ONLY]
        yield "overlap", hidden_here - hidden_alone
    yield "contention", None
    yield "idle", idle
    yield "residual", None


def _fractions(
    partition: pl.DataFrame, step: pl.DataFrame, *, cpu: bool
) -> dict[str, tuple[int, int]]:
    """What sums over the profiled steps are multiplied by, per deployment: a mean, or on a CPU
    bare ÷ profiled (the parts of a deployment sum to its bare step).
    """
    bare = partition.group_by("deployment").agg(pl.col("ns").sum())
    windows = step_windows(step)
    scaled = cpu and windows.total_ns > 0
    return {
        name: (ns, windows.total_ns) if scaled else (1, windows.count)
        for name, ns in bare.iter_rows()
    }
