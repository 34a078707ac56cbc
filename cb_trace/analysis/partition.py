"""The step partition: every instant of the bare step has one owner (DESIGN, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from cb_trace.analysis.idle import COPY, GAP, HOST, SYNC, idle_kinds, sync_calls
from cb_trace.analysis.scaling import BUSY, UNATTRIBUTED, StepParts, part_rows, scaled
from cb_trace.analysis.shares import WHOLE, kernel_shares, split_by_share
from cb_trace.analysis.stats import BareStep, IntArray
from cb_trace.analysis.timeline import Pieces, Windows, owned, shared_equally, step_windows
from cb_trace.columns import polars_schema

if TYPE_CHECKING:
    from cb_trace.bundle import Deployment

Overlap = Literal["first", "equal"]

_FORWARD = "forward"  # of idle beside work of no phase
_PART: dict[str, pl.DataType] = {
    "module_id": pl.Int32(),
    "phase": pl.String(),
    "kind": pl.String(),
    "window": pl.Int64(),
    "ns": pl.Int64(),
}


def step_partition(  # noqa: PLR0917 - one frame a table, in the order they are made
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module_call: pl.DataFrame,
    step: pl.DataFrame,
    launch: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
    bare: Mapping[Deployment, BareStep],
    device_type: str | None,
    overlap: Overlap = "first",
) -> pl.DataFrame:
    """Split the bare step over modules, exclusive of children: a ``partition`` frame.

    The frames are those of ONE trace of role context or foreign (``module``: of the run). ``bare``
    holds the median bare step of each deployment; empty: one deployment ``eager``, unscaled. The
    ``ns`` of one deployment sum to its bare median exactly (unscaled: to the mean window).

    All devices of the trace are one timeline. Busy instants belong to the running kernel that
    started first (ties: lower kernel_id), or with ``overlap="equal"`` to all running ones in equal
    parts; a fused kernel's are split by share. Idle belongs to the module of the next kernel, of a
    kind as in :mod:`cb_trace.analysis.idle`; before the first kernel (host) and after the last
    (sync where a synchronising call was waiting, else host) to the root. Kernels of no module:
    kind ``unattributed``, module NULL; idle before them keeps its idle kind and NULL. A module
    that was called has at least a ``busy`` row, of 0. Bounds: see :func:`scaling.scaled`.
    """
    frames = (kernel, kernel_module, module_call, step, launch, module)
    parts = step_parts(*frames, device_type=device_type, overlap=overlap)
    return scaled_partition(parts, run_id=run_id, bare=bare)


def step_parts(  # noqa: PLR0917 - as step_partition
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module_call: pl.DataFrame,
    step: pl.DataFrame,
    launch: pl.DataFrame,
    module: pl.DataFrame,
    *,
    device_type: str | None,
    overlap: Overlap = "first",
) -> StepParts:
    """What :func:`step_partition` scales: the parts of each profiled step."""
    windows = step_windows(step, kernel, launch, module_call)
    cpu = device_type == "cpu"
    root = _root(module)
    shares = kernel_shares(kernel_module)
    phases = shares.select("kernel_id", "phase").unique("kernel_id", keep="first")
    events = (
        kernel.select("kernel_id", "kind", "launch_id", "start_ns", "dur_ns")
        .filter(pl.col("dur_ns") > 0)
        .join(phases, on="kernel_id", how="left")
        .sort("start_ns", "kernel_id")
    )
    start = events["start_ns"].to_numpy()
    end = start + events["dur_ns"].to_numpy()
    pieces = owned(start, end, windows)
    busy = _busy(events, *_divided(start, end, pieces, windows, overlap))
    idle = _idle_between(events, pieces, launch, cpu=cpu).drop("start_ns")
    parts = [
        _share_out(pl.concat([busy, idle]), shares),
        _idle_at_edges(events, pieces, windows, launch, root=root, cpu=cpu),
        _called(module_call if step.is_empty() else module_call.drop_nulls("step")),
    ]
    return StepParts(part_rows(pl.concat(parts), windows.count), windows.total_ns, root, cpu)


def scaled_partition(
    parts: StepParts, *, run_id: str, bare: Mapping[Deployment, BareStep]
) -> pl.DataFrame:
    """The ``partition`` frame of :func:`step_partition`.

    The kernels of a CUDA graph are launched all at once: whatever the recorded step waited for,
    between them the graph waits for the device.
    """
    targets: Mapping[Deployment, BareStep | None] = bare or {"eager": None}
    found = {name: scaled(parts, target) for name, target in targets.items()}
    frames = [
        (_all_gaps(frame) if name == "graph" else frame).with_columns(
            deployment=pl.lit(name), run_id=pl.lit(run_id)
        )
        for name, frame in found.items()
    ]
    schema = polars_schema("partition")
    return pl.concat(frames).select(pl.col(name).cast(kind) for name, kind in schema.items())


def _all_gaps(frame: pl.DataFrame) -> pl.DataFrame:
    kind = pl.when(pl.col("kind").is_in([HOST, SYNC, COPY])).then(pl.lit(GAP)).otherwise("kind")
    keys = [column for column in frame.columns if not column.endswith("ns")]
    return (
        frame.with_columns(kind=kind)
        .group_by(keys, maintain_order=True)
        .agg(pl.col("ns", "low_ns", "high_ns").sum())
        .select(frame.columns)
    )


def idle_stretches(
    kernel: pl.DataFrame,
    launch: pl.DataFrame,
    step: pl.DataFrame,
    module_call: pl.DataFrame,
    *,
    device_type: str | None,
) -> pl.DataFrame:
    """When the device was idle inside the profiled steps, and of what kind, as it was recorded.

    Frames of one trace, as for :func:`step_partition`; ``start_ns, end_ns, kind`` by time.
    """
    windows = step_windows(step, kernel, launch, module_call)
    cpu = device_type == "cpu"
    events = kernel.filter(pl.col("dur_ns") > 0).sort("start_ns", "kernel_id")
    start = events["start_ns"].to_numpy()
    pieces = owned(start, start + events["dur_ns"].to_numpy(), windows)
    between = _idle_between(events, pieces, launch, cpu=cpu)
    begin, stop, _ = _edges(pieces, windows)
    waited = _waiting(launch, stop, windows.end) & (not cpu)
    edges = pl.DataFrame(
        {
            "start_ns": np.concatenate([windows.start, stop]),
            "ns": np.concatenate([begin - windows.start, windows.end - stop]),
            "kind": [HOST] * begin.size + [SYNC if waits else HOST for waits in waited],
        },
        schema_overrides={"kind": pl.String()},
    )
    found = pl.concat([between.select(edges.columns), edges]).filter(pl.col("ns") > 0)
    return found.sort("start_ns").select(
        "start_ns", (pl.col("start_ns") + pl.col("ns")).alias("end_ns"), "kind"
    )


def _root(module: pl.DataFrame) -> int | None:
    """The one module without a parent; a foreign trace may show none, or several."""
    roots = module.filter(pl.col("parent_id").is_null())["module_id"].to_list()
    return roots[0] if len(roots) == 1 else None


def _divided(
    start: IntArray, end: IntArray, pieces: Pieces, windows: Windows, overlap: Overlap
) -> tuple[Pieces, IntArray]:
    if overlap == "equal":
        return shared_equally(start, end, windows)
    return pieces, pieces.end - pieces.start


def _busy(events: pl.DataFrame, pieces: Pieces, ns: IntArray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "kernel_id": events["kernel_id"].gather(pieces.row),
            "window": pieces.window,
            "ns": ns,
            "kind": pl.Series([None] * ns.size, dtype=pl.String),
        }
    )


def _idle_between(
    events: pl.DataFrame, pieces: Pieces, launch: pl.DataFrame, *, cpu: bool
) -> pl.DataFrame:
    """Idle between two busy stretches of one window, by the kernel that ends it."""
    gap = pieces.start[1:] - pieces.end[:-1]
    at = np.flatnonzero((gap > 0) & (pieces.window[1:] == pieces.window[:-1]))
    following = events[pieces.row[at + 1]]
    return pl.DataFrame(
        {
            "kernel_id": following["kernel_id"],
            "window": pieces.window[at + 1],
            "start_ns": pieces.end[at],
            "ns": gap[at],
            "kind": idle_kinds(following, pieces.end[at], launch, cpu=cpu),
        }
    )


def _share_out(entries: pl.DataFrame, shares: pl.DataFrame) -> pl.DataFrame:
    """Time of kernels to their modules; a fused kernel's in whole nanoseconds by share."""
    found = (
        pl.when(pl.col("module_id").is_null()).then(pl.lit(UNATTRIBUTED)).otherwise(pl.lit(BUSY))
    )
    return (
        entries.join(shares.drop("ns"), on="kernel_id", how="left")
        .with_columns(pl.col("weight", "upto").fill_null(WHOLE))
        .with_columns(ns=split_by_share("ns"), kind=pl.coalesce("kind", found))
        .select(pl.col(name).cast(kind) for name, kind in _PART.items())
    )


def _idle_at_edges(
    events: pl.DataFrame,
    pieces: Pieces,
    windows: Windows,
    launch: pl.DataFrame,
    *,
    root: int | None,
    cpu: bool,
) -> pl.DataFrame:
    """The root's idle of each window: before its first busy stretch, and after its last."""
    begin, stop, (some, first, last) = _edges(pieces, windows)
    number = np.arange(windows.start.size)
    phase = events["phase"].fill_null(_FORWARD)
    phases = [
        pl.Series(np.where(some, phase.gather(pieces.row[edge * some]).to_numpy(), _FORWARD))
        if pieces.row.size
        else pl.Series([_FORWARD] * number.size)
        for edge in (first, last)
    ]
    waited = _waiting(launch, stop, windows.end) & (not cpu)
    return pl.DataFrame(
        {
            "module_id": pl.Series([root] * 2 * number.size, dtype=pl.Int32),
            "phase": pl.concat(phases).cast(pl.String),
            "kind": [HOST] * number.size + [SYNC if waits else HOST for waits in waited],
            "window": np.tile(number, 2),
            "ns": np.concatenate([begin - windows.start, windows.end - stop]),
        },
        schema=_PART,
    )


def _edges(
    pieces: Pieces, windows: Windows
) -> tuple[IntArray, IntArray, tuple[npt.NDArray[np.bool_], IntArray, IntArray]]:
    """When each window's first busy stretch begins and its last ends; which those are, if any."""
    number = np.arange(windows.start.size)
    first = np.searchsorted(pieces.window, number, side="left")
    last = np.searchsorted(pieces.window, number, side="right") - 1
    some = last >= first
    begin, stop = windows.end.copy(), windows.end.copy()  # nothing ran: all of it comes before
    begin[some], stop[some] = pieces.start[first[some]], pieces.end[last[some]]
    return begin, stop, (some, first, last)


def _waiting(launch: pl.DataFrame, start: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Whether a synchronising call on any thread was waiting at some time between."""
    calls = sync_calls(launch)
    returned = np.maximum.accumulate(calls["returned_ns"].to_numpy())
    before = np.searchsorted(calls["start_ns"].to_numpy(), end) - 1
    waiting = before >= 0
    waiting[waiting] = returned[before[waiting]] > start[waiting]
    return waiting


def _called(module_call: pl.DataFrame) -> pl.DataFrame:
    """No time for every module that was called, so that its cost is 0 and not unknown."""
    return (
        module_call.select("module_id", "phase")
        .unique()
        .select(
            "module_id",
            "phase",
            kind=pl.lit(BUSY),
            window=pl.lit(0, pl.Int64),
            ns=pl.lit(0, pl.Int64),
        )
    )
