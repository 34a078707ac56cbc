"""What a change of the model would make of the step, by the same simulator.

Four changes, each of one module with all that it holds:

- ``set`` multiplies its host work and kernels by a factor; ``remove`` takes both out;
- ``fuse`` makes one kernel of each unbroken run of its kernels on a stream. Launches and gaps
  between them go; the time in the kernels stays at most what it was and is at least that of the
  longest, so the answer is an interval between the two;
- ``overlap`` puts its kernels on a stream of their own, beside the module that runs just before it
  under the same parent (beside the one just after it, where it is the first). What two kernels
  take from one another is not known beforehand, so the answer lies between that and no gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from cb_trace.analysis.calibrate import Scale
from cb_trace.analysis.marginal import STEP, removed
from cb_trace.analysis.program import Program
from cb_trace.analysis.rearranged import Tree, fused, overlapped
from cb_trace.analysis.scaled import Scaled
from cb_trace.analysis.shares import ancestors
from cb_trace.analysis.simulate import simulate
from cb_trace.analysis.stats import FloatArray

Kind = Literal["set", "remove", "fuse", "overlap"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one module; ``factor`` is what ``set`` multiplies by."""

    kind: Kind
    module_id: int
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The step as it is, as it would be, and what it would lose, ns.

    The bounds of what it would lose are narrower than those of the step as it would be: step by
    step, what moves both ends is in the difference no more.
    """

    now_ns: int
    then_ns: int
    low_ns: int
    high_ns: int
    saved_ns: int
    saved_low_ns: int
    saved_high_ns: int


def changed_step(scaled: Scaled, changes: Sequence[Change], module: pl.DataFrame) -> Answer:
    """The step under all changes together.

    The figures are medians over profiled steps at the bare step; the bounds are the least and the
    most over the steps, the bounds of the bare step, and what the changes leave open. What is saved
    by taking a module out is its marginal cost, with the same bounds.
    """
    if scaled.plain is not None and any(change.kind in ("fuse", "overlap") for change in changes):
        scaled = scaled.plain
    tree = Tree(module)
    sides = (scaled.middle, *scaled.sides)
    whole = [np.array([[scale.step_ns()] for scale in side]) for side in sides]
    left = [np.array([_lengths(scale, changes, tree) for scale in side]) for side in sides]
    low, high = scaled.span(left)  # one a case, as are those of the saved ones
    least, most = scaled.span([a - b for a, b in zip(whole, left, strict=True)])
    now, then = whole[0][:, 0], left[0][:, 0]
    before, after, saved = scaled.figure(np.stack([now, then, now - then], axis=1))
    if scaled.met:  # a mean of the middle ones of each is not that of the differences
        after = before - saved
    ends = (min(low.min(), after), max(high.max(), after))
    figures = (before, after, *ends, saved, least.min(), most.max())
    return Answer(*(round(float(ns)) for ns in figures))


def _lengths(scale: Scale, changes: Sequence[Change], tree: Tree) -> list[float]:
    """The step under the changes in every case that they leave open, the sober one first.

    As many for every program.
    """
    found = [_length(scale, changes, tree, best=best) for best in (False, True)]
    if any(change.kind == "overlap" for change in changes):
        rest = [change for change in changes if change.kind != "overlap"]
        found.append(_length(scale, rest, tree, best=False))
    return found


def changed_cost(
    partition: pl.DataFrame, bounds: pl.DataFrame, changes: Sequence[Change], module: pl.DataFrame
) -> Answer:
    """The step under changes that ``set`` or ``remove``, on a CPU: there nothing runs beside
    anything, so what a module costs is what the step would lose. Work below several changes takes
    the product of their factors.

    :param partition: the rows of one deployment.
    :param bounds: its ``cost_bounds``.
    """
    below, factors = ancestors(module), dict[int, float]()
    for change in changes:
        factor = 0.0 if change.kind == "remove" else change.factor
        for inner in below.filter(ancestor_id=change.module_id)["module_id"].to_list():
            factors[inner] = factors.get(inner, 1.0) * factor
    times = [
        1.0 if owner is None else factors.get(owner, 1.0)
        for owner in partition["module_id"].to_list()
    ]
    now = int(partition["ns"].sum())
    then = round(float(np.dot(partition["ns"].to_numpy(), times)))
    # The step is its roots' cost and what nobody owns. A module's factor beside that of its parent
    # says how much of its cost comes or goes, so that nothing counts twice.
    up = dict(module.select("module_id", "parent_id").iter_rows())
    roots = {m: 1.0 for m, parent in up.items() if parent is None}
    grows = {m: factors[m] - factors.get(up[m], 1.0) for m in {c.module_id for c in changes}}
    lost = [_part(bounds, m, -part) for m, part in grows.items()]
    left = [_part(bounds, m, part + grows.get(m, 0.0)) for m, part in roots.items()]
    left += [_part(bounds, m, part) for m, part in grows.items() if m not in roots]
    rest = int(partition.filter(pl.col("module_id").is_null())["ns"].sum())
    then_low, then_high = _around(then - rest, left)
    return Answer(
        now, then, max(0, then_low + rest), then_high + rest, now - then, *_around(now - then, lost)
    )


def _part(bounds: pl.DataFrame, module_id: int, part: float) -> tuple[float, float]:
    """The bounds of a module's cost, all phases together, times a factor of any sign."""
    cost = bounds.filter(module_id=module_id)
    cost = cost.filter(phase=STEP) if STEP in cost["phase"] else cost
    low, high = (part * int(cost[side].sum()) for side in ("low_ns", "high_ns"))
    return min(low, high), max(low, high)


def _around(figure: int, sides: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """The sums of lower and upper bounds, the figure always between them."""
    low, high = (round(sum(side[end] for side in sides)) for end in (0, 1))
    return min(low, figure), max(high, figure)


def _length(scale: Scale, changes: Sequence[Change], tree: Tree, *, best: bool) -> float:
    program, factor = scale.program, _factors(scale.program, changes, tree)
    for module_id in tree.in_order(c.module_id for c in changes if c.kind == "fuse"):
        program = fused(program, module_id, tree, factor[:, 0], best=best)
    for module_id in tree.in_order(c.module_id for c in changes if c.kind == "overlap"):
        program = overlapped(program, module_id, tree)
    moved = scale
    if program is not scale.program:  # of kernels made of several nobody has measured a warm one
        moved = replace(scale, program=program, residency=None)
    return float(simulate(program, moved.variants(factor, factor))[0])


def _factors(program: Program, changes: Sequence[Change], tree: Tree) -> FloatArray:
    """By what all changes that set or remove multiply the work of each owner; one column."""
    factor = np.ones((len(program.owners), 1))
    for change in changes:
        if change.kind in ("set", "remove"):
            stays = removed(program.owners, tree.module, [(change.module_id, STEP)])
            with_factor = change.factor if change.kind == "set" else 0.0
            factor *= np.where(stays == 0, with_factor, 1.0)
    return factor
