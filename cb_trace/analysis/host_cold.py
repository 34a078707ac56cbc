"""Host time that a module takes because the processor's caches hold other code by then.

The first linear of a step takes longer than the next ones: 23 µs beside 16 on the host of an H200,
60 beside 30 where lookups on another stream came before. Without it the next one is the first, and
takes that time over, on top of what it is cold by itself: what a module is longer than the others
of its kind goes to the next of the kind when it is gone. Without the bottom MLP the first linear of
the top one took 4 to 12 µs more on four of five DLRMs. And the less a step does, the less it throws
out: without the tables of a DLRM, half of its host's work, the other modules were 20 to 24 µs
faster. They are cold by some 65, as read off another recording of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.analysis.host_alone import Alone, run_inside
from cb_trace.analysis.program import Program
from cb_trace.analysis.stats import FloatArray

LEAST_NS = 1_000  # less is lost in noise
SEVERAL = 3  # of a kind tell what one takes that is warm
# Of the share of the host's work that goes, so much of what the others are cold goes with it: by
# clocks around the other modules of two DLRMs on an H200, with the tables and without in turn.
WARMER_RATIO = 2 / 3


@dataclass(frozen=True, slots=True)
class HostCold:
    """By module_id, a step: its host time, the part of it that is cold, and its kind."""

    spent_ns: Mapping[int, float]
    cold_ns: Mapping[int, float]
    kind: Mapping[int, Hashable]

    def factors(self, program: Program, host: FloatArray) -> FloatArray:
        """What host work is multiplied by for what is gone, shape (owners, variants).

        :param host: factors on the owners' host work, of that shape; 0 is gone.
        """
        found = np.ones_like(host)
        work = np.bincount(program.work_owner, program.work_ns, len(program.owners))
        if not work.any():
            return found
        gone_ratio = 1 - work @ np.clip(host, 0.0, 1.0) / work.sum()
        for rows in self._by_kind(program):
            carried = np.zeros(host.shape[1])
            for row, module in rows:
                cold = self.cold_ns.get(module, 0.0)
                own = cold + carried
                carried = np.where(host[row] == 0, own, 0.0)
                left = own * (1 - WARMER_RATIO * gone_ratio)
                found[row] = 1 + (left - cold) / self.spent_ns[module]
        return found

    def _by_kind(self, program: Program) -> list[list[tuple[int, int]]]:
        """Rows of owners and their modules in the order in which they first work, by kind."""
        _, first = np.unique(program.work_owner, return_index=True)
        rows: dict[Hashable, list[tuple[int, int]]] = {}
        for row in program.work_owner[np.sort(first)].tolist():
            module, phase = program.owners[row]
            if module is not None and phase == "forward" and module in self.kind:
                rows.setdefault(self.kind[module], []).append((row, module))
        return list(rows.values())


def host_cold(
    spent_ns: Mapping[int, float],
    alone: Mapping[int, Alone],
    module: pl.DataFrame,
    kernels: Mapping[int, float],
    ran: set[int],
) -> HostCold:
    """Read it off clocks around the modules of the bare step, and modules alone.

    Of innermost modules only: what a parent does itself is no code of a kind. One that is warm
    takes what the middle one of its kind takes, which are of one class and launch as many kernels;
    where the kind has less than three, what it takes alone, if the host bounds it there, by how
    much shorter the others are in the step than alone.

    :param spent_ns: host time of the bare step by module_id.
    :param kernels: how many a call launches, by module_id.
    """
    names = dict(module.select("module_id", "class").iter_rows())
    outer = run_inside(module, ran)
    inner = [one for one in spent_ns if one in kernels and one not in outer and spent_ns[one] > 0]
    kind: dict[int, Hashable] = {one: (names[one], kernels[one]) for one in inner}
    members: dict[Hashable, list[int]] = {}
    for one in inner:
        members.setdefault(kind[one], []).append(one)
    warm: dict[int, float] = {}
    for ones in members.values():
        if len(ones) >= SEVERAL:
            warm |= dict.fromkeys(ones, float(np.median([spent_ns[one] for one in ones])))
    bound = {one: alone[one].wall_ns for one in inner if one in alone and alone[one].bound}
    ratios = [warm[one] / bound[one] for one in warm if one in bound]
    shorter = float(np.median(ratios)) if ratios else 1.0
    warm = {one: shorter * ns for one, ns in bound.items()} | warm
    cold = {one: spent_ns[one] - ns for one, ns in warm.items()}
    return HostCold(
        {one: spent_ns[one] for one in inner},
        {one: ns for one, ns in cold.items() if ns >= LEAST_NS},
        kind,
    )
