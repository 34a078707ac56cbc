"""Time that a kernel takes for what ran before it, and that the next one takes when it is gone.

On an H200 the first large product after a stretch of lookups takes 8 µs longer than alone, with a
warm cache and with a cold one, and in the sequence run too. Knock-out of its module loses only what
it takes alone: the next product is then the first, and takes the 8 µs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from cb_trace.analysis.device_alone import device_alone
from cb_trace.analysis.program import Program
from cb_trace.analysis.stats import FloatArray

LEAST_NS, LEAST_RATIO = 1_500, 0.05  # less is lost in noise
SEVERAL = 3  # likes tell what is usual
AS_LONG = 2.0  # times what is carried: a shorter kernel does not take it over


def longest_alone(replay: pl.DataFrame, inner: pl.DataFrame) -> dict[int, float]:
    """By module: what it keeps the device busy for alone, warm or cold, whichever is longer.

    None where not all calls were measured in both conditions: a part is no step's.

    :param replay: forward replays, none skipped.
    :param inner: those of modules below which none was measured, in condition ``hot``, all calls
        of each.
    """
    known = device_alone(replay.filter(pl.col("condition").is_in(["hot", "cold"])), inner)
    both = known.group_by("module_id").agg(
        pl.col("ns").max(), pl.len(), alike=pl.col("calls").n_unique()
    )
    both = both.filter(pl.col("len") == 2, pl.col("alike") == 1)
    return dict(both.select("module_id", "ns").iter_rows())


def with_carried(
    program: Program,
    alone_ns: Mapping[int, float],
    likes: Mapping[int, int] | None = None,
    *,
    graph: bool = False,
) -> Program:
    """The program that knows which kernels take longer for what ran before them.

    Of a module that is longer in the step than alone, warm or cold, the excess is its longest
    kernel's; and so it is of one that is longer than the middle one of its likes. Who takes it over
    is the next on the stream that is long enough to have it.

    :param likes: by module_id the number of a group that is alike in work and sizes.
    :param graph: streams start together, so that what another one had before it runs beside it.
    """
    weight = program.share * program.kernel_ns[program.share_kernel]
    in_step: FloatArray = np.bincount(program.share_owner, weight, len(program.owners)).astype(
        float
    )
    usual = _usual(program, in_step, alone_ns, likes or {})
    carried: dict[int, tuple[float, tuple[int, ...]]] = {}
    for row, usual_ns in usual.items():
        mine = program.share_owner == row
        excess = float(in_step[row]) - usual_ns
        if not mine.any() or excess <= max(LEAST_NS, LEAST_RATIO * in_step[row]):
            continue
        kernels = program.share_kernel[mine]
        longest = int(kernels[np.argmax(weight[mine])])
        alone = program.beside[kernels, 0].min() == 1.0  # else it is those beside it
        if alone and not (graph and _first_here(program, longest)):
            carried[longest] = (excess, _heirs(program, longest, excess))
    return replace(program, carried=carried) if carried else program


def _usual(
    program: Program,
    in_step: FloatArray,
    alone_ns: Mapping[int, float],
    likes: Mapping[int, int],
) -> dict[int, float]:
    """By row of an owner, forward: its device time with nothing that is for others."""
    rows = {
        row: module
        for row, (module, phase) in enumerate(program.owners)
        if module is not None and phase == "forward"
    }
    groups: dict[int, list[int]] = {}
    for row, module in rows.items():
        if module in likes and in_step[row] > 0:
            groups.setdefault(likes[module], []).append(row)
    found = {row: alone_ns[module] for row, module in rows.items() if module in alone_ns}
    for ones in groups.values():
        if len(ones) >= SEVERAL:
            middle = float(np.median(in_step[ones]))
            found |= {row: min(middle, found.get(row, middle)) for row in ones}
    return found


def _first_here(program: Program, kernel: int) -> bool:
    """Whether the one launched before it is on another stream."""
    return kernel > 0 and bool(program.stream[kernel - 1] != program.stream[kernel])


def _heirs(program: Program, kernel: int, excess: float) -> tuple[int, ...]:
    same = program.stream == program.stream[kernel]
    long = program.kernel_ns >= AS_LONG * excess
    after = np.arange(program.stream.size) > kernel
    return tuple(np.flatnonzero(same & long & after).tolist())
