"""The conductor's part for causes: the sequence run, those of the graph, and marginal costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from cb_trace import analysis, attribution
from cb_trace.analysis.changes import Answer, Change, changed_cost, changed_step
from cb_trace.analysis.marginal import scaled_steps
from cb_trace.analysis.residency import cache_of
from cb_trace.analysis.scaled import Scaled
from cb_trace.analysis.speedups import predicted_speedups
from cb_trace.bundle import Deployment, Note
from cb_trace.bundle_frames import note_frame
from cb_trace.ingest_run import Context, Ingest, Split, attribute, events_of


@dataclass(frozen=True, slots=True)
class GraphRuns:
    """The profiled runs of the step's graph."""

    times: pl.DataFrame  # of the step's kernels in all of them: attribution.graph_times
    steps: analysis.GraphSteps | None  # those that count; None: too few


def append_predictions(
    *,
    run: Ingest,
    context: Context,
    split: Split,
    replay: pl.DataFrame,
    host_span: pl.DataFrame,
    host_tour: pl.DataFrame,
    speedup: pl.DataFrame,
    bare: Mapping[Deployment, analysis.BareStep],
    device_type: str | None,
    sequence: pl.DataFrame | None,
    graph: GraphRuns | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fill tables ``overhead``, ``marginal`` and ``speedup``; the rows of the latter two."""
    run.progress("marginal costs")
    parts = _parts(run, context, replay, host_span, host_tour)
    on_cpu = device_type == "cpu"
    steps: dict[Deployment, list[analysis.Program]] = {}
    if not on_cpu:
        steps = deployed_programs(context, list(bare))
    runs = None if graph is None else graph.times
    parts = analysis.with_together(parts, steps, bare, analysis.times_alone(sequence), runs)
    several = any(program.streams > 1 for program in steps.get("graph", ()))
    if graph is not None and graph.steps is not None and parts.met is None and several:
        _note_unused(run, context, "for marginal costs: the step has too many kernels")
    if "eager" in steps:
        overheads = analysis.host_overheads(steps["eager"], parts, run_id=context.run_id)
        run.append("overhead", overheads)
    marginal = analysis.marginal_costs(
        steps,
        context.module,
        split.partition,
        split.cost_bounds,
        parts,
        run_id=context.run_id,
        bare=bare,
        device_type=device_type,
    )
    run.append("marginal", marginal)
    if speedup.height:
        found = _changed_on_cpu(split, context) if on_cpu else _changed(steps, bare, parts, context)
        speedup = predicted_speedups(speedup, found)
    run.append("speedup", speedup)
    return marginal, speedup


def _changed_on_cpu(split: Split, context: Context) -> dict[Deployment, Callable[[Change], Answer]]:
    eager, bounds = (f.filter(deployment="eager") for f in (split.partition, split.cost_bounds))
    return {"eager": lambda change: changed_cost(eager, bounds, [change], context.module)}


def _changed(
    steps: Mapping[Deployment, Sequence[analysis.Program]],
    bare: Mapping[Deployment, analysis.BareStep],
    parts: analysis.Parts,
    context: Context,
) -> dict[Deployment, Callable[[Change], Answer]]:
    """The step of each deployment under a change."""

    def of(scaled: Scaled) -> Callable[[Change], Answer]:
        return lambda change: changed_step(scaled, [change], context.module)

    return {
        deployment: of(scaled_steps(programs, deployment, bare[deployment], parts))
        for deployment, programs in steps.items()
        if programs
    }


def _parts(
    run: Ingest,
    context: Context,
    replay: pl.DataFrame,
    host_span: pl.DataFrame,
    host_tour: pl.DataFrame,
) -> analysis.Parts:
    def rows(table: str) -> pl.DataFrame:
        return pl.DataFrame(run.connection.table(table))

    recorded = rows("run").filter(pl.col("run_id") == context.run_id)
    return analysis.isolated_parts(
        analysis.Measured(
            replay=replay,
            replay_kernel=rows("replay_kernel"),
            module_call=context.calls,
            module=context.module,
            parameter=rows("parameter").filter(pl.col("run_id") == context.run_id),
            host_span=host_span,
            host_window=rows("host_window").filter(pl.col("run_id") == context.run_id),
            host_tour=host_tour,
            cost=rows("cost"),
            memory=rows("memory"),
            step_sample=rows("step_sample").filter(pl.col("run_id") == context.run_id),
            cache_bytes=cache_of(recorded),
        )
    )


def append_sequence(run: Ingest, context: Context, traces: Sequence[int]) -> pl.DataFrame | None:
    """Attribute the sequence run by the step it repeats; how long that step's kernels take in it.

    ``kernel_id, run, ns``, or None without a sequence run.
    """
    times = []
    in_turn = replace(context, events=attribution.serial(context.events))
    for trace_id in traces:
        events = events_of(run, trace_id)
        found = attribute(
            run, events, context.run_id, context.module, root_glue=True, source=in_turn
        )
        reference = attribution.reference(in_turn.events, in_turn.found)
        times.append(attribution.sequence_times(found.events, reference))
        _note_overlap(run, found)
    return pl.concat(times) if times else None


def append_graph_runs(run: Ingest, context: Context, traces: Sequence[int]) -> GraphRuns | None:
    """Attribute the profiled runs of the step's graph by the step; None without such runs."""
    if not traces:
        return None
    found = attribute(
        run, events_of(run, traces[0]), context.run_id, context.module, root_glue=True,
        source=context, on_streams=True,
    )  # fmt: skip
    reference = attribution.reference(context.events, context.found)
    times = attribution.graph_times(found.events, reference)
    graph, step = step_events(found), step_events(context)
    steps = analysis.graph_steps(graph, step, reference.kernel, times)
    if steps is None:
        _note_unused(run, context, "too few of them have every kernel of the step, and no other")
    return GraphRuns(times, steps)


def _note_unused(run: Ingest, context: Context, detail: str) -> None:
    note = Note(reason="profiled runs of the graph not used", detail=detail)
    run.append("note", note_frame(context.run_id, [note], {}))


def _note_overlap(run: Ingest, sequence: Context) -> None:
    """Say where the sequence did not run one kernel at a time."""
    inside = sequence.events.kernel.drop_nulls("step")
    beside = analysis.beside_others(inside).height
    if beside:
        detail = "kernels ran beside others in it, so part of the contention is in S"
        note = Note(reason="sequence not serial", detail=detail, count=beside)
        run.append("note", note_frame(sequence.run_id, [note], {}))


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
