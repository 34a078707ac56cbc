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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from cb_trace.analysis.calibrate import Scale
from cb_trace.analysis.marginal import STEP, removed
from cb_trace.analysis.program import Program
from cb_trace.analysis.scaled import Scaled
from cb_trace.analysis.shares import ancestors
from cb_trace.analysis.simulate import simulate
from cb_trace.analysis.stats import IntArray

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
    tree = _Tree(module)
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


def _lengths(scale: Scale, changes: Sequence[Change], tree: _Tree) -> list[float]:
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


class _Tree:
    """Who is below whom."""

    def __init__(self, module: pl.DataFrame) -> None:
        self.module = module
        self.up: dict[int, int | None] = dict(module.select("module_id", "parent_id").iter_rows())

    def path(self, module_id: int | None) -> list[int]:
        """A module and all above it, itself first."""
        found: list[int] = []
        while module_id is not None and module_id not in found:
            found.append(module_id)
            module_id = self.up.get(module_id)
        return found


def _length(scale: Scale, changes: Sequence[Change], tree: _Tree, *, best: bool) -> float:
    program = scale.program
    for change in changes:
        if change.kind == "fuse":
            program = _fused(program, change.module_id, tree, best=best)
        elif change.kind == "overlap":
            program = _overlapped(program, change.module_id, tree)
    factor = np.ones((len(program.owners), 1))
    for change in changes:
        if change.kind in ("set", "remove"):
            stays = removed(program.owners, tree.module, [(change.module_id, STEP)])
            with_factor = change.factor if change.kind == "set" else 0.0
            factor *= np.where(stays == 0, with_factor, 1.0)
    moved = scale
    if program is not scale.program:  # of kernels made of several nobody has measured a warm one
        moved = replace(scale, program=program, residency=None)
    return float(simulate(program, moved.variants(factor, factor))[0])


def _children(program: Program, tree: _Tree, parent: int | None) -> IntArray:
    """Under which child of ``parent`` each kernel is; -1 where under none."""
    child = np.full(len(program.owners), -1, np.int64)
    for row, (module_id, _) in enumerate(program.owners):
        path = tree.path(module_id)
        if parent is None or parent in path:
            at = path.index(parent) if parent is not None else len(path)
            child[row] = path[at - 1] if at else -1
    found = np.full(program.kernel_ns.size, -1, np.int64)
    found[program.share_kernel] = child[program.share_owner]
    return found


def _runs(of: IntArray, wanted: int, stream: IntArray) -> Iterator[tuple[int, int]]:
    """Unbroken runs of kernels of one child on one stream: first, and one past the last."""
    mine = of == wanted
    edge = np.flatnonzero(np.diff(np.where(mine, stream, -1), prepend=-1, append=-1))
    for first, after in zip(edge[:-1].tolist(), edge[1:].tolist(), strict=True):
        if mine[first]:
            yield first, after


def _fused(program: Program, module_id: int, tree: _Tree, *, best: bool) -> Program:
    runs = list(_runs(_children(program, tree, tree.up[module_id]), module_id, program.stream))
    length, gone = program.kernel_ns.copy(), np.zeros(program.kernel_ns.size, np.bool_)
    for first, after in runs:
        whole = length[first:after]
        length[first] = whole.max() if best else whole.sum()
        gone[first + 1 : after] = True
    kept = ~gone[program.share_kernel]
    kernels = sum(after - first for first, after in runs)
    stays = removed(program.owners, tree.module, [(module_id, STEP)])[:, 0]
    fewer = np.where(stays[program.work_owner] == 0, len(runs) / max(1, kernels), 1.0)
    return replace(
        program,
        kernel_ns=length,
        work_ns=np.round(program.work_ns * fewer).astype(np.int64),
        share_kernel=program.share_kernel[kept],
        share_owner=program.share_owner[kept],
        share=program.share[kept],
    )


def _overlapped(program: Program, module_id: int, tree: _Tree) -> Program:
    of = _children(program, tree, tree.up[module_id])
    stream, needs = program.stream.copy(), dict(program.needs)
    for first, after in _runs(of, module_id, program.stream):
        begin, end = _beside(of, first, after)
        if begin == first and end == after:
            continue
        stream[first:after] = program.streams
        _add(needs, first, begin - 1)
        if end < stream.size:
            _add(needs, end, after - 1)
    return replace(program, stream=stream, needs=needs)


def _beside(of: IntArray, first: int, after: int) -> tuple[int, int]:
    """Where the neighbour's kernels begin, or end: the one before, else the one after."""
    begin, end = first, after
    if first and of[first - 1] >= 0:
        while begin and of[begin - 1] == of[first - 1]:
            begin -= 1
        return begin, end
    if after < of.size and of[after] >= 0:
        while end < of.size and of[end] == of[after]:
            end += 1
    return begin, end


def _add(needs: dict[int, tuple[int, ...]], kernel: int, needed: int) -> None:
    if needed >= 0:
        needs[kernel] = (*needs.get(kernel, ()), needed)
