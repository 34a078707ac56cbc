"""How a profiled step becomes the bare one: factors on host work, kernels and gaps.

A profiler slows the host by a factor that no one knows beforehand, and leaves kernels as they are.
So the host's factor is the one that gives way to the bare step: even where the device is the bound,
the host is what passes before the first kernel starts. Kernels give way only where, under the
profiler, they alone take longer than the bare step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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

    def variants(self, host: FloatArray, device: FloatArray) -> Variants:
        """Variants on top of these factors; both of shape (owners, variants)."""
        gap = np.full(host.shape[1], self.gap)
        return Variants(self.host * host, self.device * device, gap)

    def step_ns(self) -> float:
        """The step as it is."""
        one = np.ones((len(self.program.owners), 1))
        return float(simulate(self.program, self.variants(one, one))[0])


def eager_scale(program: Program, bare_ns: int | None, host: float) -> Scale:
    """The scale of the eager step.

    :param bare_ns: its bare length; None leaves kernels as they are and takes ``host`` as it is.
    :param host: the factor on host work that replays alone suggest; kept where the host has no say.
    """
    if bare_ns is None:
        return Scale(program=program, host=host, device=1.0, gap=1.0)
    own = int(program.work_ns.sum())

    def hosts(tried: FloatArray) -> FloatArray:
        return _uniform(program, tried, np.ones_like(tried), np.ones_like(tried))

    def devices(tried: FloatArray) -> FloatArray:
        return _uniform(program, np.full_like(tried, host), tried, tried)

    quick, given = hosts(np.array([0.0, host]))
    if quick <= bare_ns and own:
        high = host if given > bare_ns else _above(hosts, bare_ns, host)
        return Scale(program=program, host=_solve(hosts, bare_ns, 0.0, high), device=1.0, gap=1.0)
    host = min(host, bare_ns / own) if own else host
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


def _uniform(program: Program, host: FloatArray, device: FloatArray, gap: FloatArray) -> FloatArray:
    """The step under one factor for all owners, several at once."""
    every = np.ones((len(program.owners), 1))
    return simulate(program, Variants(every * host, every * device, gap))


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
