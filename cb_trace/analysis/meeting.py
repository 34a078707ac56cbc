"""How kernels of a step on several streams met in profiled runs of its CUDA graph.

What runs beside what, and what each loses by it, no figure of modules alone tells. On an H200 a
matrix product of 17 µs took 70 beside lookups that fill the device, and held up the step; in other
runs of the same graph it took 18. The lookups took little more than alone. So the step is simulated
once for every profiled run, as it went there; figures are means of their middle half.

What a kernel loses counts from when all before it had ended, since one that finds no room waits.
It is by the kernels of other streams that ran meanwhile, for as long as each did; without some of
them it loses so much less, and without itself the next one of its stream is beside them. Under a
profiler, and in one capture of many, kernels may meet more often or less than in the bare steps:
what they lose is multiplied by one factor for all, with which the runs come to the bare graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from cb_trace.analysis.calibrate import Scale, graph_scale
from cb_trace.analysis.lengths import solve, step_lengths
from cb_trace.analysis.program import Loss, Program, without_host
from cb_trace.analysis.stats import FloatArray, IntArray, middle_mean

MOST_TIMES = 4.0  # the bare steps' losses over those of the runs
AS_LONG = 1.0  # times what is lost: a shorter kernel does not lose it instead
MET_RATIO = 0.05  # of a kernel's time beside others; less tells nothing
FEWEST = 3  # runs: with fewer, how they differ cannot be told
MOST_KERNELS, MOST_TIMED = 2_000, 10_000  # of a step; in all runs: some seconds
MOST_HEIRS = 8
SEVERAL = 3  # runs in which it met nobody tell what it takes alone

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Met:
    """The step as it went in each run; how long its kernels take in all in the sequence run."""

    programs: tuple[Program, ...]
    sequence_ns: float | None

    def gap_ns(self, one_stream_ns: int | None) -> float | None:
        """The gap between kernels in the bare graph of all on one stream; None: not known."""
        if one_stream_ns is None or self.sequence_ns is None:
            return None
        gaps = max(1, self.programs[0].kernel_ns.size - 1)
        return max(0.0, one_stream_ns - self.sequence_ns) / gaps


@dataclass(frozen=True, slots=True)
class _Run:
    """One run, ns, by kernel. ``began``: all before it had ended, and the usual gap had passed."""

    start: IntArray
    end: IntArray
    began: FloatArray

    def meetings(self, kernel: int, stream: IntArray) -> tuple[IntArray, FloatArray]:
        """The kernels of other streams that ran between its beginning and its end; how long."""
        until = np.minimum(self.end, self.end[kernel])
        both = (until - np.maximum(self.start, self.began[kernel])) * (stream != stream[kernel])
        others = np.flatnonzero(both > 0)
        return others, both[others]


def as_met(
    programs: Sequence[Program],
    runs: pl.DataFrame | None,
    alone_ns: Mapping[int, float],
    fewest: int = FEWEST,
) -> Met | None:
    """A program a run, of the profiled step whose kernels all are in it; None without one.

    :param runs: ``kernel_id, run, start_ns, dur_ns`` of profiled runs of the graph.
    :param alone_ns: of the sequence run, by kernel_id.
    :param fewest: runs that have every kernel once, beside the first of all.
    """
    if runs is None or runs.is_empty():
        return None
    for program in programs:
        if program.streams > 1 and (times := _times(program, runs, fewest)) is not None:
            sequence = [alone_ns.get(kernel) for kernel in program.kernel_id.tolist()]
            known = [ns for ns in sequence if ns is not None]
            whole = sum(known) if len(known) == len(sequence) else None
            return Met(tuple(_met(program, *times, alone_ns)), whole)
    return None


def met_scales(programs: Sequence[Program], bare_ns: int, gap_ns: float) -> list[Scale]:
    """The scale of each run's program, under which all come to the bare graph.

    :param gap_ns: between kernels. If no loss makes the step as long with it, each program's gaps
        or kernels give way as any graph's do: without a loss, where they are too long as it is.
    """
    on_device = [without_host(program) for program in programs]

    def lengths(times: FloatArray) -> FloatArray:
        return middle_mean(
            np.stack([step_lengths(p, host=0.0, gap=gap_ns, lost=times) for p in on_device])
        )

    least, most = lengths(np.array([0.0, MOST_TIMES]))
    if bare_ns < least:
        nothing = [replace(program, lost={}) for program in programs]
        return [graph_scale(program, bare_ns, gap_ns, 1.0) for program in nothing]
    if bare_ns > most:
        return [graph_scale(program, bare_ns, gap_ns, 1.0) for program in programs]
    times = solve(lengths, bare_ns, 0.0, MOST_TIMES)
    return [
        Scale(program=program, host=0.0, device=1.0, gap=gap_ns, lost=times)
        for program in on_device
    ]


def _times(program: Program, runs: pl.DataFrame, fewest: int) -> tuple[IntArray, IntArray] | None:
    """Starts and ends, shape (runs, kernels), of the runs that have each kernel once.

    In ns from the start of each, as no float holds those of a trace's own time. Less the first of
    all, which began on an idle device. None where that leaves too few to tell how they differ;
    fewer of many kernels, which take long.
    """
    runs = runs.filter(pl.col("run") > pl.col("run").min())
    place = pl.DataFrame({"kernel_id": program.kernel_id}).with_row_index("place")
    known = runs.join(place, on="kernel_id")
    whole = known.group_by("run").agg(pl.len(), one=pl.col("place").n_unique())
    complete = whole.filter((pl.col("len") == place.height) & (pl.col("one") == place.height))
    rows = known.join(complete.select("run"), on="run").sort("run", "place")
    if rows.height < max(1, fewest) * place.height or place.height > MOST_KERNELS:
        return None
    start, dur = (
        rows[name].to_numpy().astype(np.int64).reshape(-1, place.height)
        for name in ("start_ns", "dur_ns")
    )
    most = max(fewest, MOST_TIMED // place.height)
    start -= start.min(axis=1, keepdims=True)
    return start[:most], (start + dur)[:most]


def _met(
    program: Program, start: IntArray, end: IntArray, sequence_ns: Mapping[int, float]
) -> list[Program]:
    ready = np.stack([_ready(program, *run) for run in zip(start, end, strict=True)])
    first = np.unique(program.stream, return_index=True)[1]
    late = np.delete(start - ready, first, axis=1)
    usual = np.full(program.stream.size, float(np.median(late)) if late.size else 0.0)
    usual[first] = 0.0
    runs = [_Run(*run) for run in zip(start, end, np.minimum(ready + usual, start), strict=True)]
    meetings = [
        [run.meetings(kernel, program.stream) for kernel in range(program.stream.size)]
        for run in runs
    ]
    beside = np.array([[ns.sum() for _, ns in met] for met in meetings])
    took = np.stack([run.end - run.began for run in runs])
    apart = beside <= MET_RATIO * took
    alone = _alone(program, end - start, apart, sequence_ns)
    took = np.where(apart, end - start, took)  # gaps are those of the bare graph
    lost = np.where(apart, 0.0, np.maximum(took - alone, 0.0))
    return [_as_it_went(program, *run) for run in zip(took, lost, meetings, strict=True)]


def _as_it_went(
    program: Program,
    took: FloatArray,
    lost: FloatArray,
    meetings: Sequence[tuple[IntArray, FloatArray]],
) -> Program:
    own = np.rint(took - lost).astype(np.int64)
    parts = {}
    for kernel in np.flatnonzero(lost).tolist():
        others, ns = meetings[kernel]
        heirs = _heirs(program, own, kernel, lost[kernel])
        parts[kernel] = Loss(others, lost[kernel] * ns / ns.sum(), heirs)
    return replace(
        program,
        kernel_ns=own,
        beside=np.ones((took.size, 1)),
        lost=parts,
    )


def _heirs(program: Program, own: IntArray, kernel: int, lost: float) -> tuple[int, ...]:
    """Who runs beside the same ones when it is gone: the next of its stream, while long enough."""
    after = np.flatnonzero(program.stream == program.stream[kernel])
    found: list[int] = []
    for one in after[after > kernel].tolist():
        if own[one] < AS_LONG * lost or one in program.needs or len(found) == MOST_HEIRS:
            break
        found.append(one)
    return tuple(found)


def _ready(program: Program, start: IntArray, end: IntArray) -> FloatArray:
    """When all before each kernel had ended: those of its stream, and those that it needs."""
    ready: FloatArray = np.full(start.size, float(start.min()))
    for lane in np.unique(program.stream):
        rows = np.flatnonzero(program.stream == lane)
        ready[rows[1:]] = end[rows[:-1]]
    for kernel, others in program.needs.items():
        ready[kernel] = max(ready[kernel], *end[list(others)])
    return ready


def _alone(
    program: Program, took: IntArray, apart: Bools, sequence_ns: Mapping[int, float]
) -> FloatArray:
    """How long each kernel takes with nobody beside it.

    In the runs, or in the sequence, which finds other caches: by how much says the middle one of
    those that both tell of. Else the least that it took.
    """
    inside = np.where(apart, took, 0).sum(axis=0) / np.maximum(apart.sum(axis=0), 1)
    known = apart.sum(axis=0) >= min(SEVERAL, len(took))
    sequence = np.array([sequence_ns.get(one, np.nan) for one in program.kernel_id.tolist()])
    both = known & (sequence > 0)
    times = float(np.median(inside[both] / sequence[both])) if both.any() else 1.0
    least = took.min(axis=0)
    found: FloatArray = np.where(known, inside, np.where(sequence > 0, times * sequence, least))
    return found
