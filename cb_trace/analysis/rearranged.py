"""Programs rearranged: a module's kernels fused, or put on a stream of their own.

Rearrangements hold one inside another and side by side: :func:`in_order` says which comes first, so
that what comes of several does not depend on how they were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from cb_trace.analysis.marginal import STEP, removed
from cb_trace.analysis.program import Program
from cb_trace.analysis.stats import FloatArray, IntArray

Needs = dict[int, tuple[int, ...]]


class Tree:
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

    def in_order(self, modules: Iterable[int]) -> list[int]:
        """Each once, outer ones first: what is inside one kernel cannot be fused once more."""
        return sorted(set(modules), key=lambda module: (len(self.path(module)), module))


def fused(
    program: Program, module_id: int, tree: Tree, factor: FloatArray, *, best: bool
) -> Program:
    """One kernel of each unbroken run of the module's kernels on a stream, with all their owners.

    :param factor: by what the changes of other kinds multiply what an owner has of a kernel.
    :param best: it takes as long as the longest of those it is made of, under these factors; else
        as all of them together.
    """
    runs = list(_runs(_children(program, tree, tree.up[module_id]), module_id, program.stream))
    if not runs:
        return program
    length, into = program.kernel_ns.copy(), np.arange(program.kernel_ns.size)
    part, times = np.ones(into.size), _times(program, factor)
    for first, after in runs:
        whole = program.kernel_ns[first:after]
        length[first] = _together(whole, whole * times[first:after], best=best)
        into[first:after] = first
        part[first:after] = whole / whole.sum() if whole.any() else 1 / whole.size
    kernels = sum(after - first for first, after in runs)
    inside = removed(program.owners, tree.module, [(module_id, STEP)])[:, 0] == 0
    fewer = np.where(inside[program.work_owner], len(runs) / kernels, 1.0)
    return replace(
        program,
        kernel_ns=length,
        work_ns=np.round(program.work_ns * fewer).astype(np.int64),
        share_kernel=into[program.share_kernel],
        share=program.share * part[program.share_kernel],
    )


def _together(whole: IntArray, left: FloatArray, *, best: bool) -> int:
    """How long kernels are as one; at best, what the longest is once factors are applied.

    :param left: what the factors leave of each.
    """
    total = int(whole.sum())
    return round(total * float(left.max() / left.sum())) if best and left.any() else total


def _times(program: Program, factor: FloatArray) -> FloatArray:
    """What is left of each kernel under factors of its owners."""
    found = np.zeros(program.kernel_ns.size)
    np.add.at(found, program.share_kernel, program.share * factor[program.share_owner])
    return found


def overlapped(program: Program, module_id: int, tree: Tree) -> Program:
    """The module's kernels on a stream of their own, each run of them beside its neighbour.

    A run may begin when its neighbour may. Who waits for it, and the kernel after both, wait as
    before for all that came before it.
    """
    of = _children(program, tree, tree.up[module_id])
    stream, needs = program.stream.copy(), dict(program.needs)
    for first, after in _runs(of, module_id, program.stream):
        begin, end = _beside(of, first, after)
        if begin == first and end == after:
            continue
        neighbour = [k for k in range(begin, first) if program.stream[k] == program.stream[first]]
        waited = [kernel for kernel in needs.get(first, ()) if begin <= kernel < first]
        _add(needs, _who_need(needs, first, after), (*neighbour[-1:], *waited))
        if end < stream.size:
            _add(needs, [end], (after - 1, *waited))
        needs[first] = tuple(kernel for kernel in needs.get(first, ()) if kernel not in waited)
        _add(needs, [first], (*_previous(program.stream, begin), *needs.get(begin, ())))
        stream[first:after] = program.streams
    return replace(program, stream=stream, needs=needs)


def _children(program: Program, tree: Tree, parent: int | None) -> IntArray:
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


def _previous(stream: IntArray, kernel: int) -> tuple[int, ...]:
    """The kernel before one on its stream, if there is any."""
    before = np.flatnonzero(stream[:kernel] == stream[kernel])
    return tuple(before[-1:].tolist())


def _who_need(needs: Needs, first: int, after: int) -> list[int]:
    """Kernels outside a run that wait for one of it."""
    return [
        kernel
        for kernel, needed in needs.items()
        if not first <= kernel < after and any(first <= one < after for one in needed)
    ]


def _add(needs: Needs, kernels: Iterable[int], needed: Iterable[int]) -> None:
    for kernel in kernels:
        needs[kernel] = tuple(dict.fromkeys([*needs.get(kernel, ()), *needed]))
