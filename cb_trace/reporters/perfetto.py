"""Write a profile's trace with the figures of its modules beside the kernels, for Perfetto.

Kineto's own events stay as they are; see ``trace_copy`` for how, ``perfetto_events`` for what is
added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cb_trace.bundle import file_sha256, located_path, readable
from cb_trace.errors import CbTraceError
from cb_trace.reporters import perfetto_events as events
from cb_trace.reporters.modules import find_module
from cb_trace.reporters.perfetto_events import Placed, Slice
from cb_trace.reporters.perfetto_links import Target
from cb_trace.reporters.sql_files import fetch, stream
from cb_trace.reporters.trace_copy import CopyReport, copy_trace

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Source:
    """The trace that is annotated."""

    trace_id: int
    run_id: str
    deployment: str
    file: Path
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Annotated:
    """What was written."""

    copy: CopyReport
    calls: int
    links: list[Target]  # one a module asked for, else the root's
    early_kernels: int  # kernels before their call, which get no flow


def annotate(
    connection: Connection, profile: Path, target: Path, *, modules: Sequence[str] = ()
) -> Annotated:
    """Write the annotated trace of a profile to ``target``, compressed where its name ends so.

    :raises CbTraceError: unknown module, or the trace file is gone or another one.
    """
    source = _source(connection, profile)
    placed = events.place(list(_call_slices(connection, source)))
    isolated = events.place(list(_replay_slices(connection, source)))
    pids = events.unused_pids(_pids(connection, source), 2)
    targets = _targets(connection, source, pids[0], placed, modules)
    flows = _Flows(connection, source, pids[0], placed)
    with readable(source.file) as file:
        _check_unchanged(source, file)
        with _written(target) as out:
            report = copy_trace(file, out, _appended(pids, placed, isolated, flows))
    return Annotated(report, len(placed), targets, flows.early)


def _source(connection: Connection, profile: Path) -> Source:
    found = fetch(connection, "perfetto_source")
    if not found:
        raise CbTraceError(f"{profile} holds no trace of a full pass", hint="record one")
    row = found[0]
    file = located_path(row["path"], profile)
    try:
        with readable(file):
            pass
    except CbTraceError as error:
        raise CbTraceError(
            f"the trace of {profile} is gone: it was expected at {file}",
            hint="put it back there, or ingest it again",
        ) from error
    return Source(row["trace_id"], row["run_id"], row["deployment"], file, row["sha256"])


def _check_unchanged(source: Source, file: Path) -> None:
    # Another trace under this name would get arrows to the wrong kernels, without any error.
    if source.sha256 is not None and file_sha256(file) != source.sha256:
        raise CbTraceError(
            f"{source.file} is not the trace this profile was made from",
            hint="put the original back, or ingest this one",
        )


def _call_slices(connection: Connection, source: Source) -> Iterator[Slice]:
    found = stream(
        connection,
        "perfetto_calls",
        trace_id=source.trace_id,
        run_id=source.run_id,
        deployment=source.deployment,
    )
    for row in found:
        yield Slice(
            row=f"{row['phase']}, depth {row['depth']}",
            name=_label(row),
            start_ns=row["start_ns"],
            dur_ns=row["dur_ns"],
            key=row["call_id"],
            args=_call_args(row, source.deployment),
        )


def _call_args(row: dict[str, Any], deployment: str) -> dict[str, Any]:
    return {
        "path": row["path"],
        "class": row["class"],
        "call": row["call_index"],
        "step": row["step"],
        **{key: row[key] for key in FIGURES},
        "is_leaf": row["is_leaf"],
        # Text for a person to copy; cb-trace itself never runs it.
        "sql": f"FROM compare WHERE path = {_quoted(row['path'])} "
        f"AND phase = {_quoted(row['phase'])} AND deployment = {_quoted(deployment)}",
    }


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


FIGURES = ("cost_us", "isolated_us", "error_us", "error_ratio", "verdict")


def _replay_slices(connection: Connection, source: Source) -> Iterator[Slice]:
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
            name=_label(row),
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


def _label(row: dict[str, Any]) -> str:
    return row["path"] or row["class"] or "(root)"


def _targets(
    connection: Connection,
    source: Source,
    pid: int,
    placed: Sequence[Placed],
    modules: Sequence[str],
) -> list[Target]:
    first: dict[str, Placed] = {}
    for item in sorted(placed, key=lambda item: item.slice.args["step"] is None):
        first.setdefault(item.slice.args["path"], item)  # in a step where there is such a call
    wanted = [find_module(name, first) for name in modules]
    if not wanted and first:
        wanted = [min(first, key=lambda path: (path.count(".") + bool(path), path))]
    rows = stream(connection, "perfetto_streams", trace_id=source.trace_id)
    streams = tuple(row["name"] for row in rows)
    return [_target(path, pid, first[path], streams) for path in wanted]


def _target(path: str, pid: int, item: Placed, streams: tuple[str, ...]) -> Target:
    return Target(
        path=path,
        ts_ns=item.slice.start_ns,
        dur_ns=item.slice.dur_ns,
        pid=pid,
        tid=item.tid,
        row=item.row,
        streams=streams,
    )


class _Flows:
    """Arrows from each call to its kernels, made while they are read."""

    def __init__(
        self, connection: Connection, source: Source, pid: int, placed: Sequence[Placed]
    ) -> None:
        self._connection = connection
        self._source = source
        self._pid = pid
        self._calls = {item.slice.key: item for item in placed}
        self.early = 0

    def __iter__(self) -> Iterator[bytes]:
        started = None
        rows = stream(self._connection, "perfetto_kernels", trace_id=self._source.trace_id)
        for row in rows:
            call = self._calls.get(row["call_id"])
            if call is None:
                continue
            if row["start_ns"] < call.slice.start_ns:
                self.early += 1
                continue
            if started != row["call_id"]:
                started = row["call_id"]
                yield events.flow_start(self._pid, call)
            yield events.flow_end(row["call_id"], row["pid"], row["tid"], row["start_ns"])


def _appended(
    pids: Sequence[int], placed: Sequence[Placed], isolated: Sequence[Placed], flows: _Flows
) -> Iterator[bytes]:
    # A flow ahead of its slice in the file is lost, so the slices come first.
    yield from events.process_events(pids[0], events.CONTEXT_PROCESS, -2, placed)
    if isolated:
        yield from events.process_events(pids[1], events.ISOLATED_PROCESS, -1, isolated)
    yield from flows
    for item in placed:
        ratio = item.slice.args["error_ratio"]
        if item.slice.args["is_leaf"] and ratio is not None:
            end = item.slice.start_ns + item.slice.dur_ns
            yield events.counter_event(pids[0], item.slice.start_ns, 100 * ratio)
            yield events.counter_event(pids[0], end, 0.0)


def _pids(connection: Connection, source: Source) -> list[str]:
    found = connection.execute(
        "SELECT DISTINCT pid FROM thread WHERE trace_id = ?", [source.trace_id]
    )
    return [pid for (pid,) in found.fetchall()]


@contextmanager
def _written(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is whole."""
    from isal import igzip

    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as raw:
            if target.suffix != ".gz":
                yield raw
            else:
                # No name and no time in the header: equal profiles give equal files.
                packed: Any = igzip.IGzipFile("", "wb", fileobj=raw, mtime=0)  # type: ignore[no-untyped-call]
                with packed as out:
                    yield out
        part.replace(target)
    except OSError as error:
        raise CbTraceError(
            f"cannot write {target}: {error.strerror or error}", hint="choose another with -o"
        ) from error
    finally:
        part.unlink(missing_ok=True)
