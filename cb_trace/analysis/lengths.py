"""How long a program takes with all its work so many times as long, and the search for that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cb_trace.analysis.program import Program
from cb_trace.analysis.simulate import Variants, simulate
from cb_trace.analysis.stats import FloatArray

_POINTS, _ROUNDS = 33, 4  # of a search: the last interval is 32⁴ times shorter than the first


def step_lengths(
    program: Program,
    *,
    host: FloatArray | float = 1.0,
    device: FloatArray | float = 1.0,
    gap: FloatArray | float = 1.0,
    start: FloatArray | float = 0.0,
    together: FloatArray | float = 1.0,
    lost: FloatArray | float = 1.0,
) -> FloatArray:
    """The step under one factor for all owners, several at once."""
    tried = np.broadcast_arrays(host, device, gap, start, together, lost)
    each, on_device, *others = (np.atleast_1d(one).astype(float) for one in tried)
    every = np.ones((len(program.owners), 1))
    return simulate(program, Variants(every * each, every * on_device, *others))


def above(length: Callable[[FloatArray], FloatArray], target: float, low: float) -> float:
    """A factor at which a length is beyond the target, doubling from ``low``."""
    high = max(low, 1e-3)
    for _ in range(40):
        if float(length(np.array([high]))[0]) > target:
            break
        high *= 2
    return high


def solve(
    length: Callable[[FloatArray], FloatArray], target: float, low: float, high: float
) -> float:
    """The largest factor at which a length that rises with it is at most the target."""
    for _ in range(_ROUNDS):
        tried = np.linspace(low, high, _POINTS)
        lengths = length(tried)
        fits = np.flatnonzero(lengths <= target)
        at = int(fits[-1]) if fits.size else 0
        after = min(at + 1, _POINTS - 1)
        low, high = float(tried[at]), float(tried[after])
    under, over = float(lengths[at]), float(lengths[after])
    if over <= under or target < under:
        return low
    return low + (high - low) * min(1.0, (target - under) / (over - under))  # straight in between
