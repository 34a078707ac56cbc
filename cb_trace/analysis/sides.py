"""The two sides that the error terms compare: a module in the step, and alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.analysis.matching import CHOICE, GROUP, MATCHED, ONLY
from cb_trace.analysis.sequence import APART, BESIDE, PARTS
from cb_trace.analysis.shares import WHOLE, ancestors, inclusive, kernel_shares
from cb_trace.analysis.stats import (
    NOTHING,
    Interval,
    resampled_sums,
    round_running,
    tails,
)

MATCHES = (MATCHED, CHOICE, ONLY)
Key = tuple[int, str]  # module_id, phase

_SAME = ["op", "name", "grid", "block"]
INSTANCE = [*GROUP, *_SAME, "number"]  # what repeats from step to step


@dataclass(frozen=True, slots=True)
class Side:
    """One module and phase on one side, per step. ``kernels``: K by how they are matched."""

    kernels: Mapping[str, Interval]

    @property
    def kernel(self) -> Interval:
        """K."""
        return self.kernels[MATCHED] + self.kernels[CHOICE] + self.kernels[ONLY]


@dataclass(frozen=True, slots=True)
class Alone(Side):
    """A module replayed alone, times its calls per step."""

    wall: Interval  # W
    busy_ns: int | None  # U; None where it was not profiled


@dataclass(frozen=True, slots=True)
class InStep(Side):
    """A module in the step of one deployment: what it owns of the partition."""

    busy_ns: int  # B
    idle: Interval  # I
    parts: Mapping[str, Interval] | None = None  # of the matched: Σ E of those with an S
    sequence: Mapping[str, Interval] | None = None  # Σ S of the same; None: no sequence run


# --- the kernels of either side, as rows to be matched ------------------------------------------


def hot_replays(replay: pl.DataFrame) -> pl.DataFrame:
    """The hot records of each module and phase for which every one was measured."""
    return measured_replays(replay, "hot")


def measured_replays(replay: pl.DataFrame, condition: str) -> pl.DataFrame:
    """As :func:`hot_replays`, of any condition."""
    measured = pl.col("skipped").is_null() & pl.col("median_ns").is_not_null()
    return replay.filter(pl.col("condition") == condition).filter(measured.all().over(GROUP))


def context_kernels(
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    op: pl.DataFrame,
    module: pl.DataFrame,
    wanted: pl.DataFrame,
) -> pl.DataFrame:
    """Kernels inside steps under each wanted module and phase, numbered among their like.

    ``kernel_id, module_id, phase, step, op, name, grid, block, number, position, whole, ns``.
    """
    inside = kernel.drop_nulls("step")
    rows = inclusive(inside, kernel_shares(kernel_module), ancestors(module))
    return (
        rows.join(wanted.select(GROUP).unique(), on=GROUP, how="semi")
        .join(_signatures(inside, op), on="kernel_id")
        .sort("start_ns", "kernel_id")
        .with_columns(
            number=pl.col("kernel_id").cum_count().over([*GROUP, "step", *_SAME]),
            position=pl.col("kernel_id").cum_count().over([*GROUP, "step"]),
            whole=pl.col("weight") >= WHOLE,
        )
        .select("kernel_id", *GROUP, "step", *_SAME, "number", "position", "whole", "ns")
    )


def context_instances(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a kernel of the step: what repeats from step to step is one."""
    return (
        rows.group_by(*GROUP, *_SAME, "number")
        .agg(pl.col("position").min(), pl.col("whole").all())
        # Steps that differ may leave two in one place: the order must not be one of chance.
        .sort("position", *_SAME, "number")
        .drop("position")
        .with_row_index("position")
    )


def alone_instances(
    hot: pl.DataFrame,
    replay_kernel: pl.DataFrame,
    isolated_kernel: pl.DataFrame,
    isolated_op: pl.DataFrame,
) -> pl.DataFrame:
    """One row a kernel that the module's calls of a step would run alone.

    ``module_id, phase, replay_id, op, name, grid, block, position, raw`` (Σ duration over the
    profiled calls). A record that stands for several calls repeats its kernels for each.
    """
    once = (
        replay_kernel.join(isolated_kernel.select("kernel_id", "dur_ns"), on="kernel_id")
        .join(_signatures(isolated_kernel, isolated_op), on="kernel_id")
        .sort("replay_id", "iteration", "position")
        .with_columns(number=pl.col("kernel_id").cum_count().over("replay_id", "iteration", *_SAME))
        .group_by("replay_id", *_SAME, "number")
        .agg(raw=pl.col("dur_ns").sum(), place=pl.col("position").min())
        .rename({"replay_id": "measured_id"})
    )
    return (
        hot.select(*GROUP, "replay_id", "measured_id", "call_index", "calls")
        .with_columns(copy=pl.int_ranges(pl.col("calls")))
        .explode("copy")
        .drop_nulls("copy")
        .join(once, on="measured_id")
        .sort(*GROUP, "call_index", "replay_id", "copy", "place", *_SAME, "number")
        .with_row_index("position")
        .select(*GROUP, "replay_id", *_SAME, "position", "raw")
    )


def _signatures(kernel: pl.DataFrame, op: pl.DataFrame) -> pl.DataFrame:
    """What a kernel is compared by; "" stands for unknown."""
    names = op.select("op_id", op="name")
    return kernel.join(names, on="op_id", how="left").select(
        "kernel_id", *(pl.col(name).fill_null("") for name in _SAME)
    )


# --- the sums of either side ----------------------------------------------------------------------


def alone_sides(
    hot: pl.DataFrame, matched: pl.DataFrame, replay_kernel: pl.DataFrame, kernel: pl.DataFrame
) -> dict[Key, Alone]:
    """W, U and the matched sums of each module and phase, its records added up."""
    raw = _by_match(matched.rename({"raw": "ns"}), ["replay_id"])
    spread = _call_spread(replay_kernel, kernel)
    sides: dict[Key, Alone] = {}
    for row in hot.iter_rows(named=True):
        parts = raw.get((row["replay_id"],), [0, 0, 0])
        vary = spread.get(row["measured_id"], NOTHING)
        calls = row["calls"]
        wall = Interval(row["median_ns"], row["low_ns"], row["high_ns"], row["samples"] or 1)
        unknown = row["kernel_ns"] is None
        total = 0 if unknown else row["kernel_ns"] * calls
        sums = round_running(parts, total, max(1, sum(parts)))
        mine = Alone(
            kernels=dict(zip(MATCHES, map(vary.proportion, sums), strict=True)),
            wall=wall * calls,
            busy_ns=None if unknown else row["busy_ns"] * calls,
        )
        key = (row["module_id"], row["phase"])
        sides[key] = _together(sides[key], mine) if key in sides else mine
    return sides


def _together(one: Alone, other: Alone) -> Alone:
    known = one.busy_ns is not None and other.busy_ns is not None
    return Alone(
        kernels={match: one.kernels[match] + other.kernels[match] for match in MATCHES},
        wall=one.wall + other.wall,
        busy_ns=(one.busy_ns or 0) + (other.busy_ns or 0) if known else None,
    )


def _call_spread(replay_kernel: pl.DataFrame, kernel: pl.DataFrame) -> dict[int, Interval]:
    """Σ K over the profiled calls of each measurement, with the bounds of a resample of calls."""
    calls = (
        replay_kernel.join(kernel.select("kernel_id", "dur_ns"), on="kernel_id")
        .group_by("replay_id", "iteration")
        .agg(pl.col("dur_ns").sum())
        .sort("replay_id", "iteration")
        .with_columns(number=pl.len().over("replay_id"))
    )
    spread: dict[int, Interval] = {}
    for (number,), rows in calls.group_by("number"):
        ids = rows["replay_id"].unique(maintain_order=True).to_list()
        sums = rows["dur_ns"].to_numpy().reshape(len(ids), int(str(number)))
        low, high = tails(resampled_sums(sums))
        columns = (sums.sum(axis=1).tolist(), low.tolist(), high.tolist())
        spread |= {
            id_: Interval(ns, min(ns, lower), max(ns, upper))
            for id_, ns, lower, upper in zip(ids, *columns, strict=True)
        }
    return spread


def context_sums(rows: pl.DataFrame, steps: pl.Series) -> dict[Key, dict[str, Interval]]:
    """Σ E over the profiled steps by match, with the bounds of a resample of steps.

    :param rows: :func:`context_kernels` with the ``match`` of their instances.
    :param steps: the numbers of the profiled steps.
    """
    sums = rows.group_by(*GROUP, "match", "step").agg(pl.col("ns").sum())
    keys = sums.select(*GROUP, "match").unique().with_row_index("row")
    columns = steps.to_frame("step").with_row_index("column")
    placed = sums.join(keys, on=[*GROUP, "match"]).join(columns, on="step")
    ns = np.zeros((keys.height, columns.height), np.int64)
    ns[placed["row"].to_numpy(), placed["column"].to_numpy()] = placed["ns"].to_numpy()
    low, high = tails(resampled_sums(ns))
    bounds = zip(ns.sum(axis=1).tolist(), low.tolist(), high.tolist(), strict=True)
    found: dict[Key, dict[str, Interval]] = {}
    for (module_id, phase, match), (total, lower, upper) in zip(
        keys.drop("row").iter_rows(), bounds, strict=True
    ):
        interval = Interval(total, min(lower, total), max(upper, total))
        found.setdefault((module_id, phase), {})[match] = interval
    return found


def in_step(
    sums: Mapping[str, Interval],
    fraction: tuple[int, int],
    busy_ns: int,
    idle: Interval,
    sequence: Mapping[str, Interval] | None = None,
) -> InStep:
    """One module of one deployment.

    :param sums: Σ E over the profiled steps by match.
    :param fraction: what such a sum is multiplied by to be one of a bare step.
    :param sequence: Σ S of one bare step by part.
    """
    order = (MATCHED, *PARTS, CHOICE, ONLY)
    raw = [sums.get(match, NOTHING) for match in order]
    scaled = round_running([side.median_ns for side in raw], *fraction)
    kernels = {
        match: vary.proportion(ns) for match, vary, ns in zip(order, raw, scaled, strict=True)
    }
    parts = {part: kernels.pop(part) for part in PARTS}
    kernels[MATCHED] = kernels[MATCHED] + parts[BESIDE] + parts[APART]
    return InStep(kernels, busy_ns, idle, parts, sequence)


def _by_match(rows: pl.DataFrame, key: list[str]) -> dict[tuple[int, ...], list[int]]:
    """Sums of ``ns`` in the order of :data:`MATCHES`, by key."""
    sums: dict[tuple[int, ...], list[int]] = {}
    for *group, match, ns in rows.group_by(*key, "match").agg(pl.col("ns").sum()).iter_rows():
        sums.setdefault(tuple(group), [0, 0, 0])[MATCHES.index(match)] = ns
    return sums
