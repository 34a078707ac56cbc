"""What gives way so that an eager step takes as long as the bare one.

Where clocks told the host's time in bare steps, in windows of their own, three things are known:
how long the host took, how much later the device was through, and how long the bare step is. So
kernels give way to the second, and the host, which has another speed from one second to the next,
to the third. Of a host that hides behind the device little is seen, so that it may be no slower
than hosts that do not; what is missing then is its start.

Without clocks it is the host in either case, of its work where it bounds the step, of its start
where the device does; kernels only where they alone take longer than the bare step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from cb_trace.analysis.host_line import LAUNCH
from cb_trace.analysis.lengths import above, solve
from cb_trace.analysis.program import Program
from cb_trace.analysis.stats import FloatArray

SLOWER = 0.1  # of the host, to see what it does to the step
BOUND_RATIO = 0.5
# Times what clocks read: 26 of 27 recordings of steps that the host bounds (H200) wanted 0.92 to
# 1.10, one 1.12.
MOST_SLOWER = 1.1
MOST_STRETCH = 1.1  # of kernels, times what they take under the profiler
NEAR_NS = 10_000  # windows with clocks are known no better

Lengths = Callable[..., FloatArray]


@dataclass(frozen=True, slots=True)
class StepWindow:
    """The windows of bare steps with clocks in them, ns: see table ``host_window``."""

    host_ns: int
    closing_ns: int
    window_ns: int
    empty_ns: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Factors on the host's work, kernels and the gaps between them, and a later start."""

    host: float = 1.0
    device: float = 1.0
    gap: float = 1.0
    start_ns: float = 0.0


def to_bare(
    program: Program,
    lengths: Lengths,
    bare_ns: int,
    longest_start: float,
    *,
    watched: bool,
    window: StepWindow | None = None,
) -> Fit:
    """The factors under which the program takes ``bare_ns``.

    :param lengths: of the step, by the factors (:func:`lengths.step_lengths`).
    :param longest_start: by how much it started later under the profiler, ns.
    :param watched: clocks told the host's time in the bare step; ``window``: and those of the step.
    """
    if not program.work_ns.any():
        return _shorter_kernels(lengths, bare_ns, 1.0)
    if watched:
        return _watched(program, lengths, bare_ns, longest_start, window)

    def hosts(tried: FloatArray) -> FloatArray:
        return lengths(host=tried)

    quick, given = hosts(np.array([0.0, 1.0]))
    if max(quick, given) > bare_ns or _host_bounds(program, hosts):
        return _other_host(program, lengths, bare_ns, Fit())
    return _later(lengths, bare_ns, longest_start, Fit())


def _watched(
    program: Program,
    lengths: Lengths,
    bare_ns: int,
    longest_start: float,
    window: StepWindow | None,
) -> Fit:
    device, gap = _on_device(program, lengths, bare_ns, window)

    def hosts(tried: FloatArray) -> FloatArray:
        return lengths(host=tried, device=device, gap=gap)

    if _host_bounds(program, hosts):
        return _other_host(program, lengths, bare_ns, Fit(device=device, gap=gap))
    least, most = hosts(np.array([1 / MOST_SLOWER, MOST_SLOWER]))
    if bare_ns < least:
        return _shorter_kernels(lengths, bare_ns, 1 / MOST_SLOWER)
    if bare_ns > most:
        return _later(lengths, bare_ns, longest_start, Fit(MOST_SLOWER, device, gap))
    return Fit(solve(hosts, bare_ns, 1 / MOST_SLOWER, MOST_SLOWER), device, gap)


def _other_host(program: Program, lengths: Lengths, bare_ns: int, fit: Fit) -> Fit:
    """A host of any speed; kernels where they alone take longer, under the profiler, than the step.

    Else no host would be quick enough, and one that takes no time would be left.
    """

    def hosts(tried: FloatArray) -> FloatArray:
        return lengths(host=tried, device=fit.device, gap=fit.gap)

    if float(hosts(np.zeros(1))[0]) > bare_ns:
        return _shorter_kernels(lengths, bare_ns, min(1.0, bare_ns / int(program.work_ns.sum())))
    return Fit(solve(hosts, bare_ns, 0.0, above(hosts, bare_ns, 1.0)), fit.device, fit.gap)


def _shorter_kernels(lengths: Lengths, bare_ns: int, host: float) -> Fit:
    """Kernels and gaps give way. A host that gives way does so no less than they do.

    Else, where it takes most of the step by itself, hardly any time would be left for kernels.
    """

    def devices(tried: FloatArray) -> FloatArray:
        return lengths(host=host, device=tried, gap=tried)

    device = solve(devices, bare_ns, 0.0, above(devices, bare_ns, 1.0))
    if device < host < 1.0:

        def all_of_it(tried: FloatArray) -> FloatArray:
            return lengths(host=tried, device=tried, gap=tried)

        host = device = solve(all_of_it, bare_ns, 0.0, host)
    return Fit(host=host, device=device, gap=device)


def _later(lengths: Lengths, bare_ns: int, longest_start: float, fit: Fit) -> Fit:
    """A later start, and a slower host where no start is late enough."""

    def starts(tried: FloatArray) -> FloatArray:
        return lengths(host=fit.host, device=fit.device, gap=fit.gap, start=tried)

    if float(starts(np.array([longest_start]))[0]) >= bare_ns:
        start_ns = solve(starts, bare_ns, 0.0, longest_start)
        return Fit(fit.host, fit.device, fit.gap, start_ns)

    def hosts(tried: FloatArray) -> FloatArray:
        return lengths(host=tried, device=fit.device, gap=fit.gap, start=longest_start)

    host = solve(hosts, bare_ns, fit.host, above(hosts, bare_ns, fit.host))
    return Fit(host, fit.device, fit.gap, longest_start)


def _on_device(
    program: Program, lengths: Lengths, bare_ns: int, window: StepWindow | None
) -> tuple[float, float]:
    """Factors on kernels and gaps, by when the device is through in windows of a known host.

    That is as slow there as it was with the clocks. A profiler makes gaps longer, so they give way
    before kernels do. 1 where the device is through before the host, and where no such factor makes
    the window as long as it was. Without windows, or where the host's time there is not known as it
    waited for the device, the bare step is one, to which only gaps give way.
    """
    waited = bool((program.kind != LAUNCH).any())
    if window is not None and not waited:
        host = window.host_ns / max(1, int(program.work_ns.sum()))
        until = window.window_ns - window.empty_ns
    else:
        host, until = 1.0, bare_ns
    least, no_gaps, as_it_is, most = lengths(
        host=host,
        device=np.array([1 / MOST_STRETCH, 1.0, 1.0, MOST_STRETCH]),
        gap=np.array([0.0, 0.0, 1.0, MOST_STRETCH]),
    )
    if abs(as_it_is - until) <= NEAR_NS:
        return 1.0, 1.0
    if no_gaps <= until < as_it_is:
        return 1.0, solve(lambda gap: lengths(host=host, gap=gap), until, 0.0, 1.0)
    if window is None or waited or not least <= until <= most:
        return 1.0, 1.0
    if until < no_gaps:
        shorter = partial(_alike, lengths, host, gap=0.0)
        return solve(shorter, until, 1 / MOST_STRETCH, 1.0), 0.0
    times = solve(partial(_alike, lengths, host), until, 1.0, MOST_STRETCH)
    return times, times


def _alike(
    lengths: Lengths, host: float, tried: FloatArray, gap: float | None = None
) -> FloatArray:
    return lengths(host=host, device=tried, gap=tried if gap is None else gap)


def _host_bounds(program: Program, hosts: Lengths) -> bool:
    """Whether the step grows by most of what its host work does."""
    given, slower = hosts(np.array([1.0, 1 + SLOWER]))
    return float(slower - given) > BOUND_RATIO * SLOWER * float(program.work_ns.sum())
