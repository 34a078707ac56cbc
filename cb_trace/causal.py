"""The conductor's part for the simulator: the frames of an attributed trace → marginal costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from cb_trace import analysis
from cb_trace.bundle import Deployment
from cb_trace.ingest_run import Context, Ingest


def append_marginal(
    *,
    run: Ingest,
    context: Context,
    partition: pl.DataFrame,
    replay: pl.DataFrame,
    bare: Mapping[Deployment, analysis.BareStep],
    device_type: str | None,
) -> pl.DataFrame:
    """Fill table ``marginal`` of one recording, and give its rows."""
    run.progress("marginal costs")
    calls = (context.source or context).found.module_call
    parts = analysis.isolated_parts(
        replay, pl.DataFrame(run.connection.table("replay_kernel")), calls, context.module
    )
    rows = analysis.marginal_costs(
        {} if device_type == "cpu" else deployed_programs(context, list(bare)),
        context.module,
        partition,
        parts,
        run_id=context.run_id,
        bare=bare,
        device_type=device_type,
    )
    run.append("marginal", rows)
    return rows


def deployed_programs(
    context: Context, deployments: Sequence[Deployment]
) -> dict[Deployment, list[analysis.Program]]:
    """The programs of the profiled steps by deployment.

    Where the recorded step was a CUDA graph, the eager step is the run it was captured from.
    """
    eager = context.source or context
    found = {d: eager if d == "eager" else context for d in deployments}
    made = {id(one): analysis.programs(step_events(one)) for one in found.values()}
    return {deployment: made[id(one)] for deployment, one in found.items()}


def step_events(context: Context) -> analysis.StepEvents:
    """The frames that programs are made of."""
    return analysis.StepEvents(
        kernel=context.events.kernel,
        kernel_module=context.found.kernel_module,
        module_call=context.found.module_call,
        launch=context.events.launch,
        op=context.events.op,
        step=context.events.step,
        module=context.module,
    )
