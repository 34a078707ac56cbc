"""What a kernel waits for on the device: its stream, its launch, kernels of other streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.analysis.sharing import beside
from cb_trace.analysis.stats import FloatArray, IntArray

DEFAULT_GAP_NS = (
    1_000  # between kernels of one stream (facts, models.md section 8), if none is seen
)
DEFAULT_LATENCY_NS = 2_000
LONGEST_GAP_NS = 20_000  # a longer one had another reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The kernels of one step in the order they were launched in."""

    kernel_id: IntArray
    dur_ns: IntArray
    beside: FloatArray  # parts of it with none, one, two … other kernels running
    stream: IntArray  # counted from 0
    gap_ns: IntArray
    latency_ns: IntArray
    needs: Mapping[int, tuple[int, ...]]


def device_order(kernels: pl.DataFrame, launches: pl.DataFrame) -> Device:
    """Gaps, latencies and needs of kernels as the trace shows them.

    A kernel launched before its stream ran dry shows the gap to the one before it; one launched
    after that shows the latency from the end of its launch. What a kernel does not show is the
    median of those that do.

    :param kernels: of one step, in the order of their launches, with ``called_ns``, ``call_ns``.
    """
    start = kernels["start_ns"].to_numpy().astype(np.int64)
    end = start + kernels["dur_ns"].to_numpy()
    returned = kernels["called_ns"].to_numpy() + kernels["call_ns"].to_numpy()
    lanes = kernels.select(pl.struct("device", "stream").rank("dense").cast(pl.Int64) - 1)
    stream = lanes.to_series().to_numpy().astype(np.int64)
    before = _before(stream, end)
    queued = returned < before
    gap = np.where(queued, start - before, -1)
    gap = np.where((gap >= 0) & (gap <= LONGEST_GAP_NS), gap, -1)
    latency = np.where(queued, -1, np.maximum(start - returned, 0))
    latency = np.where(latency <= LONGEST_GAP_NS, latency, -1)
    return Device(
        kernel_id=kernels["kernel_id"].to_numpy().astype(np.int64),
        dur_ns=end - start,
        beside=beside(start, end),
        stream=stream,
        gap_ns=_filled(gap, DEFAULT_GAP_NS),
        latency_ns=_filled(latency, DEFAULT_LATENCY_NS),
        needs=_needs(kernels, launches, stream, start, end),
    )


def _before(stream: IntArray, end: IntArray) -> IntArray:
    """When the kernel before each on its stream ended; -1 for the first."""
    found = np.full(stream.size, -1, np.int64)
    for lane in np.unique(stream):
        at = np.flatnonzero(stream == lane)
        found[at[1:]] = end[at[:-1]]
    return found


def _filled(seen: IntArray, default: int) -> IntArray:
    known = seen[seen >= 0]
    middle = int(np.median(known)) if known.size else default
    return np.where(seen >= 0, seen, middle)


def _needs(
    kernels: pl.DataFrame, launches: pl.DataFrame, stream: IntArray, start: IntArray, end: IntArray
) -> dict[int, tuple[int, ...]]:
    """Kernels of other streams that must have ended before one starts.

    After a ``…StreamWaitEvent`` call the next kernel launched waits for the last one launched
    before on every other stream; in one launch (a CUDA graph), a kernel that starts on a new branch
    or later than its stream allows waits for what ended last before it. An edge that the trace
    itself breaks is none.
    """
    if stream.size == 0 or stream.max() == 0:
        return {}
    called = kernels["called_ns"].to_numpy()
    waits = launches.filter(pl.col("name").str.contains("StreamWaitEvent", literal=True))
    seen = np.searchsorted(waits["start_ns"].to_numpy(), called, side="right")
    last: dict[int, int] = {}
    edges: dict[int, tuple[int, ...]] = {}
    waited = 0
    together = np.diff(called, prepend=called[:1] - 1) == 0
    for place in range(stream.size):  # only where there are several streams
        lane = int(stream[place])
        others = [
            other for key, other in last.items() if key != lane and end[other] <= start[place]
        ]
        if seen[place] > waited:
            edges[place] = tuple(others)
        elif together[place] and others:
            latest = max(others, key=lambda other: end[other])
            own = end[last[lane]] if lane in last else -1
            if end[latest] > own:
                edges[place] = (latest,)
        waited = int(seen[place])
        last[lane] = place
    return {place: needs for place, needs in edges.items() if needs}
