"""One plain sentence a module: which number to believe, and what the isolated one leaves out.

Rules, in order. *Beyond noise* means that the interval does not contain 0; that of isolated − cost
is the one that ``compare`` and ``--fail-above`` go by (table ``cost_bounds``, view ``compare``).

1. Not replayed alone: say so with the reason; the cost in the step is all there is. Where modules
   below it were, their sum and how much of its cost they make up; its own work is in no sum. All
   phases together are never replayed; where one of them was, that is said.
2. isolated − cost not beyond noise: the two cannot be told apart.
3. isolated above cost: name the terms that raise it (positive, beyond noise); believe the cost.
4. isolated below cost: name what it leaves out (negative terms, beyond noise); believe the cost.

5. What the step loses without the module is said after its cost, and believed: the knock-out where
   it is beyond noise; else, and where nothing was measured, the predicted marginal cost, if it and
   the cost differ by more than a tenth of the cost and their intervals do not meet. A knock-out
   within its noise is said to be so.

At most the two largest terms are named, each at least a tenth of the difference; where there is
none, the sentence says that the cause lies within the noise of the terms.

The term ``launch`` is all that the wall has beyond the kernels as profiled, and not all of that is
launching: back to back a device may run at a lower clock than in profiled calls that stand apart
(facts: h200, a matmul of 917 µs takes 1,064 µs, and no less as a CUDA graph). Where the module was
also timed as a CUDA graph, which launches at no cost, launch latency is what the graph saves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cb_trace.analysis.containers import Placed, children_of, fill_containers, nearest_below
from cb_trace.analysis.costs import bounded_parts
from cb_trace.analysis.shares import with_step_phase
from cb_trace.analysis.sides import measured_replays
from cb_trace.analysis.stats import Interval
from cb_trace.columns import polars_schema

_STEP = {"eager": "eager step", "graph": "CUDA-graphed step"}
_ADDS = {  # what a positive term is: alone it takes more
    "launch": "launch latency",
    "cache": "slower caches",
    "kernel_choice": "slower kernels of the same operators",
    "fusion": "kernels that the step does not run",
    "overlap": "time that the step hides under other work",
    "contention": "contention",
    "residual": "unexplained drift",
}
_LACKS = {  # what a negative term is: the step takes more
    "launch": "launch latency",
    "cache": "slower caches",
    "kernel_choice": "slower kernels of the same operators",
    "fusion": "kernels that only the step runs",
    "overlap": "overlap that only the module alone has",
    "contention": "contention with other streams",
    "idle": "idle time before its kernels",
    "residual": "unexplained drift",
}
_MERGED = "cache or residual"  # without a sequence run the two cannot be told apart
_LAUNCH = {"cpu": "time outside operators", "cuda": "launch latency or a lower clock"}
_PACE = "slower device back to back (clock, power)"
_NAMED = 2
_ALL_PHASES = "step"


@dataclass(frozen=True, slots=True)
class Faster:
    """What the step gains where the module runs on a part of its batch."""

    factor: int
    saved: Interval
    predicted_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a verdict is made from, all per step."""

    deployment: str
    cost: Interval
    isolated: Interval | None = None  # bare wall, hot
    parts: bool = False  # the isolated figure is the sum over the modules below
    skipped: str | None = None  # why it was not replayed
    by_phase: bool = False  # all phases together, of which it was replayed one or more
    below: tuple[Interval, float] | None = None  # modules below it: their sum, part of its cost
    terms: Mapping[str, Interval] = field(default_factory=dict)  # those measured
    graph: Interval | None = None  # as isolated, launched as a CUDA graph
    device_type: str | None = None
    knockout: Interval | None = None  # what the step loses without it, measured
    marginal: Interval | None = None  # the same, predicted
    faster: Faster | None = None


def verdict(figures: Figures) -> str:
    """The sentence for one module, phase and deployment."""
    return _cost(figures) + _faster(figures.faster)


def _cost(figures: Figures) -> str:
    cost = _us(figures.cost.median_ns)
    costs = f"costs {cost} µs in the {_STEP.get(figures.deployment, figures.deployment)}"
    loses, believed = _loss(figures)
    costs += loses
    if figures.isolated is None and figures.by_phase:
        return f"{costs}; measured alone by phase only"
    if figures.isolated is None:
        return f"{costs}; not replayed alone{_instead(figures)}"
    alone = (
        f"{'its parts alone' if figures.parts else 'alone'} {_us(figures.isolated.median_ns)} µs"
    )
    difference = figures.isolated - figures.cost
    if _is_noise(difference):
        held = f"believe the {believed}" if believed else "the two cannot be told apart"
        return f"{alone}, {costs}: no difference beyond noise, {held}"
    causes = ", ".join(_causes(figures, difference.median_ns))
    if not causes:
        causes = f"{_us(abs(difference.median_ns))} µs that no term beyond noise explains"
    relation = ", of which" if difference.median_ns > 0 else " leaves out"
    return f"{alone}{relation} {causes}; {costs}: believe the {believed or cost}"


def _instead(figures: Figures) -> str:
    """Why a module was not replayed, and what is known of those below it."""
    reason = f": {figures.skipped}" if figures.skipped else ""
    if figures.below is None:
        return reason
    alone, part = figures.below
    return (
        f"{reason}; modules in it, {100 * part:.0f} % of its cost, {_us(alone.median_ns)} µs alone"
    )


def _faster(found: Faster | None) -> str:
    """What a faster module gains, measured; beside it what the simulator says."""
    if found is None:
        return ""
    saved, bounds = found.saved, f"{_us(found.saved.low_ns)} to {_us(found.saved.high_ns)}"
    gain = "as long" if _is_noise(saved) else f"{_us(saved.median_ns)} µs shorter"
    said = "" if found.predicted_ns is None else f", predicted {_us(found.predicted_ns)}"
    return f"; on 1/{found.factor} of its batch the step is {gain} ({bounds}{said})"


def _loss(figures: Figures) -> tuple[str, str | None]:
    """What the step loses without the module, in words, and that figure where it is the better."""
    measured, predicted, cost = figures.knockout, figures.marginal, figures.cost
    bounds = "" if measured is None else f"{_us(measured.low_ns)} to {_us(measured.high_ns)}"
    if measured is not None and measured.high_ns < 0:
        longer = _us(-measured.median_ns)
        return f", which is {longer} µs longer without it (knock-out, {bounds})", None
    if measured is not None and not _is_noise(measured):
        saved = _us(measured.median_ns)
        return f", which is {saved} µs shorter without it (knock-out, {bounds})", saved
    noise = "" if measured is None else f" (knock-out cannot tell: {bounds} µs)"
    if predicted is None or not _apart(predicted, cost):
        return noise, None
    saved = _us(predicted.median_ns)
    return f"{noise}, which is predicted to be {saved} µs shorter without it", saved


def _apart(one: Interval, other: Interval) -> bool:
    """Whether two figures differ by more than a tenth of the second and their intervals."""
    differ = abs(one.median_ns - other.median_ns) * 10 > abs(other.median_ns)
    return differ and (one.high_ns < other.low_ns or other.high_ns < one.low_ns)


def verdicts(
    partition: pl.DataFrame,
    cost_bounds: pl.DataFrame,
    term: pl.DataFrame,
    replay: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
    device_type: str | None = None,
    knockout: pl.DataFrame | None = None,
    marginal: pl.DataFrame | None = None,
    speedup: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """A ``verdict`` row for every module, phase and deployment that has a cost, children in.

    ``partition``, ``cost_bounds``, ``term`` and ``replay`` come from :func:`step_partition`,
    :func:`cost_bounds`, :func:`terms` and :func:`replay_figures`; ``knockout``, ``marginal`` and
    ``speedup`` are the tables, where there are any.
    """
    lost, predicted = _losses(knockout, "marginal_ns"), _losses(marginal, "ns")
    faster = _sped_up(speedup)
    partition = with_step_phase(partition)
    owned_rows = bounded_parts(partition, cost_bounds, module).rows(named=True)
    places = [(row["module_id"], row["phase"], row["deployment"]) for row in owned_rows]
    skipped, split = _skipped(replay), _terms(term)
    hot, graph = (_placed(_walls(replay, one), places) for one in ("hot", "graph"))
    fill_containers(graph, places, partition, module, Interval.__add__)
    summed = fill_containers(hot, places, partition, module, Interval.__add__)
    costs = {place: owned["ns"] for place, owned in zip(places, owned_rows, strict=True)}
    children = children_of(module)
    known = {(place[0], place[2]) for place in hot}
    rows = []
    for place, owned in zip(places, owned_rows, strict=True):
        figures = Figures(
            deployment=owned["deployment"],
            cost=Interval(owned["ns"], owned["low_ns"], owned["high_ns"]),
            isolated=hot.get(place),
            below=_below(place, hot, costs, children),
            parts=place in summed,
            skipped=skipped.get(place[:2]),
            by_phase=place[1] == _ALL_PHASES and (place[0], place[2]) in known,
            terms=split.get(place, {}),
            graph=graph.get(place),
            device_type=device_type,
            knockout=lost.get(place),
            marginal=predicted.get(place),
            faster=faster.get(place),
        )
        rows.append((run_id, *place, verdict(figures)))
    return pl.DataFrame(rows, schema=polars_schema("verdict"), orient="row")


def _placed(
    walls: Mapping[tuple[int, str], Interval], places: Sequence[Placed]
) -> dict[Placed, Interval]:
    """The same in every deployment that a module and phase has a cost in."""
    return {place: walls[place[:2]] for place in places if place[:2] in walls}


def _below(
    place: Placed,
    walls: Mapping[Placed, Interval],
    costs: Mapping[Placed, int],
    children: Mapping[int | None, list[int]],
) -> tuple[Interval, float] | None:
    """The sum over measured modules below one that was not measured, and what they cost of it."""
    parts = [] if place in walls else nearest_below(place, walls, children)
    if not parts or costs[place] <= 0:
        return None
    first, *rest = (walls[part] for part in parts)
    return sum(rest, first), sum(costs[part] for part in parts) / costs[place]


def _losses(table: pl.DataFrame | None, median: str) -> dict[tuple[int, str, str], Interval]:
    if table is None:
        return {}
    rows = table.drop_nulls(["module_id", median])
    columns = ("module_id", "phase", "deployment", median, "low_ns", "high_ns")
    return {tuple(row[:3]): Interval(*row[3:]) for row in rows.select(columns).iter_rows()}


def _sped_up(table: pl.DataFrame | None) -> dict[tuple[int, str, str], Faster]:
    """By place; of several factors the least, as in the view ``compare``."""
    if table is None:
        return {}
    table = table.sort("factor", descending=True)
    saved = _losses(table, "saved_ns")
    rows = table.drop_nulls("saved_ns").select(
        "module_id", "phase", "deployment", "factor", "predicted_ns"
    )
    return {
        (module_id, phase, deployment): Faster(
            factor, saved[module_id, phase, deployment], predicted
        )
        for module_id, phase, deployment, factor, predicted in rows.iter_rows()
    }


def _causes(figures: Figures, difference_ns: int) -> Iterator[str]:
    """The largest terms of the difference's sign, as amount and name."""
    sign = 1 if difference_ns > 0 else -1
    names = _ADDS if sign > 0 else _LACKS
    terms = dict(figures.terms)
    if figures.graph is None:
        names = names | {"launch": _LAUNCH.get(figures.device_type or "cuda", _LAUNCH["cuda"])}
    elif "launch" in terms and figures.isolated is not None:
        terms["launch"], terms["pace"] = _launch_and_pace(
            terms["launch"], figures.isolated - figures.graph
        )
        names = names | {"pace": _PACE}
    able = {
        kind: term.median_ns * sign
        for kind, term in terms.items()
        if kind in names and term.median_ns * sign > 0 and not _is_noise(term)
    }
    for kind in sorted(able, key=lambda kind: (-able[kind], kind))[:_NAMED]:
        if able[kind] * 10 >= abs(difference_ns):
            merged = kind == "cache" and "residual" not in terms
            yield f"{_us(able[kind])} µs {_MERGED if merged else names[kind]}"


def _launch_and_pace(term: Interval, saved: Interval) -> tuple[Interval, Interval]:
    """The term split into what a CUDA graph saves, within 0 and the term, and the rest of it."""
    most = max(0, term.median_ns)
    low, median, high = (
        min(max(ns, 0), most) for ns in (saved.low_ns, saved.median_ns, saved.high_ns)
    )
    launch = Interval(median, low, high)
    return launch, Interval(
        term.median_ns - median,
        min(term.low_ns, most) - high,
        max(term.high_ns, term.median_ns) - low,
    )


def _is_noise(interval: Interval) -> bool:
    return interval.low_ns <= 0 <= interval.high_ns


def _us(ns: int) -> str:
    """Microseconds for a person: one decimal below 10, none above."""
    return f"{ns / 1000:.1f}" if abs(ns) < 9950 else f"{ns / 1000:,.0f}"


def _walls(replay: pl.DataFrame, condition: str) -> dict[tuple[int, str], Interval]:
    found: dict[tuple[int, str], Interval] = {}
    for row in measured_replays(replay, condition).iter_rows(named=True):
        key = (row["module_id"], row["phase"])
        wall = Interval(row["median_ns"], row["low_ns"], row["high_ns"], row["samples"] or 1)
        found[key] = found[key] + wall * row["calls"] if key in found else wall * row["calls"]
    return found


def _skipped(replay: pl.DataFrame) -> dict[tuple[int, str], str]:
    rows = replay.filter(pl.col("condition") == "hot").drop_nulls("skipped")
    return {
        (module, phase): why
        for module, phase, why in rows.select("module_id", "phase", "skipped").iter_rows()
    }


def _terms(term: pl.DataFrame) -> dict[tuple[int, str, str], dict[str, Interval]]:
    found: dict[tuple[int, str, str], dict[str, Interval]] = {}
    for row in term.drop_nulls("ns").iter_rows(named=True):
        key = (row["module_id"], row["phase"], row["deployment"])
        interval = Interval(row["ns"], row["low_ns"], row["high_ns"])
        found.setdefault(key, {})[row["kind"]] = interval
    return found
