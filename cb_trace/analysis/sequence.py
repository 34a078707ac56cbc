"""What the sequence run adds to the terms: S beside E, apart by whether another stream ran.

S is a kernel's duration in the sequence: the same kernels in the same order, one at a time. Where
S and E differ for a kernel that ran beside another stream, that is contention; where nothing ran
beside it, residual.

A copy on the device that the step launched itself has no S: in a CUDA graph the driver copies by
other means (H200, 1 GiB: 505 µs in a stream, 869 µs in the graph), so S would be another kernel's.

Where a graph is taken up after other work, its first replays may be slower than all that follow
(H200: kernels bound by memory take 5 to 12 % longer for 3 to 11 ms, at the highest clock too). The
step that S is held against runs none of these, so such runs at the start are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.analysis.matching import GROUP, MATCHED
from cb_trace.analysis.stats import (
    NOTHING,
    IntArray,
    Interval,
    halves_up,
    resampled_sums,
    tails,
)

BESIDE, APART = "beside", "apart"  # matched kernels with S: while another stream ran, and others
PARTS = (BESIDE, APART)
_FEWEST = 4  # runs of which the first can be told from the others
_SLOW_PERCENT = 3  # runs that have settled differ by up to 3 %, the first ones by 5 or more (H200)
Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class SequenceSums:
    """Σ S over the profiled steps, by module and phase and by part."""

    sums: Mapping[Key, Mapping[str, Interval]]
    without: frozenset[Key]  # which have matched kernels, and no S of any

    def of(self, key: Key, fraction: tuple[int, int]) -> dict[str, Interval] | None:
        """Σ S of one bare step by part; None where the sequence has none of its kernels.

        A module without a matched kernel (another was chosen, or all are fused) has sums of 0.
        """
        if key in self.without:
            return None
        known = self.sums.get(key, {})
        parts = {part: known.get(part, NOTHING) for part in PARTS}
        return {
            part: total.proportion(halves_up(total.median_ns * fraction[0], fraction[1]))
            for part, total in parts.items()
        }


def beside_others(kernel: pl.DataFrame) -> pl.DataFrame:
    """Kernels during which a kernel of another stream of their device runs: ``kernel_id``."""
    found = []
    rows = kernel.select("kernel_id", "device", "stream", "start_ns", "dur_ns")
    rows = rows.filter(pl.col("dur_ns") > 0)
    for _, device in rows.group_by("device"):
        start = device["start_ns"].to_numpy().astype(np.int64)
        end = start + device["dur_ns"].to_numpy()
        stream = device["stream"].fill_null(-1).to_numpy()
        running = _meeting(start, end, start, end)
        for lane in np.unique(stream):
            mine = stream == lane
            running[mine] -= _meeting(start[mine], end[mine], start[mine], end[mine])
        found.append(device.filter(pl.Series(running > 0)).select("kernel_id"))
    return pl.concat(found) if found else rows.select("kernel_id")


def _meeting(start: IntArray, end: IntArray, starts: IntArray, ends: IntArray) -> IntArray:
    """How many of the others' intervals meet each interval."""
    begun = np.searchsorted(np.sort(starts), end, side="left")
    over = np.searchsorted(np.sort(ends), start, side="right")
    met: IntArray = begun - over
    return met


def with_sequence(
    rows: pl.DataFrame, kernel: pl.DataFrame, sequence: pl.DataFrame, instance: list[str]
) -> tuple[pl.DataFrame, SequenceSums]:
    """Split the matched rows that have an S by whether another stream ran beside them.

    An instance has an S where every run of the sequence has it, and ran the same copy.

    :param rows: kernels of the steps, with ``match``; ``instance`` names the columns that tell
        what repeats from step to step.
    :param sequence: ``kernel_id, run, ns`` of kernels of one of the steps.
    """
    sequence = settled(sequence)
    runs = sequence["run"].n_unique()
    sequence = sequence.join(_copied_otherwise(kernel), on="kernel_id", how="anti")
    matched = rows.filter(pl.col("match") == MATCHED)
    known = matched.select("kernel_id", *instance).join(sequence, on="kernel_id")
    known = known.filter(pl.col("run").n_unique().over(instance) == runs)
    beside = pl.col("kernel_id").is_in(beside_others(kernel)["kernel_id"].implode())
    part = pl.when(beside).then(pl.lit(BESIDE)).otherwise(pl.lit(APART))
    marked = (
        rows.join(
            known.select(instance).unique().with_columns(known=pl.lit(value=True)),
            on=instance,
            how="left",
        )
        .with_columns(
            match=pl.when((pl.col("match") == MATCHED) & pl.col("known").fill_null(value=False))
            .then(part)
            .otherwise("match")
        )
        .drop("known")
    )
    sums = _sums(marked, known, instance, runs)
    matched = marked.filter(match=MATCHED).select(GROUP).unique()
    return marked, SequenceSums(sums, frozenset(set(matched.iter_rows()) - sums.keys()))


def settled(sequence: pl.DataFrame) -> pl.DataFrame:
    """Without the runs at the start that are slower than those at the end.

    Held against the longest of the last quarter of the runs, by Σ ns of the kernels that every run
    has. Where there are fewer than four runs, or all are slow, none is left out.
    """
    runs = sequence["run"].unique().sort()
    if runs.len() < _FEWEST:
        return sequence
    common = sequence.filter(pl.col("run").n_unique().over("kernel_id") == runs.len())
    if common.is_empty():
        return sequence
    total = common.group_by("run").agg(pl.col("ns").sum()).sort("run")["ns"].to_numpy()
    limit = total[-(total.size // _FEWEST) :].max()
    slow = total * 100 > limit * (100 + _SLOW_PERCENT)
    first = int(np.argmin(slow))  # the last run is never slow
    return sequence.filter(pl.col("run") >= runs[first])


def times_alone(sequence: pl.DataFrame | None) -> dict[int, float]:
    """How long each kernel takes with none beside it, ns by kernel_id: the median settled run.

    Empty without a sequence run.
    """
    if sequence is None:
        return {}
    return dict(settled(sequence).group_by("kernel_id").agg(pl.col("ns").median()).iter_rows())


def _copied_otherwise(kernel: pl.DataFrame) -> pl.DataFrame:
    """Copies on the device outside any graph: ``kernel_id``."""
    copies = (pl.col("kind") == "memcpy") & pl.col("name").str.starts_with("Memcpy DtoD")
    return kernel.filter(copies & pl.col("graph_id").is_null()).select("kernel_id")


def _sums(
    marked: pl.DataFrame, known: pl.DataFrame, instance: list[str], runs: int
) -> dict[Key, dict[str, Interval]]:
    """Σ S over the steps' kernels, with the bounds of a resample of the sequence's runs."""
    often = marked.filter(pl.col("match").is_in(PARTS)).group_by(*instance, "match").len()
    per_run = (
        known.join(often, on=instance)
        .group_by(*GROUP, "match", "run")
        .agg(ns=(pl.col("ns") * pl.col("len")).sum())
        .sort(*GROUP, "match", "run")
    )
    found: dict[Key, dict[str, Interval]] = {}
    if per_run.is_empty():
        return found
    table = per_run["ns"].to_numpy().reshape(-1, runs)
    low, high = tails(resampled_sums(table) / runs)
    keys = per_run.select(*GROUP, "match").unique(maintain_order=True).iter_rows()
    for (module_id, phase, part), total, least, most in zip(
        keys, table.sum(axis=1).tolist(), low.tolist(), high.tolist(), strict=True
    ):
        mean = halves_up(total, runs)
        interval = Interval(mean, min(least, mean), max(most, mean))
        found.setdefault((module_id, phase), {})[part] = interval
    return found
