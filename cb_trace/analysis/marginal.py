"""What the step would lose without a module, predicted; and the whole step from its parts.

The step is simulated as it is and without the module's host work and kernels (children included);
the difference is the marginal cost (DESIGN, section 5). On a CPU nothing runs beside anything, so
there it is the cost. Every profiled step is simulated for the bare step and both its bounds; the
figure is the median over steps at the bare step, the bounds are the least and the most of all. Of a
graph on several streams its profiled runs take the steps' place (:mod:`scaled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from cb_trace.analysis.calibrate import Scale, eager_scale, graph_scale, in_company, together_in
from cb_trace.analysis.carried import with_carried
from cb_trace.analysis.costs import bounded_parts, owned_parts
from cb_trace.analysis.host_cold import HostCold
from cb_trace.analysis.meeting import as_met, met_scales
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.program import Owner, Program
from cb_trace.analysis.scaled import Scaled
from cb_trace.analysis.shares import ancestors, with_step_phase
from cb_trace.analysis.simulate import simulate
from cb_trace.analysis.stats import BareStep, FloatArray, Interval
from cb_trace.bundle import Deployment
from cb_trace.columns import polars_schema

MARGINAL, PREDICTED, KERNEL_SUM, ISOLATION_SUM = (
    "marginal", "predicted", "kernel_sum", "isolation_sum",
)  # fmt: skip
STEP = "step"
# Where nothing tells how much kernels that run at once feel each other, in a prediction from parts:
# each fills the device, and it does no more in all than with one at a time. Five graphs of DLRM on
# two streams (H200) were 4 to 10 % longer than if they did not feel each other, and up to 4 %
# shorter than so.
SHARING = 0.0

Removal = tuple[int, str]  # module_id, phase; phase ``step``: all of them


def scaled_steps(
    steps: Sequence[Program], deployment: Deployment, bare: BareStep | None, parts: Parts
) -> Scaled:
    """Scale the programs of profiled steps to a deployment's bare step.

    Of a graph on several streams those of its profiled runs, where there are any.
    """
    graph = deployment == "graph"
    met = parts.met if graph and bare is not None else None

    def whole(scale: Scale, cold: HostCold | None = None) -> Scale:
        return replace(scale, residency=parts.residency, cold=cold)

    def one(program: Program, bare_ns: int | None) -> Scale:
        # Cold code of the host is read off the bare step.
        return whole(scaled(program, bare_ns), None if graph or bare_ns is None else parts.cold)

    def scaled(program: Program, bare_ns: int | None) -> Scale:
        program = with_carried(program, parts.alone_ns, parts.likes, graph=graph)
        # A prediction from parts must not have seen the bare step: what was fitted to it is none.
        known = None if parts.fitted and bare_ns is None else parts.together
        known = SHARING if known is None and bare_ns is None else known
        if graph:
            return graph_scale(program, bare_ns, parts.gap_ns, known, parts.one_stream_ns)
        together = 1.0 if known is None else known
        host = parts.host(program.owners)
        program = in_window(program, parts, bare=bare_ns is not None)
        if bare_ns is None:
            others = in_company(program, parts.toured_ns, parts.looped_ns)
            return eager_scale(program, None, host, together, parts.toured_ns, others=others)
        return eager_scale(
            program, bare_ns, host, together, parts.spent_ns, window=parts.window
        )  # fmt: skip

    def side(bare_ns: int) -> list[Scale]:
        if met is not None:
            known = [with_carried(p, parts.alone_ns, parts.likes, graph=True) for p in met.programs]
            gap = met.gap_ns(parts.one_stream_ns)
            scales = met_scales(known, bare_ns, parts.gap_ns if gap is None else gap)
            return [whole(scale) for scale in scales]
        return [one(program, bare_ns) for program in steps]

    if bare is None:
        return Scaled([one(program, None) for program in steps])
    sides = sorted({bare.low_ns, bare.high_ns} - {bare.median_ns})
    scaled_ones = Scaled(side(bare.median_ns), [side(ns) for ns in sides], met=met is not None)
    if met is None:
        return scaled_ones
    plain = scaled_steps(steps, deployment, bare, replace(parts, met=None))
    return replace(scaled_ones, plain=plain)


def in_window(program: Program, parts: Parts, *, bare: bool) -> Program:
    """The program in a window as bare steps are timed in, where it is known how those are closed.

    :param bare: the bare step has been seen. Else to close one takes as long as in an empty one.
    """
    window = parts.window
    if window is None:
        return program
    closing_ns = window.closing_ns if bare else window.empty_ns
    return replace(program, closing_ns=closing_ns, empty_ns=window.empty_ns)


def with_together(
    parts: Parts,
    steps: Mapping[Deployment, Sequence[Program]],
    bare: Mapping[Deployment, BareStep],
    alone_ns: Mapping[int, float],
    runs: pl.DataFrame | None = None,
) -> Parts:
    """The parts with how much kernels that run at once slow each other, where that is to be had.

    With profiled ``runs`` of the graph (:func:`as_met`) also what each kernel lost in them. One
    figure for all is from the recorded steps where kernels ran at once, against the sequence run
    (``alone_ns``, by kernel_id); else from the bare step as a CUDA graph, which runs at once what
    the recorded one had no time to. That is fitted to the bare step, and no part that it can be
    predicted from.
    """
    several = {d: [p for p in programs if p.streams > 1] for d, programs in steps.items()}
    recorded = [program for programs in several.values() for program in programs]
    if not recorded:
        return parts
    together = together_in(recorded, alone_ns)
    fitted = together is None
    if fitted and several.get("graph") and "graph" in bare:
        target = bare["graph"].median_ns
        found = [
            graph_scale(p, target, parts.gap_ns, None, parts.one_stream_ns).together
            for p in several["graph"]
        ]
        together = float(np.median(found))
    met = as_met(recorded, runs, alone_ns)
    return replace(parts, together=together, fitted=fitted, met=met)


def marginal_costs(
    steps: Mapping[Deployment, Sequence[Program]],
    module: pl.DataFrame,
    partition: pl.DataFrame,
    cost_bounds: pl.DataFrame,
    parts: Parts,
    *,
    run_id: str,
    bare: Mapping[Deployment, BareStep],
    device_type: str | None,
) -> pl.DataFrame:
    """A ``marginal`` frame: one row a module and deployment, and those of the whole step.

    :param steps: from :func:`programs`, by deployment; ``parts`` from :func:`isolated_parts`.
    :param partition: says which modules and phases have a cost; those get a marginal cost.
    :param cost_bounds: of that partition.
    """
    rows: list[tuple[object, ...]] = []
    for deployment, target in bare.items():
        wanted = _removals(partition, module, deployment)
        if device_type == "cpu":
            rows += _costs(partition, cost_bounds, module, wanted, run_id, deployment)
            continue
        if (profiled := steps.get(deployment)) and wanted:
            scaled = scaled_steps(profiled, deployment, target, parts)
            rows += _marginal_rows(scaled, wanted, module, run_id, deployment)
        if profiled:
            rows += _whole_rows(profiled, deployment, parts, run_id)
    return pl.DataFrame(rows, schema=polars_schema("marginal"), orient="row")


def _removals(partition: pl.DataFrame, module: pl.DataFrame, deployment: str) -> list[Removal]:
    """Modules with a cost; where work has several phases, all of them together."""
    rows = partition.filter(pl.col("deployment") == deployment)
    owned = owned_parts(rows, module).select("module_id", "phase").unique()
    phases = set(owned["phase"].to_list())
    pairs = owned.with_columns(phase=pl.lit(STEP)) if len(phases) > 1 else owned
    return sorted(set(pairs.iter_rows()))


def removed(owners: Sequence[Owner], module: pl.DataFrame, wanted: Sequence[Removal]) -> FloatArray:
    """1 for work that stays and 0 for what goes, shape (owners, removals)."""
    below: dict[int, set[int]] = {}
    for inner, outer in ancestors(module).select("module_id", "ancestor_id").iter_rows():
        below.setdefault(outer, set()).add(inner)
    rows: dict[int | None, list[int]] = {}
    for row, (owner, _) in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    stays = np.ones((len(owners), len(wanted)))
    for column, (taken, when) in enumerate(wanted):
        for row in (row for owner in below[taken] for row in rows.get(owner, ())):
            if when in (STEP, owners[row][1]):
                stays[row, column] = 0.0
    return stays


def _marginal_rows(
    scaled: Scaled,
    wanted: Sequence[Removal],
    module: pl.DataFrame,
    run_id: str,
    deployment: str,
) -> Iterable[tuple[object, ...]]:
    lost = [
        np.stack([_lost(scale, wanted, module) for scale in side])
        for side in (scaled.middle, *scaled.sides)
    ]
    figures = zip(scaled.figure(lost[0]), *scaled.span(lost), strict=True)
    for (module_id, phase), figure in zip(wanted, figures, strict=True):
        rounded = (round(float(ns)) for ns in figure)
        yield run_id, module_id, phase, deployment, MARGINAL, *rounded


def _lost(scale: Scale, wanted: Sequence[Removal], module: pl.DataFrame) -> FloatArray:
    """The step less the step without each of the modules."""
    stays = removed(scale.program.owners, module, wanted)
    lost: FloatArray = scale.step_ns() - simulate(scale.program, scale.variants(stays, stays))
    return lost


def _whole_rows(
    steps: Sequence[Program], deployment: Deployment, parts: Parts, run_id: str
) -> Iterable[tuple[object, ...]]:
    """The step from its parts alone: nothing here has seen the bare step."""
    kernels = [int(program.kernel_ns.sum()) for program in steps]
    found = {KERNEL_SUM: kernels}
    if parts.measured(deployment):
        extra = parts.launch_ns if deployment == "graph" else 0.0
        alone = scaled_steps(steps, deployment, None, parts).middle
        found[PREDICTED] = [round(scale.step_ns() + extra) for scale in alone]
    phases = {phase for program in steps for _, phase in program.owners}
    # A sum of forwards alone is none of a step with a backward; optimizers are never alone.
    if parts.isolation_ns and phases & {"forward", "backward"} <= parts.isolation_ns.keys():
        found[ISOLATION_SUM] = [sum(parts.isolation_ns.values())]
    for kind, values in found.items():
        middle = round(float(np.median(values)))
        yield run_id, None, None, deployment, kind, middle, min(values), max(values)


def _costs(  # noqa: PLR0917 - as marginal_costs
    partition: pl.DataFrame,
    cost_bounds: pl.DataFrame,
    module: pl.DataFrame,
    wanted: Sequence[Removal],
    run_id: str,
    deployment: str,
) -> Iterable[tuple[object, ...]]:
    """On a CPU: the part of the step that each module owns."""
    here = with_step_phase(partition.filter(pl.col("deployment") == deployment))
    rows = bounded_parts(here, cost_bounds, module)
    found: dict[Removal, Interval] = {}
    for row in rows.iter_rows(named=True):
        found[row["module_id"], row["phase"]] = Interval(row["ns"], row["low_ns"], row["high_ns"])
    for key in wanted:
        cost = found[key]
        yield run_id, *key, deployment, MARGINAL, cost.median_ns, cost.low_ns, cost.high_ns
