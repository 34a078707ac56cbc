"""The events that cb-trace appends to a Kineto file, as JSON text.

Two processes of our own. ``cb-trace`` has one row a phase and module depth, one slice a module
call, flows from each call to the kernels it launched itself, and counters. ``cb-trace isolated``
shows the replays of the first step, each at the start of its call.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

CATEGORY = "cb_trace"
CONTEXT_PROCESS = "cb-trace"
ISOLATED_PROCESS = "cb-trace isolated"
ERROR_COUNTER = "signed error (%)"
RUNNING_COUNTER = "kernels running"
_FIRST_PID = 1_000_000_001  # far above what a host gives out


Kernel = tuple[int | None, str, str, int, float]  # kernel_id, pid, tid, start_ns, share
Windows = Sequence[tuple[int, int]]  # stretches of time to keep, ns; empty: everything


def touches(windows: Windows, start_ns: int, dur_ns: int) -> bool:
    """Whether a slice lies in part inside one of the windows."""
    return not windows or any(start_ns <= end and start_ns + dur_ns >= at for at, end in windows)


def steps_within(
    steps: Sequence[tuple[int, float]], windows: Windows
) -> Iterator[tuple[int, float]]:
    """The steps of a counter in the windows; each begins with the value that stood before it."""
    if not windows:
        yield from steps
        return
    times = [at_ns for at_ns, _ in steps]
    done = 0
    for begin, end in sorted(windows):
        first, after = bisect_left(times, begin), bisect_right(times, end)
        if first >= max(done, 1) and times[first : first + 1] != [begin]:
            yield begin, steps[first - 1][1]
        yield from steps[max(first, done) : after]
        done = max(done, after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One slice to show; ``start_ns`` on the trace's own axis."""

    row: str
    name: str
    start_ns: int
    dur_ns: int
    args: dict[str, Any] = field(default_factory=dict)
    key: Hashable = None  # what flows start from
    step: int | None = None
    phase: str | None = None
    is_leaf: bool = False
    kernels: Sequence[Kernel] = ()  # of its own, where no call leads to them


@dataclass(frozen=True, slots=True)
class Placed:
    """A slice on the row where it overlaps nothing."""

    slice: Slice
    tid: int
    row: str


def microseconds(ns: int) -> str:
    """A time as Perfetto reads it exactly: decimal microseconds made from integers."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def unused_pids(taken: Iterable[str], count: int) -> list[int]:
    """Process numbers that no row of the trace uses."""
    used, pids, candidate = set(taken), list[int](), _FIRST_PID
    while len(pids) < count:
        if str(candidate) not in used:
            pids.append(candidate)
        candidate += 1
    return pids


def place(slices: Sequence[Slice]) -> list[Placed]:
    """Give every slice a row; one that overlaps goes to a further row of the same name.

    Times are never altered. Slices of a row must come by start.
    """
    lanes: dict[str, list[tuple[int, int]]] = {}  # row name → last slice (start, end) of each lane
    tids: dict[tuple[str, int], int] = {}
    placed = []
    for item in slices:
        ends = lanes.setdefault(item.row, [])
        lane = next((n for n, last in enumerate(ends) if _fits(last, item)), len(ends))
        ends[lane : lane + 1] = [(item.start_ns, item.start_ns + item.dur_ns)]
        tid = tids.setdefault((item.row, lane), len(tids) + 1)
        name = item.row if lane == 0 else f"{item.row} ({lane + 1})"
        placed.append(Placed(item, tid, name))
    return placed


def _fits(last: tuple[int, int], item: Slice) -> bool:
    start, end = last
    # Two empty slices at one instant would share their flows.
    return item.start_ns >= end and item.start_ns > start


def process_events(pid: int, name: str, order: int, placed: Sequence[Placed]) -> Iterator[bytes]:
    """Names and order of a process and its rows, then its slices."""
    yield _metadata(pid, 0, "process_name", {"name": name})
    yield _metadata(pid, 0, "process_sort_index", {"sort_index": order})
    rows = sorted({(item.tid, item.row) for item in placed})
    for tid, row in rows:
        yield _metadata(pid, tid, "thread_name", {"name": row})
        yield _metadata(pid, tid, "thread_sort_index", {"sort_index": tid})
    for item in placed:
        yield slice_event(pid, item)


def slice_event(pid: int, placed: Placed) -> bytes:
    """One complete slice."""
    item = placed.slice
    shown = {key: value for key, value in item.args.items() if _sayable(value)}
    return (
        f'{{"ph": "X", "cat": "{CATEGORY}", "name": {_json(item.name)}, "pid": {pid}, '
        f'"tid": {placed.tid}, "ts": {microseconds(item.start_ns)}, '
        f'"dur": {microseconds(item.dur_ns)}, "args": {_json(shown)}}}'
    ).encode("utf-8", "backslashreplace")  # a lone surrogate becomes its JSON escape


def flow_start(pid: int, placed: Placed, flow: int, name: str) -> bytes:
    """The start of a flow; it binds to the slice of its row that is open then."""
    where = f'"pid": {pid}, "tid": {placed.tid}, "ts": {microseconds(placed.slice.start_ns)}'
    return _flow("s", flow, name, where)


def flow_end(flow: int, name: str, pid: str, tid: str, start_ns: int) -> bytes:
    """An end of a flow, on a kernel's own row as the file names it."""
    where = f'"pid": {_row_id(pid)}, "tid": {_row_id(tid)}, "ts": {microseconds(start_ns)}'
    return _flow("f", flow, name, where + ', "bp": "e"')


def counter_event(pid: int, name: str, at_ns: int, value: float) -> bytes:
    """A step of a counter."""
    return (
        f'{{"ph": "C", "cat": "{CATEGORY}", "name": {_json(name)}, "pid": {pid}, "tid": 0, '
        f'"ts": {microseconds(at_ns)}, "args": {{"value": {value:.3f}}}}}'
    ).encode()


def _sayable(value: object) -> bool:
    """Whether JSON has the value: NaN and infinities have no place in it."""
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _flow(phase: str, flow: int, name: str, where: str) -> bytes:
    return (
        f'{{"ph": "{phase}", "cat": "{CATEGORY}", "name": {_json(name)}, "id": {flow}, {where}}}'
    ).encode()


def _metadata(pid: int, tid: int, name: str, args: dict[str, Any]) -> bytes:
    return (
        f'{{"ph": "M", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": 0, '
        f'"args": {_json(args)}}}'
    ).encode("utf-8", "backslashreplace")


def _json(value: object) -> str:
    """JSON with letters as they are: the UI shows an escape of one as its six characters."""
    return json.dumps(value, ensure_ascii=False)


def _row_id(text: str) -> str:
    """A pid or tid as the store keeps it (text), as a number again where it is one."""
    return text if text.isascii() and text.isdigit() else _json(text)
