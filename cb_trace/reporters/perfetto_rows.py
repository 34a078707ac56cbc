"""The slices that cb-trace shows in a trace, read from a profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.reporters.perfetto_events import Slice
from cb_trace.reporters.sql_files import stream

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Connection

FIGURES = (
    "cost_us", "isolated_us", "error_us", "error_ratio", "launch_us", "cache_us",
    "kernel_choice_us", "fusion_us", "overlap_us", "contention_us", "idle_us", "residual_us",
    "marginal_us", "knockout_us", "verdict",
)  # fmt: skip
_MOST_OWNERS = 8  # of a kernel, that each get a slice for it


@dataclass(frozen=True, slots=True)
class Source:
    """The trace that is annotated."""

    trace_id: int
    run_id: str
    deployment: str
    file: Path


def call_slices(connection: Connection, source: Source) -> Iterator[Slice]:
    """Module calls on the host, parents before children."""
    given = {"trace_id": source.trace_id, "run_id": source.run_id}
    for row in stream(connection, "perfetto_calls", **given, deployment=source.deployment):
        yield Slice(
            row=f"{row['phase']}, depth {row['depth']}",
            name=label(row),
            start_ns=row["start_ns"],
            dur_ns=row["dur_ns"],
            key=row["call_id"],
            step=row["step"],
            phase=row["phase"],
            is_leaf=row["is_leaf"],
            args={"call": row["call_index"], **_figures(row, source)},
        )


def device_slices(connection: Connection, source: Source) -> Iterator[Slice]:
    """Where modules run on the device, for work that no call in this trace launched."""
    given = {"trace_id": source.trace_id, "run_id": source.run_id}
    rows = stream(
        connection, "perfetto_device", **given, deployment=source.deployment, most=_MOST_OWNERS
    )
    for number, row in enumerate(rows):
        kernels = [
            (k["kernel_id"], row["pid"], row["tid"], k["start_ns"], float(k["share"]))
            for k in row["own_kernels"] or ()
        ]
        yield Slice(
            row=f"{row['phase']} on the device, depth {row['depth']}",
            name=label(row),
            start_ns=row["start_ns"],
            dur_ns=row["dur_ns"],
            key=("device", number),
            step=row["step"],
            phase=row["phase"],
            kernels=kernels,
            args=_figures(row, source),
        )


def _figures(row: dict[str, Any], source: Source) -> dict[str, Any]:
    return {
        "path": row["path"],
        "class": row["class"],
        "step": row["step"],
        **{key: row[key] for key in FIGURES},
        # Text for a person to copy; cb-trace itself never runs it.
        "sql": f"FROM compare WHERE path = {_quoted(row['path'])} "
        f"AND phase = {_quoted(row['phase'])} AND deployment = {_quoted(source.deployment)}",
    }


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def overlapping_slices(connection: Connection, source: Source) -> Iterator[Slice]:
    """Copies of kernels that start before the one before them on their stream has ended.

    Some versions of the UI drop such slices of the file's own row; the copies are on a further one.
    """
    for row in stream(connection, "perfetto_overlapping", trace_id=source.trace_id):
        yield Slice(
            row=f"{row['stream']} overlapping",
            name=row["name"],
            start_ns=row["start_ns"],
            dur_ns=row["dur_ns"],
            key=("copy", row["kernel_id"]),
            args={"kernel_id": row["kernel_id"]},
        )


def replay_slices(connection: Connection, source: Source) -> Iterator[Slice]:
    """Each replay at the start of its call; its kernels on the row below."""
    kernels: dict[int, list[dict[str, Any]]] = {}
    for row in stream(connection, "perfetto_replay_kernels", run_id=source.run_id):
        kernels.setdefault(row["replay_id"], []).append(row)
    given = {"trace_id": source.trace_id, "run_id": source.run_id}
    for row in stream(connection, "perfetto_replays", **given):
        start, depth = row["call_start_ns"], row["depth"]
        figures = ("path", "class", "replay_id", "median_ns", "low_ns", "high_ns", "samples")
        yield Slice(
            row=f"isolated, depth {depth}",
            name=label(row),
            start_ns=start,
            dur_ns=row["median_ns"],
            args={key: row[key] for key in figures},
        )
        for kernel in kernels.get(row["replay_id"], ()):
            yield Slice(
                row=f"isolated kernels, depth {depth}",
                name=kernel["name"],
                start_ns=start + kernel["offset_ns"],
                dur_ns=kernel["dur_ns"],
                args={"path": row["path"], "replay_id": row["replay_id"]},
            )


def label(row: dict[str, Any]) -> str:
    """A module's path; the class of the root."""
    return row["path"] or row["class"] or "(root)"
