"""Parts of the profiled steps scaled to the bare step, summing to it exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from cb_trace.analysis.idle import HOST
from cb_trace.analysis.stats import (
    BareStep,
    FloatArray,
    IntArray,
    resampled_sums,
    round_running,
    tails,
)

BUSY, UNATTRIBUTED, EXCESS = "busy", "unattributed", "profiled_excess"

_KEY = ["module_id", "phase", "kind"]
_CHUNK = 8192  # rows whose resamples are held at once


@dataclass(frozen=True, slots=True)
class PartRows:
    """The parts of the step: one row a module, phase and kind, one column a profiled step."""

    keys: pl.DataFrame  # module_id, phase, kind; busy and unattributed rows before idle ones
    ns: IntArray  # shape (rows, steps)
    busy: int  # how many rows are busy or unattributed

    def totals(self, columns: FloatArray | IntArray) -> tuple[FloatArray, FloatArray]:
        """Busy and idle of each column."""
        return columns[: self.busy].sum(axis=0), columns[self.busy :].sum(axis=0)


@dataclass(frozen=True, slots=True)
class StepParts:
    """The profiled steps in parts, before they are scaled to a bare step."""

    rows: PartRows
    window_ns: int  # length of all profiled windows together
    root: int | None
    cpu: bool


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over parts of the step, shape (sums, steps)."""

    busy: IntArray
    idle: IntArray
    rest: npt.NDArray[np.bool_]  # shape (sums,): which own the idle that the root is given


def part_rows(parts: pl.DataFrame, steps: int) -> PartRows:
    """Gather parts (``module_id, phase, kind, window, ns``) into rows, less idle of no time."""
    words = pl.col("phase", "kind")
    # Numbers instead of words: a row a step, module and kind is compared several times.
    coded = parts.with_columns(words.cast(pl.Categorical))
    merged = coded.group_by(*_KEY, "window").agg(pl.col("ns").sum())
    merged = merged.filter((pl.col("ns") > 0) | (pl.col("kind").cast(pl.String) == BUSY))
    codes = merged.select(_KEY).unique()
    keys = codes.with_columns(words.cast(pl.String), words.name.prefix("coded_"))
    idle = ~pl.col("kind").is_in([BUSY, UNATTRIBUTED])
    keys = keys.sort(idle, *_KEY).with_row_index("row")
    placed = merged.join(
        keys, left_on=_KEY, right_on=["module_id", "coded_phase", "coded_kind"], nulls_equal=True
    )
    ns = np.zeros((keys.height, steps), np.int64)
    ns[placed["row"].to_numpy(), placed["window"].to_numpy()] = placed["ns"].to_numpy()
    return PartRows(keys.select(_KEY), ns, keys.filter(~idle).height)


def scaled(parts: StepParts, bare: BareStep | None) -> pl.DataFrame:
    """The parts per step of one deployment: ``module_id, phase, kind, ns, low_ns, high_ns``.

    Means over steps. On a CPU every part is scaled by bare ÷ profiled. Elsewhere idle alone is
    scaled, by (bare − busy) ÷ idle; where busy exceeds bare there is no idle and a part
    ``profiled_excess`` ≤ 0; where there is no idle to scale, what is missing is the root's.
    ``bare`` None: no scaling.

    Bounds: the 95 % tails of the part over bootstrap resamples of the steps, the lower ones scaled
    to the lower bound of the bare step, the upper ones to its upper bound.
    """
    rows, window_ns, cpu = parts.rows, parts.window_ns, parts.cpu
    steps = rows.ns.shape[1]
    sums: list[int] = rows.ns.sum(axis=1).tolist()
    busy_sums, idle_sums = sums[: rows.busy], sums[rows.busy :]
    idle = sum(idle_sums)
    if bare is None:
        ns = round_running(sums, 1, steps)
    elif cpu and window_ns > 0:
        ns = round_running(sums, bare.median_ns, window_ns)
    else:
        ns = round_running(busy_sums, 1, steps)
        spare = max(0, bare.median_ns - sum(ns))
        ns += round_running(idle_sums, spare, idle) if idle else []
    low, high = _bounds(rows, bare, cpu=cpu)
    frame = rows.keys.with_columns(
        ns=pl.Series(ns, dtype=pl.Int64), low_ns=pl.Series(low), high_ns=pl.Series(high)
    )
    if bare is not None and (missing := bare.median_ns - sum(ns)):
        frame = pl.concat([frame, _remainder(missing, bare, rows, steps, parts.root)])
    return frame.with_columns(
        low_ns=pl.min_horizontal("low_ns", "ns"), high_ns=pl.max_horizontal("high_ns", "ns")
    )


def _remainder(
    missing: int, bare: BareStep, rows: PartRows, steps: int, root: int | None
) -> pl.DataFrame:
    """What the scaled parts leave of the bare step: idle of the root, or busy time beyond it."""
    totals = rows.ns[: rows.busy].sum(axis=0, keepdims=True)
    busy = resampled_sums(totals) / steps
    low, high = tails(bare.low_ns - busy)[0], tails(bare.high_ns - busy)[1]
    excess = missing < 0
    clip = min if excess else max
    row = {
        "module_id": None if excess else root,
        "phase": None if excess else "forward",
        "kind": EXCESS if excess else HOST,
        "ns": missing,
        "low_ns": clip(0, int(low[0])),
        "high_ns": clip(0, int(high[0])),
    }
    times = dict.fromkeys(("ns", "low_ns", "high_ns"), pl.Int64())
    return pl.DataFrame([row], schema={**rows.keys.schema, **times})


def _bounds(rows: PartRows, bare: BareStep | None, *, cpu: bool) -> tuple[IntArray, IntArray]:
    """Tails over resamples of the steps, each scaled to the bound of the bare step on its side."""
    totals = resampled_sums(np.stack(rows.totals(rows.ns)))
    sides = [None, None] if bare is None else [bare.low_ns, bare.high_ns]
    factors = [_factors(totals, side, rows.ns.shape[1], cpu=cpu) for side in sides]
    low, high = np.empty(len(rows.ns), np.int64), np.empty(len(rows.ns), np.int64)
    is_idle = (np.arange(len(rows.ns)) >= rows.busy).astype(np.intp)
    for begin in range(0, len(rows.ns), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        drawn = resampled_sums(rows.ns[part])
        low[part] = tails(drawn * factors[0][is_idle[part]])[0]
        high[part] = tails(drawn * factors[1][is_idle[part]])[1]
    return low, high


def sum_bounds(
    parts: StepParts, sums: Sums, bare: BareStep | None
) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """Lower and upper bounds of sums over parts, and of the idle in them; as in :func:`scaled`.

    The sum of each step is resampled, not the parts, whose bounds added up are far too wide.
    """
    cost, idle = np.empty((2, len(sums.busy)), np.int64), np.empty((2, len(sums.busy)), np.int64)
    totals = resampled_sums(np.stack(parts.rows.totals(parts.rows.ns)))
    steps = parts.rows.ns.shape[1]
    sides = [None, None] if bare is None else [bare.low_ns, bare.high_ns]
    factors_of = [_factors(totals, side, steps, cpu=parts.cpu) for side in sides]
    for begin in range(0, len(sums.busy), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        busy_drawn, idle_drawn = resampled_sums(sums.busy[part]), resampled_sums(sums.idle[part])
        for side, (bare_ns, factors) in enumerate(zip(sides, factors_of, strict=True)):
            found = (totals * factors).sum(axis=0)
            missing = 0 * found if bare_ns is None else np.maximum(0, bare_ns - found)
            waits = idle_drawn * factors[1] + sums.rest[part, np.newaxis] * missing
            cost[side, part] = tails(busy_drawn * factors[0] + waits)[side]
            idle[side, part] = tails(waits)[side]
    return (cost[0], cost[1]), (idle[0], idle[1])


def _factors(totals: FloatArray, bare_ns: int | None, steps: int, *, cpu: bool) -> FloatArray:
    """What busy (row 0) and idle (row 1) are multiplied by in each resample."""
    busy, idle = totals
    per_step = np.full_like(busy, 1 / steps)
    if bare_ns is None:
        return np.stack([per_step, per_step])
    if cpu:
        both = np.divide(bare_ns, busy + idle, out=np.zeros_like(busy), where=busy + idle > 0)
        return np.stack([both, both])
    spare = np.maximum(0, bare_ns - busy / steps)
    return np.stack([per_step, np.divide(spare, idle, out=np.zeros_like(busy), where=idle > 0)])
