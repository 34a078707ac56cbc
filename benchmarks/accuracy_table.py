"""The tables of ``docs/accuracy.md``, from recorded bundles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.accuracy_figures import (
    LARGE,
    SHARED,
    Deployed,
    Errors,
    Figures,
    ModuleFigures,
    figures,
    share,
    summed,
)
from benchmarks.accuracy_grid import Point

WHOLE = ("predicted", SHARED, "isolation_sum", "kernel_sum")
UNSTEADY = 0.05  # the step as it was during a knock-out, against the bare step
MOST_MISSES = 40
RESIDUAL = 0.05
BIG = 0.05  # of the step: what another capture of the same graph can hardly hide
HEAD = """# Accuracy

What cb-trace predicts, held against what was measured. Made by
`python benchmarks/accuracy.py table` from bundles that
`python benchmarks/accuracy.py record` wrote on: {devices}.

Marginal cost is what the step would lose without a module, from the simulator; knock-out is the
same thing measured: the step with the module's output replaced by its recorded one, in turn with
the step as it is. Errors are relative to what was measured, by size; geometric means take an error
below 0.01 % as 0.01 %. Times are µs a step.
"""


def document(bundles: Sequence[Path], causes: Path | None, grid: Sequence[Point]) -> str:
    """The whole page, from bundles."""
    return page(figures(bundles, {point.name: point.workload for point in grid}), causes, grid)


def page(given: Sequence[Figures], causes: Path | None, grid: Sequence[Point]) -> str:
    """The whole page, from figures."""
    order = {point.name: number for number, point in enumerate(grid)}
    found = sorted(given, key=lambda point: order.get(point.name, len(order)))
    devices = ", ".join(dict.fromkeys(point.device for point in found))
    parts = [HEAD.format(devices=devices), _summary(found)]
    if causes is not None:
        parts.append(causes.read_text(encoding="utf-8"))
    parts += [_steps(found), _graph(found), _eager(found), _residuals(found), _misses(found)]
    parts.append(_not_run(found, grid))
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


# --- the summary ------------------------------------------------------------------------------


def _summary(found: Sequence[Figures]) -> str:
    rows = [*_marginal_targets(found), *_step_targets(found), *_residual_targets(found)]
    return "## Targets\n\n" + markdown(("figure", "target", "measured", "of", "met"), rows)


def _marginal_targets(found: Sequence[Figures]) -> Iterator[tuple[str, ...]]:
    graph = _all(found, "graph")
    errors = summed(m.error for d in graph for m in d.large)
    near = [d.near(m) for d in graph for m in d.small]
    what = "marginal cost against knock-out, graph"
    yield _target(f"{what}: mean", 0.05, errors, "mean")
    yield _target(f"{what}: geometric mean", 0.027, errors, "geomean")
    yield from _aside(f"{what}, whole interval above {LARGE:.0%} of the step", _surely(graph))
    yield from _aside(f"{what}, above {BIG:.0%} of the step", _above(graph, BIG))
    yield _share_target("smaller modules within 1 % of the step, graph", 1.0, near)
    eager = _all(found, "eager")
    yield from _eager_targets(eager, "eager")
    yield from _eager_targets([d for d in eager if d.steady], "eager, steady host")


def _surely(some: Sequence[Deployed]) -> list[float]:
    """Errors of modules that the knock-out tells to be that large, whichever end is taken."""
    return [m.error for d in some for m in d.large if (m.low or 0) > LARGE * d.bare]


def _above(some: Sequence[Deployed], share_of_step: float) -> list[float]:
    """Errors of modules whose knock-out is a larger part of the step."""
    return [m.error for d in some for m in d.large if (m.knockout or 0) > share_of_step * d.bare]


def _aside(what: str, values: Sequence[float]) -> Iterator[tuple[str, ...]]:
    """Figures without a target."""
    errors = summed(values)
    for name, field in (("mean", "mean"), ("geometric mean", "geomean")):
        if errors is not None:
            yield f"{what}: {name}", "none", f"{getattr(errors, field):.2%}", str(errors.count), ""


def _eager_targets(some: Sequence[Deployed], which: str) -> Iterator[tuple[str, ...]]:
    inside = [m.inside for d in some for m in d.large if m.resolved]
    yield _share_target(f"marginal cost inside the knock-out's interval, {which}", 0.9, inside)
    errors = summed(m.error for d in some for m in d.large if m.resolved)
    if errors is not None:
        what = f"marginal cost against knock-out, {which}: mean"
        yield what, "none", f"{errors.mean:.2%}", str(errors.count), ""


def _step_targets(found: Sequence[Figures]) -> Iterator[tuple[str, ...]]:
    every = [d for point in found for d in point.deployments.values()]
    targets = (("geometric mean", 0.04, "geomean"), ("mean", 0.05, "mean"), ("worst", 0.1, "worst"))
    for which, some in (("", every), (", steady host", [d for d in every if d.steady])):
        errors = summed(d.error("predicted") for d in some)
        for name, target, field in targets:
            yield _target(f"step predicted from its parts{which}: {name}", target, errors, field)


def _residual_targets(found: Sequence[Figures]) -> Iterator[tuple[str, ...]]:
    every = [d for point in found for d in point.deployments.values()]
    small = [_small_residual(m) for d in every for m in d.costly]
    yield _share_target("modules with a residual of 5 % of their cost or less", 0.95, small)


def _target(
    what: str, target: float, errors: Errors | None, field: str
) -> tuple[str, str, str, str, str]:
    if errors is None:
        return what, f"≤ {target:.1%}", "not measured", "0", ""
    value: float = getattr(errors, field)
    return what, f"≤ {target:.1%}", f"{value:.2%}", str(errors.count), _met(value <= target)


def _share_target(
    what: str, target: float, items: Sequence[bool]
) -> tuple[str, str, str, str, str]:
    got = share(items)
    if got is None:
        return what, f"≥ {target:.0%}", "not measured", "0", ""
    return what, f"≥ {target:.0%}", f"{got:.1%}", str(len(items)), _met(got >= target)


def _met(yes: bool) -> str:
    return "yes" if yes else "**no**"


def _small_residual(module: ModuleFigures) -> bool:
    return abs(module.residual or 0.0) <= RESIDUAL * module.cost


# --- one table a question -----------------------------------------------------------------------


def _steps(found: Sequence[Figures]) -> str:
    rows = []
    for point in found:
        for one in point.deployments.values():
            whole = [_with_error(one, kind) for kind in WHOLE]
            unsteady = "; ".join(_unsteady(point, one))
            rows.append((point.name, one.name, f"{one.bare:.1f}", *whole, unsteady))
    every = [d for point in found for d in point.deployments.values()]
    sums = {kind: summed(d.error(kind) for d in every) for kind in WHOLE}
    for name in ("geomean", "mean", "worst"):
        cells = (f"{getattr(e, name):.2%}" if (e := sums[kind]) else "–" for kind in WHOLE)
        rows.append((f"**{name}**", "", "", *cells, ""))
    heading = (
        *("point", "deployment", "bare", "predicted from its parts"),
        *("with host overheads of other workloads", "modules alone, added up"),
        *("kernels added up", "note"),
    )
    return "## The step from its parts\n\n" + markdown(heading, rows)


def _unsteady(point: Figures, one: Deployed) -> Iterator[str]:
    if not one.steady:
        yield f"blocks of bare steps {1 + one.swing:.2f} × apart"
    if one.name == "eager":
        yield from point.notes


def _with_error(one: Deployed, kind: str) -> str:
    error = one.error(kind)
    return "–" if error is None else f"{one.whole[kind]:.1f} ({error:+.1%})"


def _graph(found: Sequence[Figures]) -> str:
    rows = []
    for point, one in _deployed(found, "graph"):
        errors = summed(m.error for m in one.large)
        worst = max(one.large, key=lambda m: abs(m.error), default=None)
        near = [one.near(m) for m in one.small]
        cells = ("–", "–", "–") if errors is None or worst is None else (
            f"{errors.mean:.2%}", f"{errors.geomean:.2%}", f"{worst.error:+.1%} `{worst.path}`"
        )  # fmt: skip
        rows.append(
            (
                point.name,
                f"{one.bare:.1f}",
                str(len(one.large)),
                *cells,
                f"{sum(near)} of {len(near)}",
            )
        )
    heading = (
        *("point", "bare", "modules", "mean", "geometric mean", "worst"),
        "smaller ones within 1 % of the step",
    )
    return "## Marginal cost against knock-out, CUDA graph\n\n" + markdown(heading, rows)


def _eager(found: Sequence[Figures]) -> str:
    rows = []
    for point, one in _deployed(found, "eager"):
        sure = [m for m in one.large if m.resolved]
        unsure = [m.path for m in one.measured if not m.resolved]
        errors = summed(m.error for m in sure)
        moved = [m for m in sure if m.base and abs(m.base / one.bare - 1) > UNSTEADY]
        got = share([m.inside for m in sure])
        near = [one.near(m) for m in one.small]
        rows.append(
            (
                point.name,
                f"{one.bare:.1f}",
                str(len(sure)),
                "–" if got is None else f"{got:.0%}",
                "–" if errors is None else f"{errors.mean:.1%}",
                f"{len(moved)} of {len(sure)}",
                f"{sum(near)} of {len(near)}",
                _listed(unsure),
            )
        )
    heading = (
        *("point", "bare", "modules", "inside the interval", "mean error"),
        "step at another speed by 5 %",
        *("smaller ones within 1 % of the step", "that knock-out cannot tell from nothing"),
    )
    return "## Marginal cost against knock-out, eager\n\n" + markdown(heading, rows)


def _residuals(found: Sequence[Figures]) -> str:
    rows = []
    for point in found:
        for one in point.deployments.values():
            large = [m for m in one.costly if not _small_residual(m)]
            shown = [f"{m.path} {(m.residual or 0) / m.cost:+.0%}" for m in large]
            fine = len(one.costly) - len(large)
            rows.append((point.name, one.name, f"{fine} of {len(one.costly)}", _listed(shown)))
    heading = ("point", "deployment", "residual ≤ 5 % of the cost", "the others")
    return f"## Residual of modules above {LARGE:.0%} of the step\n\n" + markdown(heading, rows)


def _misses(found: Sequence[Figures]) -> str:
    rows = []
    for point in found:
        for one in point.deployments.values():
            off = [m for m in one.large if _missed(one, m)]
            rows += [(abs(m.error_us or 0) / one.bare, _miss(point, one, m)) for m in off]
    rows.sort(key=lambda row: -row[0])
    heading = ("point", "deployment", "module", "predicted", "knock-out", "interval", "error")
    cut = f" The {MOST_MISSES} largest of {len(rows)}." if len(rows) > MOST_MISSES else ""
    text = f"In a graph beyond 5 % of the knock-out, in eager outside its interval.{cut}"
    table = markdown(heading, [row for _, row in rows[:MOST_MISSES]])
    return f"## Modules that are off\n\n{text}\n\n{table}"


def _missed(one: Deployed, module: ModuleFigures) -> bool:
    if one.name == "graph":
        return abs(module.error) > 0.05
    return module.resolved and not module.inside


def _miss(point: Figures, one: Deployed, module: ModuleFigures) -> tuple[str, ...]:
    interval = f"{module.low:.1f} to {module.high:.1f}"
    known = (f"{module.marginal:.1f}", f"{module.knockout:.1f}", interval, f"{module.error:+.1%}")
    return point.name, one.name, f"`{module.path}`", *known


def _not_run(found: Sequence[Figures], grid: Sequence[Point]) -> str:
    there = {point.name for point in found}
    missing = [point.name for point in grid if point.name not in there]
    text = f"## Not run\n\n{', '.join(missing) or 'Nothing: every point of the grid was run.'}\n"
    skipped: dict[tuple[str, str, str], list[str]] = {}
    for point in found:
        for path, deployment, reason in point.skipped:
            skipped.setdefault((point.name, deployment, reason), []).append(path)
    rows = [(name, how, _listed(paths), why) for (name, how, why), paths in skipped.items()]
    if not rows:
        return text
    return f"{text}\nNo knock-out:\n\n{markdown(('point', 'deployment', 'modules', 'why'), rows)}"


# --- helpers ------------------------------------------------------------------------------------


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _listed(texts: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown


def _deployed(found: Sequence[Figures], name: str) -> Iterator[tuple[Figures, Deployed]]:
    for point in found:
        if name in point.deployments:
            yield point, point.deployments[name]


def _all(found: Sequence[Figures], name: str) -> list[Deployed]:
    return [one for _, one in _deployed(found, name)]
