"""How a profiled step becomes the bare one: factors on host work, kernels and gaps, and its start.

A profiler slows the host and leaves kernels as they are. How much, modules alone show; what is then
missing to the bare step, or too much, is the host's: of its work where the host bounds the step, of
its start, before the first kernel, where the device does. A host that begins on an idle device is
slower than one that runs modules in a loop, but no slower than under the profiler. Kernels give way
only where, under the profiler, they alone take longer than the bare step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cb_trace.analysis.host_line import LAUNCH
from cb_trace.analysis.program import Program, without_host
from cb_trace.analysis.simulate import Variants, simulate
from cb_trace.analysis.stats import FloatArray

_POINTS, _ROUNDS = 33, 4  # of a search: the last interval is 32⁴ times shorter than the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A program with the factors under which it takes as long as the bare step."""

    program: Program
    host: float
    device: float
    gap: float
    start_ns: float = 0.0  # of the host before all else; it goes with the work that leads nowhere

    def variants(self, host: FloatArray, device: FloatArray) -> Variants:
        """Variants on top of these factors; both of shape (owners, variants)."""
        gap = np.full(host.shape[1], self.gap)
        start = self.start_ns * host[self.program.rest]
        return Variants(self.host * host, self.device * device, gap, start)

    def step_ns(self) -> float:
        """The step as it is."""
        one = np.ones((len(self.program.owners), 1))
        return float(simulate(self.program, self.variants(one, one))[0])


def eager_scale(program: Program, bare_ns: int | None, host: FloatArray) -> Scale:
    """The scale of the eager step.

    :param bare_ns: its bare length; None leaves kernels as they are and takes ``host`` as it is.
    :param host: the factors on host work that replays alone suggest, shape (owners, 1).
    """
    program, longest_start = bare_host(program, host)
    if bare_ns is None:
        return Scale(program=program, host=1.0, device=1.0, gap=1.0)

    def hosts(tried: FloatArray) -> FloatArray:
        return _uniform(program, tried, np.ones_like(tried), np.ones_like(tried))

    def starts(tried: FloatArray) -> FloatArray:
        one = np.ones_like(tried)
        return _uniform(program, one, one, one, tried)

    own = int(program.work_ns.sum())
    quick, given, late = *hosts(np.array([0.0, 1.0])), *starts(np.array([longest_start]))
    if quick > bare_ns or not own:
        return _slower_device(program, bare_ns, min(1.0, bare_ns / own) if own else 1.0)
    if given > bare_ns:
        return Scale(program=program, host=_solve(hosts, bare_ns, 0.0, 1.0), device=1.0, gap=1.0)
    if late >= bare_ns:
        start = _solve(starts, bare_ns, 0.0, longest_start)
        return Scale(program=program, host=1.0, device=1.0, gap=1.0, start_ns=start)

    def late_hosts(tried: FloatArray) -> FloatArray:
        one = np.ones_like(tried)
        return _uniform(program, tried, one, one, one * longest_start)

    times = _solve(late_hosts, bare_ns, 1.0, _above(late_hosts, bare_ns, 1.0))
    return Scale(program=program, host=times, device=1.0, gap=1.0, start_ns=longest_start)


def bare_host(program: Program, host: FloatArray) -> tuple[Program, float]:
    """The program with host work as long as it should be bare, and its longest start.

    Work in which the profiler recorded nothing was not made longer by it. No start is slower than
    under the profiler: the second figure is by how much it was.
    """
    factor = np.where(program.work_plain, 1.0, host[program.work_owner, 0])
    work = np.round(program.work_ns * factor).astype(np.int64)
    first = np.flatnonzero(program.kind == LAUNCH)[:1]
    head = program.work_item <= (first[0] if first.size else -1)
    longer = np.maximum(0, program.work_ns - work)[head].sum()
    return replace(program, work_ns=work), float(longer)


def _slower_device(program: Program, bare_ns: int, host: float) -> Scale:
    """Kernels that take longer than the bare step under the profiler are made to fit it."""

    def devices(tried: FloatArray) -> FloatArray:
        return _uniform(program, np.full_like(tried, host), tried, tried)

    device = _solve(devices, bare_ns, 0.0, _above(devices, bare_ns, 1.0))
    return Scale(program=program, host=host, device=device, gap=device)


def graph_scale(program: Program, bare_ns: int | None, gap_ns: float) -> Scale:
    """The scale of the step as a CUDA graph: no host, and one gap between any two kernels.

    :param gap_ns: the gap that is taken where ``bare_ns`` is None.
    """
    program = without_host(program)
    if bare_ns is None:
        return Scale(program=program, host=0.0, device=1.0, gap=gap_ns)

    def gaps(tried: FloatArray) -> FloatArray:
        return _uniform(program, np.zeros_like(tried), np.ones_like(tried), tried)

    def devices(tried: FloatArray) -> FloatArray:
        return _uniform(program, np.zeros_like(tried), tried, np.zeros_like(tried))

    if float(gaps(np.zeros(1))[0]) > bare_ns:
        device = _solve(devices, bare_ns, 0.0, 1.0)
        return Scale(program=program, host=0.0, device=device, gap=0.0)
    most = float(max(bare_ns, 1))
    gap = _solve(gaps, bare_ns, 0.0, most) if program.kernel_ns.size > 1 else 0.0
    return Scale(program=program, host=0.0, device=1.0, gap=gap)


def _uniform(
    program: Program,
    host: FloatArray,
    device: FloatArray,
    gap: FloatArray,
    start: FloatArray | None = None,
) -> FloatArray:
    """The step under one factor for all owners, several at once."""
    every = np.ones((len(program.owners), 1))
    start = np.zeros_like(gap) if start is None else start
    return simulate(program, Variants(every * host, every * device, gap, start))


def _above(length: Callable[[FloatArray], FloatArray], target: float, low: float) -> float:
    """A factor at which a length is beyond the target, doubling from ``low``."""
    high = max(low, 1e-3)
    for _ in range(40):
        if float(length(np.array([high]))[0]) > target:
            break
        high *= 2
    return high


def _solve(
    length: Callable[[FloatArray], FloatArray], target: float, low: float, high: float
) -> float:
    """The largest factor at which a length that rises with it is at most the target."""
    for _ in range(_ROUNDS):
        tried = np.linspace(low, high, _POINTS)
        lengths = length(tried)
        fits = np.flatnonzero(lengths <= target)
        at = int(fits[-1]) if fits.size else 0
        above = min(at + 1, _POINTS - 1)
        low, high = float(tried[at]), float(tried[above])
    under, over = float(lengths[at]), float(lengths[above])
    if over <= under or target < under:
        return low
    return low + (high - low) * min(1.0, (target - under) / (over - under))  # straight in between
