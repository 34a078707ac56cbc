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

from cb_trace.errors import CbTraceError
from cb_trace.files import located_path, original_trace, readable
from cb_trace.parts import whole
from cb_trace.reporters import perfetto_events as events
from cb_trace.reporters import perfetto_rows as rows
from cb_trace.reporters.modules import find_module
from cb_trace.reporters.perfetto_events import Placed, Slice, Windows, steps_within, touches
from cb_trace.reporters.perfetto_flows import Flows
from cb_trace.reporters.perfetto_links import Target
from cb_trace.reporters.perfetto_rows import Source
from cb_trace.reporters.sql_files import fetch, stream
from cb_trace.reporters.trace_copy import CopyReport, copy_trace

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Annotated:
    """What was written."""

    copy: CopyReport
    slices: int
    links: list[Target]  # one a module asked for, else the root's
    early_kernels: int  # kernels before their call, which get no flow


@dataclass(frozen=True, slots=True)
class Counter:
    """A row of numbers over time: (at ns, value), by time."""

    name: str
    steps: Sequence[tuple[int, float]]


def find_source(connection: Connection, profile: Path, rank: int | None = None) -> Source:
    """The trace to annotate: the full pass as recorded, of a rank, by default the lowest.

    :raises CbTraceError: the profile holds none, or the file is gone or another one.
    """
    found = fetch(connection, "perfetto_source", rank=rank)
    if not found and rank is not None:
        raise CbTraceError(f"{profile} holds no trace of rank {rank}", hint="leave --rank out")
    if not found:
        raise CbTraceError(f"{profile} holds no trace of a full pass", hint="record one")
    row = found[0]
    file = located_path(row["path"], profile)
    with original_trace(file, row["sha256"], profile):
        pass  # another trace would get arrows to the wrong kernels, without any error
    return Source(row["trace_id"], row["run_id"], row["deployment"], file)


def annotate(
    connection: Connection,
    source: Source,
    target: Path,
    *,
    modules: Sequence[str] = (),
    whole: bool = True,
    counters: Sequence[Counter] = (),
) -> Annotated:
    """Write the annotated trace of a profile to ``target``, compressed where its name ends so.

    :param modules: link to these; by default to the root.
    :param whole: keep the whole trace; else only what happens around the modules asked for, of
        each its first call in each phase.
    :param counters: rows of numbers to add to our own.
    :raises CbTraceError: unknown module, or the trace file is gone.
    """
    slices = [*rows.call_slices(connection, source), *rows.device_slices(connection, source)]
    placed = events.place(slices)
    pids = events.unused_pids(_pids(connection, source), 2)
    targets = _targets(connection, source, pids[0], placed, modules)
    windows = [] if whole or not modules else list(_windows(connection, placed, targets))
    copies = events.place(list(rows.overlapping_slices(connection, source)))
    kept = _kept([*placed, *_further(copies, placed)], windows)
    isolated = _kept(events.place(list(rows.replay_slices(connection, source))), windows)
    flows = Flows(connection, source, pids[0], kept, windows)
    every = [
        Counter(one.name, list(steps_within(one.steps, windows)))
        for one in (_running(connection, source), *counters, _errors(placed))
    ]
    with readable(source.file) as file, _written(target) as out:
        ahead = _slices(pids, kept, isolated)
        after = _arrows(pids[0], flows, every)
        report = copy_trace(file, out, after, ahead=ahead, windows=windows)
    return Annotated(report, len(kept), targets, flows.early)


def _kept(placed: Sequence[Placed], windows: Windows) -> list[Placed]:
    return [p for p in placed if touches(windows, p.slice.start_ns, p.slice.dur_ns)]


def _further(copies: Sequence[Placed], placed: Sequence[Placed]) -> list[Placed]:
    """Rows after those there are."""
    last = max((item.tid for item in placed), default=0)
    return [Placed(item.slice, item.tid + last, item.row) for item in copies]


def _targets(
    connection: Connection,
    source: Source,
    pid: int,
    placed: Sequence[Placed],
    modules: Sequence[str],
) -> list[Target]:
    first: dict[str, Placed] = {}
    for item in sorted(placed, key=lambda item: item.slice.step is None):
        first.setdefault(item.slice.args["path"], item)  # in a step where there is such a call
    wanted = [find_module(name, first) for name in modules]
    if not wanted and first:
        wanted = [min(first, key=lambda path: (path.count(".") + bool(path), path))]
    found = stream(connection, "perfetto_streams", trace_id=source.trace_id)
    streams = tuple(row["name"] for row in found)
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


def _windows(
    connection: Connection, placed: Sequence[Placed], targets: Sequence[Target]
) -> Iterator[tuple[int, int]]:
    """Around each module asked for: its first slice in each phase of the step of its link."""
    for target in targets:
        of_it = [p.slice for p in placed if p.slice.args["path"] == target.path]
        linked = next(s for s in of_it if s.start_ns == target.ts_ns)
        first: dict[tuple[str | None, bool], Slice] = {}
        for item in of_it:
            if item.step == linked.step:
                first.setdefault((item.phase, isinstance(item.key, int)), item)
        for item in first.values():
            yield _around(connection, item)


def _around(connection: Connection, item: Slice) -> tuple[int, int]:
    """From a slice's start to the end of its last kernel, and a tenth more on either side."""
    end = item.start_ns + item.dur_ns
    if isinstance(item.key, int):
        last = fetch(connection, "perfetto_window", call_id=item.key)[0]["end_ns"]
        end = max(end, last or end)
    margin = (end - item.start_ns) // 10
    return item.start_ns - margin, end + margin


def _running(connection: Connection, source: Source) -> Counter:
    """How many kernels run at once."""
    found = stream(connection, "perfetto_running", trace_id=source.trace_id)
    return Counter(events.RUNNING_COUNTER, [(row["at_ns"], row["running"]) for row in found])


def _errors(placed: Sequence[Placed]) -> Counter:
    """The signed error of the innermost module that is being called."""
    steps: list[tuple[int, float]] = []
    for item in placed:
        ratio = item.slice.args["error_ratio"]
        if item.slice.is_leaf and ratio is not None:
            end = item.slice.start_ns + item.slice.dur_ns
            steps += [(item.slice.start_ns, 100 * ratio), (end, 0.0)]
    # Where one module ends as another begins, the other's error stands.
    return Counter(events.ERROR_COUNTER, sorted(steps, key=lambda step: (step[0], step[1] != 0)))


def _slices(
    pids: Sequence[int], placed: Sequence[Placed], isolated: Sequence[Placed]
) -> Iterator[bytes]:
    """Our rows. Ahead of the file's own, so that a link to a time finds the module's slice first:
    our recordings hold a range of the same start and end.
    """
    yield from events.process_events(pids[0], events.CONTEXT_PROCESS, -2, placed)
    if isolated:
        yield from events.process_events(pids[1], events.ISOLATED_PROCESS, -1, isolated)


def _arrows(pid: int, flows: Flows, counters: Sequence[Counter]) -> Iterator[bytes]:
    """Flows and counters. A flow ahead of one of its slices in the file is lost, so they end it."""
    yield from flows
    for counter in counters:
        for at_ns, value in counter.steps:
            yield events.counter_event(pid, counter.name, at_ns, value)


def _pids(connection: Connection, source: Source) -> list[str]:
    found = connection.execute(
        "SELECT DISTINCT pid FROM thread WHERE trace_id = ?", [source.trace_id]
    )
    return [pid for (pid,) in found.fetchall()]


@contextmanager
def _written(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is whole."""
    from isal import igzip

    try:
        with whole(target) as part, part.open("wb") as raw:
            if target.suffix != ".gz":
                yield raw
            else:
                # No name and no time in the header: equal profiles give equal files.
                packed: Any = igzip.IGzipFile("", "wb", fileobj=raw, mtime=0)  # type: ignore[no-untyped-call]
                with packed as out:
                    yield out
    except OSError as error:
        raise CbTraceError(
            f"cannot write {target}: {error.strerror or error}", hint="choose another with -o"
        ) from error
