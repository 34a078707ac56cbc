"""One plain sentence a module: which number to believe, and what the isolated one leaves out.

Rules, in order. *Beyond noise* means that the interval does not contain 0; that of isolated − cost
is the one that ``compare`` and ``--fail-above`` go by (table ``cost_bounds``, view ``compare``).

1. Not replayed alone: say so with the reason; the cost in the step is all there is. Where modules
   below it were, their sum and how much of its cost they make up; its own work is in no sum. All
   phases together are never replayed; where one of them was, that is said.
2. isolated − cost not beyond noise: the two cannot be told apart.
3. isolated above cost: name what it has and the step does not (positive terms, beyond noise);
   believe the cost.
4. isolated below cost: name what it leaves out (negative terms, beyond noise); believe the cost.

In 3 and 4 at most the two largest terms are named, each at least a tenth of the difference; where
there is none, the sentence says that no term beyond noise explains it. Of the terms that go the
other way the largest is named as well, if it is beyond noise and at least half of the difference:
without it the sentence would not add up.

5. What the step loses without the module is said after its cost, and believed: the knock-out where
   it is beyond noise; else, and where nothing was measured, the predicted marginal cost, if it and
   the cost differ by more than a tenth of the cost and their intervals do not meet. A knock-out
   within its noise is said to be so; a step that is longer without the module is not believed.
6. What the step gains where the module runs on a part of its batch, if measured, comes last.

The step is called what it is: eager, compiled, CUDA-graphed, or compiled and CUDA-graphed.

The term ``launch`` is all that the wall has beyond the kernels as profiled, and not all of that is
launching: back to back a device may run at a lower clock than in profiled calls that stand apart
(facts: h200, a matmul of 917 µs takes 1,064 µs, and no less as a CUDA graph). Where the module was
also timed as a CUDA graph, which launches at no cost, launch latency is what the graph saves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cb_trace.analysis.containers import Placed, children_of, fill_containers, nearest_below
from cb_trace.analysis.costs import bounded_parts
from cb_trace.analysis.shares import with_step_phase
from cb_trace.analysis.sides import measured_replays
from cb_trace.analysis.stats import Interval
from cb_trace.columns import polars_schema

_STEP = {
    ("eager", False): "eager step",
    ("eager", True): "compiled step",
    ("graph", False): "CUDA-graphed step",
    ("graph", True): "compiled, CUDA-graphed step",
}
_ADDS = {  # what a positive term is: alone it takes more
    "launch": "launch latency",
    "pace": "slower device back to back (clock, power)",
    "cache": "slower caches",
    "kernel_choice": "slower kernels for the same work",
    "fusion": "kernels that the step does not run",
    "contention": "kernels that ran faster beside other streams",
    "residual": "unexplained drift",
}  # of overlap: :func:`_why`
_SLOWED = "kernel time that only its profiled calls show"
_LACKS = {  # what a negative term is: the step takes more
    "launch": _SLOWED,
    "pace": _SLOWED,
    "cache": "slower caches",
    "kernel_choice": "slower kernels for the same work",
    "fusion": "kernels that only the step runs",
    "overlap": "overlap that only the module alone has",
    "contention": "contention with other streams",
    "idle": "idle time before its kernels",
    "residual": "unexplained drift",
}
_MERGED = "slower caches or drift"  # without a sequence run the two cannot be told apart
_LAUNCH = {"cpu": "time outside operators", "cuda": "launch latency or a lower clock"}
_NOTHING_NS = 50  # would be printed as 0.0 µs
_NAMED = 2
_TENTH, _HALF = 10, 2  # of the difference: the least that is named of its sign, and of the other
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
    compiled: bool = False  # the step was recorded compiled
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
    step = _STEP.get((figures.deployment, figures.compiled), figures.deployment)
    loses, believed = _loss(figures)
    costs = f"costs {cost} µs in the {step}{loses}"
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
    why = _why(figures, difference.median_ns)
    return f"{alone}{why}; {costs}: believe the {believed or cost}"


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
    gain = (
        f"the step is {_us(abs(saved.median_ns))} µs {'shorter' if saved.low_ns > 0 else 'longer'}"
    )
    if _is_noise(saved):
        gain = "no gain beyond noise"
    said = "" if found.predicted_ns is None else f", predicted {_us(found.predicted_ns)}"
    return f"; on 1/{found.factor} of its batch {gain} ({bounds}{said})"


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
    saved = _us(abs(predicted.median_ns))
    if abs(predicted.median_ns) < _NOTHING_NS:
        return f"{noise}, which is predicted to be as long without it", "0"
    if predicted.median_ns < 0:
        return f"{noise}, which is predicted to be {saved} µs longer without it", None
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
    mode: str | None = None,
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
    faster, compiled = _sped_up(speedup), "compile" in (mode or "")
    partition = with_step_phase(partition)
    owned_rows = bounded_parts(partition, cost_bounds, module).rows(named=True)
    places = [(row["module_id"], row["phase"], row["deployment"]) for row in owned_rows]
    skipped, split = _skipped(replay), _terms(term)
    hot, summed = _alone(replay, "hot", places, partition, module)
    graph, _ = _alone(replay, "graph", places, partition, module)
    costs = {place: owned["ns"] for place, owned in zip(places, owned_rows, strict=True)}
    children, known = children_of(module), {(place[0], place[2]) for place in hot}
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
            compiled=compiled,
            device_type=device_type,
            knockout=lost.get(place),
            marginal=predicted.get(place),
            faster=faster.get(place),
        )
        rows.append((run_id, *place, verdict(figures)))
    return pl.DataFrame(rows, schema=polars_schema("verdict"), orient="row")


def _alone(
    replay: pl.DataFrame,
    condition: str,
    places: Sequence[Placed],
    partition: pl.DataFrame,
    module: pl.DataFrame,
) -> tuple[dict[Placed, Interval], set[Placed]]:
    """The walls in a condition, those of containers added up; and of whom they are such sums."""
    walls = _placed(_walls(replay, condition), places)
    return walls, fill_containers(walls, places, partition, module, Interval.__add__)


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


def _why(figures: Figures, difference_ns: int) -> str:
    """What the module has alone, what that leaves out, and what of it the step hides."""
    terms, has, lacks = _named_terms(figures)
    sign, apart = (1 if difference_ns > 0 else -1), abs(difference_ns)
    found = {
        sign: _largest(terms, sign, apart / _TENTH)[:_NAMED],
        -sign: _largest(terms, -sign, apart / _HALF)[:1],
    }
    said = {1: [f"{_us(terms[kind].median_ns)} µs {has[kind]}" for kind in found[1] if kind in has]}
    said[-1] = [f"{_us(-terms[kind].median_ns)} µs of {lacks[kind]}" for kind in found[-1]]
    if not found[sign]:
        said[sign].append(f"{_us(apart)} µs that no term beyond noise explains")
    why = f", of which {' and '.join(said[1])}" if said[1] else ""
    why += f", leaving out {' and '.join(said[-1])}" if said[-1] else ""
    if "overlap" in found[1]:  # no part of the figure alone: it may be more than that
        hidden = _us(terms["overlap"].median_ns)
        why += f", while the step hides {hidden} µs of it under other work"
    return why


def _largest(terms: Mapping[str, Interval], sign: int, least_ns: float) -> list[str]:
    """Kinds of the terms of one sign that are beyond noise, the largest first."""
    amounts = {kind: term.median_ns * sign for kind, term in terms.items() if not _is_noise(term)}
    able = [kind for kind, ns in amounts.items() if ns > 0 and ns >= least_ns]
    return sorted(able, key=lambda kind: (-amounts[kind], kind))


def _named_terms(figures: Figures) -> tuple[dict[str, Interval], dict[str, str], dict[str, str]]:
    """The terms, and what each is called where it is positive and where it is negative."""
    terms, has, lacks = dict(figures.terms), dict(_ADDS), dict(_LACKS)
    if figures.graph is None:
        has["launch"] = _LAUNCH.get(figures.device_type or "", _LAUNCH["cuda"])
    elif "launch" in terms and figures.isolated is not None:
        terms["launch"], terms["pace"] = _launch_and_pace(
            terms["launch"], figures.isolated - figures.graph
        )
    if "residual" not in terms:
        has["cache"] = lacks["cache"] = _MERGED
    if figures.device_type == "cpu":
        return terms, _of_operators(has), _of_operators(lacks)
    return terms, has, lacks


def _of_operators(names: Mapping[str, str]) -> dict[str, str]:
    """On a CPU operators stand for kernels."""
    return {kind: name.replace("kernel", "operator") for kind, name in names.items()}


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
