"""Run a step's program again: a critical path over the host, the streams and what they wait for.

As in the critical-path walks of shared facts (models.md sections 8 and 10): the host does its work
and launches in order; a kernel starts when its stream is free (plus the gap between kernels), its
launch has reached the device and the kernels it needs have ended; a synchronising call holds the
host until the device is through. Kernels that run at once slow each other (:mod:`sharing`); what
the host waits for is taken as if they did not. Many variants of the step run at once, one a column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cb_trace.analysis.host_line import LAUNCH, WAIT_KERNEL
from cb_trace.analysis.program import Program
from cb_trace.analysis.sharing import Shared, last_end, speed
from cb_trace.analysis.stats import FloatArray

MOST_CELLS = 4_000_000  # of one table of kernels × variants: 32 MB


@dataclass(frozen=True, slots=True)
class Variants:
    """By what work is multiplied: one row an owner, one column a variant; 0 takes it out."""

    host: FloatArray
    device: FloatArray
    gap: FloatArray  # of the time between kernels: one a variant
    start: FloatArray  # ns that pass on the host before all else: one a variant
    together: FloatArray  # how little kernels that run at once feel each other: one a variant
    lost: FloatArray  # of what kernels lost beside others in a profiled run: one a variant

    @property
    def count(self) -> int:
        """How many variants there are."""
        return int(self.host.shape[1])

    def part(self, chosen: slice) -> Variants:
        """Some of the variants."""
        return Variants(
            self.host[:, chosen], self.device[:, chosen], self.gap[chosen], self.start[chosen],
            self.together[chosen], self.lost[chosen],
        )  # fmt: skip


def simulate(program: Program, variants: Variants) -> FloatArray:
    """Length of the step in ns under each variant, shape (variants,)."""
    size = max(1, program.kernel_ns.size, program.kind.size, program.work_ns.size)
    width = max(1, MOST_CELLS // size)
    parts = [
        _run(program, variants.part(slice(first, first + width)))
        for first in range(0, variants.count, width)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _run(program: Program, variants: Variants) -> FloatArray:
    work = _work(program, variants)
    took, there = _kernels(program, variants)
    waits = variants.host[program.item_owner] > 0
    count = variants.count
    cpu, front = variants.start.copy(), np.zeros((max(1, program.streams), count))
    ended, ready = np.zeros((2, program.kernel_ns.size, count))
    gaps = program.gap_ns[:, None] * variants.gap
    stream, latency, needs = program.stream.tolist(), program.latency_ns.tolist(), program.needs
    # One pass over the items; each of them moves all variants at once.
    for item, (kind, kernel) in enumerate(
        zip(program.kind.tolist(), program.kernel.tolist(), strict=True)
    ):
        cpu = cpu + work[item]
        if kind == LAUNCH:
            lane = front[stream[kernel]]
            free = lane + gaps[kernel] * (lane > 0)
            ready[kernel] = cpu + latency[kernel]
            begin, held = np.maximum(free, ready[kernel]), lane
            for other in needs.get(kernel, ()):
                begin = np.maximum(begin, ended[other] + gaps[kernel])
                held = np.maximum(held, ended[other])  # a wait stays when its kernel goes
            lane[:] = np.where(there[kernel], begin + took[kernel], held)
            ended[kernel] = lane
        else:
            until = ended[kernel] if kind == WAIT_KERNEL else front.max(axis=0)
            cpu = np.where(waits[item], np.maximum(cpu, until), cpu)
    last = front.max(axis=0)
    if program.streams > 1 and (variants.together < 1).any():
        last = last_end(
            Shared(
                stream=program.stream, needs=program.needs, there=there, work=took, gaps=gaps,
                ready=ready, together=variants.together,
            )
        )  # fmt: skip
    # Without any work of the host it is an empty window, which nothing has made cold.
    empty = min(program.closing_ns, program.empty_ns)
    closing = np.where(work.any(axis=0), program.closing_ns, empty)
    ended = np.maximum(cpu + work[-1] + closing, last)
    finished: FloatArray = np.maximum(ended - program.empty_ns, 0.0)
    return finished


def _work(program: Program, variants: Variants) -> FloatArray:
    """Host work before each item and after the last, shape (items + 1, variants)."""
    work = np.zeros((program.kind.size + 1, variants.count))
    scaled = program.work_ns[:, None] * variants.host[program.work_owner]
    if program.work_ns.size:
        first = np.flatnonzero(np.diff(program.work_item, prepend=-1))
        work[program.work_item[first]] = np.add.reduceat(scaled, first, axis=0)
    return work


def _kernels(program: Program, variants: Variants) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """How long each kernel takes, and whether it is there; shape (kernels, variants)."""
    shape = (program.kernel_ns.size, variants.count)
    took, there = np.zeros(shape), np.zeros(shape)
    if program.share_kernel.size:
        first = np.flatnonzero(np.diff(program.share_kernel, prepend=-1))
        at = program.share_kernel[first]
        factor = variants.device[program.share_owner]
        took[at] = np.add.reduceat(program.share[:, None] * factor, first, axis=0)
        there[at] = np.maximum.reduceat(factor, first, axis=0)
    many = np.arange(1, program.beside.shape[1] + 1)[:, None]
    alone = program.beside @ speed(many, variants.together)  # of its length, had it run alone
    took *= program.kernel_ns[:, None] * alone
    _hand_over(program, took, there > 0)
    _lose(program, took, there, variants.lost)
    return took, there > 0


def _lose(program: Program, took: FloatArray, there: FloatArray, times: FloatArray) -> None:
    """Add what kernels lose beside those that are there; in proportion to how much of those is."""
    for kernel, loss in program.lost.items():
        ns = times * (loss.ns @ np.minimum(there[loss.others], 1.0))
        for one in (kernel, *loss.heirs):
            took[one] += ns * (there[one] > 0)
            ns = ns * (there[one] <= 0)
            if not ns.any():
                break


def _hand_over(program: Program, took: FloatArray, there: npt.NDArray[np.bool_]) -> None:
    """Give what a kernel that is gone took for what ran before it to the first that is left."""
    for kernel, (excess, heirs) in program.carried.items():
        open_ = ~there[kernel]
        for heir in heirs:
            took[heir] += excess * (open_ & there[heir])
            open_ = open_ & ~there[heir]
