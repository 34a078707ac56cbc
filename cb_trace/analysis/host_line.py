"""The host's line of time in one step, cut where its owner changes or something is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.analysis.segments import T1
from cb_trace.analysis.stats import FloatArray, IntArray

LAUNCH, WAIT_DEVICE, WAIT_KERNEL = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """Stretches of host work before each item, and the items: launches and waits."""

    owners: tuple[tuple[int, str], ...]
    ns: IntArray
    item: IntArray  # that the stretch comes before; the number of items for what comes after all
    owner: IntArray  # place in ``owners``; -1 outside every call
    segment: IntArray  # row of the step's segments; -1 in none
    cold_ns: int  # how much longer than usual operators took before the first launch
    kind: IntArray
    kernel: IntArray  # launched, or waited for; -1
    leads: IntArray  # the next kernel launched at or after each item; -1


@dataclass(frozen=True, slots=True)
class _Items:
    at: IntArray
    kind: IntArray
    kernel: IntArray
    blocked: IntArray  # shape (n, 2): stretches in which the host waits, sorted


def host_line(
    *,
    module_call: pl.DataFrame,
    op: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    segments: pl.DataFrame,
    step: Mapping[str, int],
) -> HostLine:
    """Cut the range of a step.

    What an operator does takes as long as it usually does in this recording (``segments`` of the
    step): one that was cold, or met a full launch queue, says nothing about its module. The cold
    start of the step itself is kept apart.

    A synchronising call, and a copy that blocks, is work up to where it has nothing to do but wait,
    a wait, and work again after what it waited for has ended.
    """
    begin, stop = step["start_ns"], step["start_ns"] + step["dur_ns"]
    items = _items(launches, kernels, begin, stop)
    calls = module_call.filter(pl.col("step") == step["step"])
    names = sorted(set(zip(calls["module_id"].to_list(), calls["phase"].to_list(), strict=True)))
    threads = _threads(calls, segments, [op, launches], kernels, step)
    cuts = [np.array([begin, stop]), items.at, items.blocked.ravel()]
    for thread in threads:
        cuts += [thread.edge, thread.active.ravel(), thread.segments.ravel()]
    edge = np.unique(np.clip(np.concatenate(cuts), begin, stop))
    at = edge[:-1]
    owner = _owner_at(threads, at, {name: n for n, name in enumerate(names)})
    segment = _segment_at(threads, at)
    raw = np.where(_covered(items.blocked, at), 0, np.diff(edge))
    ns = np.round(raw * np.append(_usual(segments), 1.0)[segment]).astype(np.int64)
    item = np.searchsorted(items.at, at, side="right")
    first = np.flatnonzero(items.kind == LAUNCH)[:1]
    head = item <= (first[0] if first.size else -1)
    return HostLine(
        owners=tuple(names),
        ns=ns,
        item=item,
        owner=owner,
        segment=segment,
        cold_ns=max(0, int(raw[head].sum() - ns[head].sum())),
        kind=items.kind,
        kernel=items.kernel,
        leads=_leads(items),
    )


def _items(launches: pl.DataFrame, kernels: pl.DataFrame, begin: int, stop: int) -> _Items:
    start = kernels["start_ns"].to_numpy().astype(np.int64)
    end = start + kernels["dur_ns"].to_numpy()
    returned = (kernels["called_ns"] + kernels["call_ns"]).to_numpy().astype(np.int64)
    called = kernels["called_ns"].to_numpy().astype(np.int64)
    copies = (kernels["kind"] == "memcpy").to_numpy() & (returned >= end)
    at = np.where(copies, np.minimum(np.maximum(start, called), returned), returned)
    order = np.arange(start.size)
    blocking = np.flatnonzero(copies)
    syncs = launches.filter(
        pl.col("name").str.contains("Synchronize", literal=True)
        & (pl.col("start_ns") >= begin)
        & (pl.col("start_ns") < stop)
    )
    sync = syncs["start_ns"].to_numpy().astype(np.int64)
    over = sync + syncs["dur_ns"].to_numpy()
    latest = np.append(-1, np.maximum.accumulate(end)) if end.size else np.array([-1])
    drained = latest[np.searchsorted(called, sync)] if end.size else np.full(sync.size, -1)
    drained = np.clip(drained, sync, over)
    moments = np.concatenate([at, end[blocking], drained])
    kind = np.repeat([LAUNCH, WAIT_KERNEL, WAIT_DEVICE], [order.size, blocking.size, sync.size])
    kernel = np.concatenate([order, blocking, np.full(sync.size, -1)])
    place = np.lexsort((kind, moments))
    blocked = np.concatenate([
        np.stack([at[blocking], np.minimum(end, returned)[blocking]], axis=1),
        np.stack([sync, drained], axis=1),
    ])  # fmt: skip
    return _Items(moments[place], kind[place], kernel[place], blocked[np.argsort(blocked[:, 0])])


def _leads(items: _Items) -> IntArray:
    """The kernel that each item launches, or that the next launch after it does."""
    count = items.kind.size
    launch = np.where(items.kind == LAUNCH, np.arange(count), count)
    following = np.minimum.accumulate(launch[::-1])[::-1]
    return np.where(following < count, np.append(items.kernel, -1)[following], -1)


@dataclass(frozen=True, slots=True)
class _Thread:
    """Which call is innermost on a thread after each edge, and when the thread is at work."""

    edge: IntArray
    module: list[int | None]
    phase: list[str | None]
    active: IntArray  # shape (n, 2), apart and sorted; empty for the step's own thread
    segments: IntArray  # shape (n, 2), apart and sorted
    rows: IntArray  # of the step's segments, one each
    own: bool


def _threads(
    calls: pl.DataFrame,
    segments: pl.DataFrame,
    work: Sequence[pl.DataFrame],
    kernels: pl.DataFrame,
    step: Mapping[str, int],
) -> list[_Thread]:
    """The step's own thread first, then the others that launch kernels in it."""
    begin, stop = step["start_ns"], step["start_ns"] + step["dur_ns"]
    inside = (pl.col("start_ns") >= begin) & (pl.col("start_ns") < stop)
    others = set(kernels["caller"].drop_nulls().unique().to_list()) - {step["thread"]}
    nothing = np.empty((0, 2), np.int64)
    found = [_thread(calls, segments, step["thread"], nothing, own=True)]
    for thread in sorted(others):
        busy = pl.concat(
            [
                frame.filter(inside & (pl.col("thread") == thread)).select("start_ns", "dur_ns")
                for frame in work
            ]
        )
        found.append(_thread(calls, segments, thread, _union(busy), own=False))
    return found


def _thread(
    calls: pl.DataFrame, segments: pl.DataFrame, thread: int, active: IntArray, *, own: bool
) -> _Thread:
    """Calls nest: after a start the call is innermost, after an end the one around it.

    One of no length is left out: it would have what comes after it, up to the next edge.
    """
    mine = calls.filter((pl.col("thread") == thread) & (pl.col("dur_ns") > 0)).select(
        "call_id",
        "parent_call_id",
        "module_id",
        "phase",
        "start_ns",
        end_ns=pl.col("start_ns") + pl.col("dur_ns"),
    )
    around = mine.select(parent_call_id="call_id", up="module_id", up_phase="phase")
    mine = mine.join(around, on="parent_call_id", how="left").sort("start_ns", "call_id")
    starts = mine.select(
        at="start_ns", module="module_id", phase="phase", rank=pl.int_range(pl.len())
    )
    ends = mine.select(at="end_ns", module="up", phase="up_phase", rank=-1 - pl.int_range(pl.len()))
    # At one moment calls end, inner first, before others start, outer first.
    events = pl.concat([starts, ends.with_columns(pl.col("rank").cast(pl.Int64))]).sort(
        "at", "rank"
    )
    events = events.unique("at", keep="last", maintain_order=True)
    edge = events["at"].to_numpy().astype(np.int64)
    parts = segments.with_row_index("row").filter(pl.col("thread") == thread).sort("start_ns")
    start = parts["start_ns"].to_numpy().astype(np.int64)
    return _Thread(
        edge=edge,
        module=events["module"].to_list(),
        phase=events["phase"].to_list(),
        active=active,
        segments=np.stack([start, start + parts["ns"].to_numpy()], axis=1),
        rows=parts["row"].to_numpy().astype(np.int64),
        own=own,
    )


def _union(busy: pl.DataFrame) -> IntArray:
    """Stretches in which any of the intervals runs, shape (n, 2)."""
    rows = busy.sort("start_ns")
    start = rows["start_ns"].to_numpy().astype(np.int64)
    end = np.maximum.accumulate(start + rows["dur_ns"].to_numpy()) if start.size else start
    first = np.flatnonzero(start > np.append(-1, end[:-1])) if start.size else start
    last = np.append(first[1:], start.size) - 1 if start.size else start
    return np.stack([start[first], end[last]], axis=1) if start.size else np.empty((0, 2), np.int64)


def _covered(stretches: IntArray, at: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each moment lies in one of the stretches (sorted by start)."""
    if not len(stretches):
        return np.zeros(at.size, np.bool_)
    before = np.searchsorted(stretches[:, 0], at, side="right") - 1
    ends = np.maximum.accumulate(stretches[:, 1])
    return (before >= 0) & (at < ends[np.maximum(before, 0)])


def _owner_at(
    threads: list[_Thread], at: IntArray, names: Mapping[tuple[int, str], int]
) -> IntArray:
    owner = np.full(at.size, -1, np.int64)
    for thread in threads:
        here = np.full(at.size, True) if thread.own else _covered(thread.active, at)
        after = np.searchsorted(thread.edge, at, side="right") - 1
        places = [
            -1 if module is None or phase is None else names[module, phase]
            for module, phase in zip(thread.module, thread.phase, strict=True)
        ]
        found = np.append(np.array(places, np.int64), -1)[after]  # -1, before the first: the last
        owner = np.where(here, found, owner)
    return owner


def _segment_at(threads: list[_Thread], at: IntArray) -> IntArray:
    """The row of the segment that each moment lies in, on the thread whose moment it is."""
    found = np.full(at.size, -1, np.int64)
    for thread in threads:
        here = np.full(at.size, True) if thread.own else _covered(thread.active, at)
        before = np.searchsorted(thread.segments[:, 0], at, side="right") - 1
        rows = np.where(_covered(thread.segments, at), np.append(thread.rows, -1)[before], -1)
        found = np.where(here, rows, found)
    return found


def _usual(segments: pl.DataFrame) -> FloatArray:
    """What each segment is multiplied by: gaps between operators stay as they are."""
    ratio = pl.when(pl.col("kind") != T1).then(pl.col("usual_ns") / pl.col("ns")).otherwise(1.0)
    return segments.select(ratio).to_series().to_numpy().astype(np.float64)
