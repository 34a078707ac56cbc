"""Where HTA's totals and ours part, beyond what its rounding explains. Frames in, rows out.

HTA rounds every start up and every end down to a whole microsecond (its README says rounding;
``round_down_time_stamps`` in 0.5.0 does this), so each interval of n loses at least 0 and less
than 2 µs. Hence, for n rows: sum of durations and busy time are low by less than n × 2 µs, the
span by less than 2 µs, and idle time, their difference, is off by less than n × 2 µs. A file whose
times are whole microseconds is not rounded at all: the bound is 0. Told not to round, HTA computes
in doubles of microseconds: then each of the two edges is off by at most one step of a double at
the trace's end, and no finer than the nanosecond that we keep.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

ROUNDED_NS = 2_000  # both edges of one interval


@dataclass(frozen=True, slots=True)
class Check:
    """One figure, ours and HTA's, in ``unit`` (``ns`` or ``count``)."""

    metric: str
    unit: str
    ours: int
    hta: int
    bound: int

    @property
    def agrees(self) -> bool:
        return abs(self.hta - self.ours) <= self.bound


def edges_ns(*, rounded: bool, resolution_ns: int, end_ns: int) -> int:
    """How far the two edges of one interval may be off together, in ns."""
    if rounded:
        return ROUNDED_NS if resolution_ns < 1_000 else 0
    return 2 * max(1, math.ceil(math.ulp(end_ns / 1_000) * 1_000))


def count_checks(kernels: pl.DataFrame, events: pl.DataFrame) -> Iterator[Check]:
    """How many device activities there are, and how many of them have their launch."""
    yield Check("kernels", "count", kernels.height, events.height, 0)
    launched = kernels["launch_id"].is_not_null().sum()
    yield Check("kernels_with_launch", "count", int(launched), int(events["linked"].sum()), 0)


def time_checks(kernels: pl.DataFrame, events: pl.DataFrame, edge_ns: int) -> Iterator[Check]:
    """Durations: their sum, and kernel by kernel over the matched ones.

    :param events: with kernel_id, null where none of ours matches.
    """
    bound = edge_ns * events.height
    yield Check("kernel_time", "ns", _sum(kernels, "dur_ns"), _sum(events, "dur_ns"), bound)
    both = events.join(kernels.select("kernel_id", our_ns="dur_ns"), on="kernel_id")
    off = (pl.col("dur_ns") - pl.col("our_ns")).abs() > edge_ns
    equal = both.height - int(both.select(off.sum()).item())
    yield Check("matched_durations", "count", both.height, equal, 0)


def idle_checks(
    kernels: pl.DataFrame, temporal: pl.DataFrame, edge_ns: int, rows: int
) -> Iterator[Check]:
    """Span, busy and idle over all streams, from HTA's temporal breakdown."""
    span, busy = span_ns(kernels), busy_ns(kernels)
    hta_span, hta_idle = temporal["span_ns"][0], temporal["idle_ns"][0]
    yield Check("span", "ns", span, hta_span, edge_ns)
    yield Check("busy", "ns", busy, hta_span - hta_idle, edge_ns * rows)
    yield Check("idle", "ns", span - busy, hta_idle, edge_ns * rows)


def span_ns(kernels: pl.DataFrame) -> int:
    """First start to last end."""
    if kernels.is_empty():
        return 0
    ends = kernels.select((pl.col("start_ns") + pl.col("dur_ns")).max()).item()
    return int(ends - kernels.select(pl.col("start_ns").min()).item())


def busy_ns(kernels: pl.DataFrame) -> int:
    """Length of the union of all intervals: overlapped time counts once."""
    line = kernels.select("start_ns", end=pl.col("start_ns") + pl.col("dur_ns")).sort("start_ns")
    before = pl.col("end").cum_max().shift(1).fill_null(pl.col("start_ns"))
    added = pl.col("end") - pl.max_horizontal("start_ns", before)
    return int(line.select(added.clip(lower_bound=0).sum()).item())


def why(
    kernels: pl.DataFrame,
    events: pl.DataFrame,
    last_step_end_ns: int | None,
    *,
    part_of_trace: bool = False,
) -> str:
    """What separates HTA's set of device activities from ours, counted; empty where nothing does.

    :param kernels: with launch_start_ns.
    :param events: with kernel_id.
    :param part_of_trace: the profile holds a window or some steps of the trace.
    """
    found = ["only a part of the trace was loaded; HTA saw all of it"] if part_of_trace else []
    found += [*_extra(events), *_absent(kernels, events, last_step_end_ns)]
    flawed = int(kernels["flaw"].is_not_null().sum())
    if flawed:
        found.append(f"kernels of ours with a flaw in the file (column flaw): {flawed}")
    return "; ".join(found)


def _extra(events: pl.DataFrame) -> Iterator[str]:
    """Rows that HTA counts and we do not, or that it counts again."""
    first = events.unique("event_index", keep="first")
    foreign = first.filter(pl.col("kernel_id").is_null())
    for category, rows, ns in foreign.group_by("category").agg(
        pl.len(), pl.col("dur_ns").sum()
    ).sort("category").iter_rows():  # fmt: skip
        yield (
            f"HTA counts {category} events with a stream that are no sound kernel of ours: {rows}, "
            f"{ns / 1000:.0f} µs"
        )
    if again := events.height - first.height:
        yield f"HTA counts rows again whose correlation id several host events share: {again}"


def _absent(
    kernels: pl.DataFrame, events: pl.DataFrame, last_step_end_ns: int | None
) -> Iterator[str]:
    """Kernels of ours that HTA leaves out, by cause."""
    absent = kernels.join(events.drop_nulls("kernel_id"), on="kernel_id", how="anti")
    late = pl.col("launch_start_ns") > (
        last_step_end_ns if last_step_end_ns is not None else math.inf
    )
    unlaunched = absent.filter(pl.col("launch_id").is_null())
    after = absent.filter(pl.col("launch_id").is_not_null() & late)
    other = absent.height - unlaunched.height - after.height
    if unlaunched.height:
        yield (
            f"HTA drops kernels without a launch in the file where there are two steps or more: "
            f"{unlaunched.height}"
        )
    if after.height:
        yield f"HTA drops kernels launched after the last step: {after.height}"
    if other:
        yield f"kernels of ours that HTA has no row for: {other}"


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].sum())
