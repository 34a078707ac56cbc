"""How a profiled step becomes the bare one: factors on host work, kernels and gaps, and its start.

A profiler slows the host, and leaves kernels as they are but for the gaps between them. How much it
slows the host, clocks in the bare step tell, or else modules alone. What of an eager step gives way
to what is then missing to the bare one, or too much, :mod:`to_bare` says. Of a graph it is the gaps
between kernels, how much those that run at once slow each other, and kernels only where they alone
take longer than the bare graph.

How the host's time is spread over modules two things tell, each wrong in its own way: modules alone
repeat one piece of code, and find it in the caches; under the profiler all meet the caches of the
step, but short operators pay more for being recorded. The geometric mean of both is taken (19 eager
recordings of docs/accuracy.md, H200: within the knock-out's interval for 64 % of 198 modules; with
modules alone 55 %, with the profiler's shares 60 %). Where clocks were read around the forwards of
the bare step itself, what they say stands before both. A step that is predicted from parts must not
have seen those: there it is what modules took when they were called in the order of the step, alone
but for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cb_trace.analysis.host_cold import HostCold
from cb_trace.analysis.host_line import LAUNCH
from cb_trace.analysis.lengths import solve, step_lengths
from cb_trace.analysis.program import Program, without_host
from cb_trace.analysis.residency import Residency
from cb_trace.analysis.sharing import speed
from cb_trace.analysis.simulate import Variants, simulate
from cb_trace.analysis.stats import FloatArray
from cb_trace.analysis.to_bare import StepWindow, to_bare

MOST_APART = 1.5  # beyond 1 two kernels at once take longer than one after the other
NEAR_RATIO = 0.002  # of the bare step
ENOUGH_RATIO = 0.1  # of all kernel time that ran beside other kernels; less is lost in noise
# From the range of a step to that of its root, and back. With a profiler an H200's host took 52 µs
# and 21, of which 6 are left without.
RANGES_NS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A program with the factors under which it takes as long as the bare step."""

    program: Program
    host: float
    device: float
    gap: float
    start_ns: float = 0.0  # of the host before all else; it goes with the work that leads nowhere
    together: float = 1.0  # how little kernels that run at once feel each other
    lost: float = 1.0  # times what kernels lost beside others in a profiled run
    residency: Residency | None = None  # what is gone leaves its place in the cache to the others
    cold: HostCold | None = None  # the same of the host's caches

    def variants(self, host: FloatArray, device: FloatArray) -> Variants:
        """Variants on top of these factors; both of shape (owners, variants)."""
        if self.residency is not None:
            device = device * self.residency.factors(self.program, device)
        if self.cold is not None:
            host = host * self.cold.factors(self.program, host)
        gap = np.full(host.shape[1], self.gap)
        start = self.start_ns * host[self.program.rest]
        together = np.full_like(gap, self.together)
        lost = np.full_like(gap, self.lost)
        return Variants(self.host * host, self.device * device, gap, start, together, lost)

    def step_ns(self) -> float:
        """The step as it is."""
        one = np.ones((len(self.program.owners), 1))
        return float(simulate(self.program, self.variants(one, one))[0])


def eager_scale(
    program: Program,
    bare_ns: int | None,
    host: FloatArray,
    together: float = 1.0,
    spent_ns: Mapping[int, float] | None = None,
    *,
    others: float = 1.0,
    window: StepWindow | None = None,
) -> Scale:
    """The scale of the eager step.

    :param bare_ns: its bare length; None leaves kernels as they are and takes ``host`` as it is.
    :param host: the factors on host work that replays alone suggest: :meth:`Parts.host`.
    :param together: how little kernels that run at once feel each other.
    :param spent_ns: what the host spends in modules' own forward code, by module_id: in the bare
        step, or without ``bare_ns`` in the tour of modules.
    :param others: what the work in all other modules' forwards is multiplied by, beside ``host``.
    :param window: of steps as the bare ones, in which the host's time is known.
    """
    factors = measured(program, in_step(program, host), spent_ns or {}, others)
    program, longest_start = bare_host(program, factors)
    scale = Scale(program=program, host=1.0, device=1.0, gap=1.0, together=together)
    if bare_ns is None:
        return scale
    lengths = partial(step_lengths, program, together=together)
    fit = to_bare(
        program, lengths, bare_ns, longest_start, watched=bool(spent_ns), window=window
    )  # fmt: skip
    return replace(scale, host=fit.host, device=fit.device, gap=fit.gap, start_ns=fit.start_ns)


def in_step(program: Program, host: FloatArray) -> FloatArray:
    """Factors on host work between those of modules alone and the one of all, the sum kept.

    :param host: of modules alone, shape (owners, 2).
    """
    counts = ~program.work_plain
    place = program.work_owner[counts], program.work_between[counts].astype(np.int64)
    work = np.zeros(host.shape)
    np.add.at(work, place, program.work_ns[counts])
    whole = float((work * host).sum())
    if not whole:
        return host
    between = np.sqrt(host * whole / work.sum())
    found: FloatArray = between * (whole / float((work * between).sum()))
    return found


def measured(
    program: Program, host: FloatArray, spent_ns: Mapping[int, float], others: float = 1.0
) -> FloatArray:
    """The factors, where the host was watched those that make of the work what it spent.

    Who waits for the device spends more than it works, and keeps the factor it has, as do all in
    the forward who were not watched: times ``others``.
    """
    counts = ~program.work_plain
    own, ns = program.work_owner[counts], program.work_ns[counts].astype(np.float64)
    work = np.bincount(own, ns, len(program.owners))
    waiting, found = _waiting(program), host.copy()
    for row, (module, phase) in enumerate(program.owners):
        if module is None or phase != "forward":
            continue
        spent = spent_ns.get(module)
        if spent is not None and work[row] > 0 and row not in waiting:
            found[row] = spent / work[row]
        else:
            found[row] *= others
    return found


def in_company(
    program: Program, toured_ns: Mapping[int, float], looped_ns: Mapping[int, float]
) -> float:
    """How many times longer than in loops of themselves modules take the host in company.

    Of all together of which both are known; 1 without any, and at the least, as company makes no
    cache warmer: loops hold what it takes to call a module, which tours do not. Those that wait
    for the device are left out: in company it is at work for others when they do.
    """
    waiting = {program.owners[row][0] for row in _waiting(program)}
    both = [one for one in toured_ns if one in looped_ns and one not in waiting]
    looped = sum(looped_ns[one] for one in both)
    return max(1.0, sum(toured_ns[one] for one in both) / looped) if looped else 1.0


def _waiting(program: Program) -> set[int]:
    """The owners, by their rows, that wait for the device."""
    return set(program.item_owner[program.kind != LAUNCH].tolist())


def bare_host(program: Program, host: FloatArray) -> tuple[Program, float]:
    """The program with host work as long as it should be bare, and its longest start.

    Work in which the profiler recorded nothing was not made longer by it, but for what its ranges
    around a step and a module cost. No start is slower than under the profiler: the second figure
    is by how much it was.
    """
    owned = host[program.work_owner, program.work_between.astype(np.int64)]
    plain = program.work_plain
    recorded = np.minimum(program.work_ns, np.where(plain, RANGES_NS, program.work_ns))
    owned = np.where(plain, np.minimum(owned, 1.0), owned)
    work = np.round(recorded * owned + (program.work_ns - recorded)).astype(np.int64)
    first = np.flatnonzero(program.kind == LAUNCH)[:1]
    head = program.work_item <= (first[0] if first.size else -1)
    longer = np.maximum(0, program.work_ns - work)[head].sum()
    return replace(program, work_ns=work), float(longer)


def graph_scale(
    program: Program,
    bare_ns: int | None,
    gap_ns: float,
    together: float | None = None,
    one_stream_ns: int | None = None,
) -> Scale:
    """The scale of the step as a CUDA graph: no host, and one gap between any two kernels.

    On one stream the gap is what gives way to the bare step. On several, what gives way is how much
    kernels that run at once slow each other; the gap is the one that makes the same kernels, one
    after another, as long as the bare graph of all on one stream, or else that of modules alone.

    :param gap_ns: the gap where ``bare_ns`` is None, and on several streams else.
    :param together: how little such kernels feel each other, where it is known.
    :param one_stream_ns: the bare graph of a step on several streams with all on one.
    """
    program = without_host(program)
    shared = 1.0 if together is None else together
    scale = Scale(program=program, host=0.0, device=1.0, gap=gap_ns, together=shared)
    if bare_ns is None:
        return scale
    if program.streams > 1 and one_stream_ns is not None:
        found = _beside_one_stream(scale, bare_ns, one_stream_ns)
        if found is not None:
            return found
    if program.streams > 1 and together is None:
        apart = _apart(partial(step_lengths, program, host=0.0, gap=gap_ns), bare_ns)
        if apart is not None:
            return replace(scale, together=1.0 - apart)
    lengths = partial(step_lengths, program, host=0.0, together=shared)
    if float(lengths(gap=np.zeros(1))[0]) > bare_ns:
        device = solve(lambda d: lengths(device=d, gap=0.0), bare_ns, 0.0, 1.0)
        return replace(scale, device=device, gap=0.0)
    most = float(max(bare_ns, 1))
    several = program.kernel_ns.size > 1
    gap = solve(lambda g: lengths(gap=g), bare_ns, 0.0, most) if several else 0.0
    return replace(scale, gap=gap)


def _beside_one_stream(scale: Scale, bare_ns: int, one_stream_ns: int) -> Scale | None:
    """The scale under which both bare graphs come out; None where there is none.

    Kernels that were recorded at once took longer by what they slow each other, so how long they
    take one after another depends on that, and the gap with it.
    """
    program = scale.program
    in_turn = replace(program, stream=np.zeros_like(program.stream), needs={})

    def serial(together: FloatArray) -> tuple[FloatArray, FloatArray]:
        own = np.maximum(step_lengths(in_turn, host=0.0, gap=0.0, together=together), 1.0)
        gap = np.maximum(one_stream_ns - own, 0.0) / (program.kernel_ns.size - 1)
        return np.minimum(one_stream_ns / own, 1.0), gap

    def lengths(together: FloatArray) -> FloatArray:
        device, gap = serial(together)
        return step_lengths(program, host=0.0, device=device, gap=gap, together=together)

    apart = _apart(lengths, bare_ns)
    if apart is None:
        return None
    device, gap = serial(np.array([1.0 - apart]))
    return replace(scale, device=float(device[0]), gap=float(gap[0]), together=1.0 - apart)


def _apart(lengths: Callable[..., FloatArray], bare_ns: int) -> float | None:
    """How much kernels that run at once slow each other; None where that cannot be it.

    :param lengths: of the step by how little (``together``) they do.
    """

    def aparts(tried: FloatArray) -> FloatArray:
        return lengths(together=1.0 - tried)

    least, most = aparts(np.array([0.0, MOST_APART]))
    if not least - NEAR_RATIO * bare_ns <= bare_ns <= most:
        return None
    return 0.0 if bare_ns <= least else solve(aparts, bare_ns, 0.0, MOST_APART)


def together_in(programs: Sequence[Program], alone_ns: Mapping[int, float]) -> float | None:
    """How little kernels felt each other where many ran at once: the steps against each in turn.

    Steps of which no kernel is known alone say nothing, neither of kernels at once nor of all.

    :param alone_ns: how long a kernel takes with none beside it, by kernel_id.
    """
    length, beside, alone, total = [], [], 0.0, 0.0
    for program in programs:
        kernels = program.kernel_id.tolist()
        if alone_ns.keys().isdisjoint(kernels):
            continue
        total += float(program.kernel_ns.sum())
        for row, kernel in enumerate(kernels):
            if kernel in alone_ns and program.beside[row, 0] < 1:
                length.append(float(program.kernel_ns[row]))
                beside.append(program.beside[row])
                alone += alone_ns[kernel]
    met = sum(ns * (1 - parts[0]) for ns, parts in zip(length, beside, strict=True))
    if not length or met < ENOUGH_RATIO * total:
        return None
    most = max(parts.size for parts in beside)
    parts = np.stack([np.pad(row, (0, most - row.size)) for row in beside])
    many = np.arange(1, most + 1)
    tried = np.linspace(1.0 - MOST_APART, 1.0, 151)
    made = [float((np.array(length) * (parts @ speed(many, each))).sum()) for each in tried]
    return float(tried[int(np.argmin(np.abs(np.array(made) - alone)))])
