"""Whether modules that share a measurement do the same work in the step, by its trace.

Dedup goes by class, configuration, state and the layout of inputs. What an input holds can matter
as well (ids that repeat, lengths, branches on data), so the kernels that each member launched in
the recorded steps are compared: their names and grids, and how long they took.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cb_trace.range_names import STEP_PREFIX, path_of_range

STEP_RATIO = 0.001  # of the step: what is less changes nobody's figures
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far equal modules of one step may lie apart."""

    ratio: float  # of the smaller
    ns: int


# On an H200 125 equal modules of GPT-2 lay within 6 % and 1.2 µs: by where their data lies.
DEVICE = Tolerance(0.1, 1_000)
# Operators of a CPU are timed by the wall, whatever else the machine does.
HOST = Tolerance(2.0, 200_000)

Place = tuple[str, int]  # a module and the index of its call within the step
KernelName = tuple[str, str]  # name and grid


@dataclass(slots=True)
class Seen:
    """What one call launched in the recorded steps, or several calls of like inputs."""

    ns: list[int] = field(default_factory=list)  # Σ of kernel durations, one entry a call
    kernels: Counter[KernelName] = field(default_factory=Counter)  # over all of them

    def add(self, ns: int, name: KernelName) -> None:
        """Count a kernel in the last call."""
        self.ns[-1] += ns
        self.kernels[name] += 1


def together(parts: Iterable[Seen]) -> Seen:
    """Several calls of a module, to be held against one call or against several."""
    whole = Seen()
    for part in parts:
        whole.ns += part.ns
        whole.kernels += part.kernels
    return whole


def difference(one: Seen, other: Seen, step_ns: int, tolerance: Tolerance = DEVICE) -> str | None:
    """In what way two calls differ in the step, ``one`` named first; None within noise.

    Kernel sums differ where the gap of their medians exceeds the tolerance, a thousandth of the
    step, and how far either wanders from call to call.
    """
    here, there = max(1, len(one.ns)), max(1, len(other.ns))
    names = one.kernels.keys() | other.kernels.keys()
    more = {n: abs(one.kernels[n] * there - other.kernels[n] * here) for n in names}
    most = min(more, key=lambda name: (-more[name], name), default=None)
    if most is not None and more[most]:
        counts = f"{one.kernels[most] / here:g} of {most[0][:60]}"
        return f"in the step it runs {counts}, not {other.kernels[most] / there:g}"
    if not one.ns or not other.ns:
        return None
    a, b = _middle(one.ns), _middle(other.ns)
    wander = max(max(s.ns) - min(s.ns) for s in (one, other))
    if abs(a - b) <= max(tolerance.ratio * min(a, b), tolerance.ns, STEP_RATIO * step_ns, wander):
        return None
    return f"in the step its kernels take {a / 1e3:.1f} µs, not {b / 1e3:.1f}"


def apart(
    members: Sequence[Seen], step_ns: int, tolerance: Tolerance = DEVICE
) -> dict[int, tuple[int, str | None]]:
    """Parts members of a group into likes: for each the first of its likes, by place.

    The first member leads; whoever differs from every leader so far leads next. With every leader
    but the first comes how it differs from that.
    """
    leaders: list[int] = []
    found: dict[int, tuple[int, str | None]] = {}
    for place, member in enumerate(members):
        reasons = {lead: difference(member, members[lead], step_ns, tolerance) for lead in leaders}
        same = next((lead for lead, reason in reasons.items() if reason is None), None)
        if same is None:
            leaders.append(place)
            same = place
        found[place] = (same, reasons.get(leaders[0]) if same != leaders[0] else None)
    return found


def calls_seen(trace: Path, wanted: frozenset[str]) -> tuple[dict[Place, Seen], int]:
    """What each call of the ``wanted`` modules launched, and the median span of a step, ns.

    Launches on the step's own threads count; those of a backward stand in no module's range.
    """
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    steps = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("ph") == "X" and e["name"].startswith(STEP_PREFIX) and _on_host(e)
    )
    ranges = [e for e in events if e.get("cat") == "user_annotation" and _path(e) in wanted]
    found: dict[Place, Seen] = {}
    for begin, end in steps:
        _add_step(found, [e for e in ranges if begin <= e["ts"] < end], _work(events, begin, end))
    spans = [round((end - begin) * 1e3) for begin, end in steps]
    return found, _middle(spans) if spans else 0


@dataclass(frozen=True, slots=True)
class _Work:
    """A kernel where it was launched, or an operator's own time on a CPU."""

    ts: float
    thread: Any
    ns: int
    name: KernelName


def _add_step(found: dict[Place, Seen], ranges: list[Any], work: Iterable[_Work]) -> None:
    threads: dict[Any, list[tuple[float, float, Seen]]] = {}
    counts: Counter[str] = Counter()
    for event in sorted(ranges, key=lambda e: e["ts"]):
        path = _path(event) or ""
        seen = found.setdefault((path, counts[path]), Seen())
        counts[path] += 1
        seen.ns.append(0)
        span = (event["ts"], event["ts"] + event["dur"], seen)
        threads.setdefault(event["tid"], []).append(span)
    for thread, spans in threads.items():
        mine = sorted((w for w in work if w.thread == thread), key=lambda w: w.ts)
        _give(spans, mine)


def _give(spans: list[tuple[float, float, Seen]], work: list[_Work]) -> None:
    """Every piece of work to all spans around it; spans nest and are in order of their begin."""
    open_spans: list[tuple[float, float, Seen]] = []
    upcoming = iter(spans)
    following = next(upcoming, None)
    for piece in work:
        while following is not None and following[0] <= piece.ts:
            open_spans.append(following)
            following = next(upcoming, None)
        open_spans = [span for span in open_spans if piece.ts < span[1]]
        for _, _, seen in open_spans:
            seen.add(piece.ns, piece.name)


def _work(events: list[Any], begin: float, end: float) -> list[_Work]:
    kernels = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in _ON_DEVICE and "correlation" in e.get("args", {})
    }
    if not any(e.get("cat") in _ON_DEVICE for e in events):
        inside = [e for e in events if e.get("cat") == "cpu_op" and begin <= e["ts"] < end]
        return list(_own_times(inside))
    found = []
    for event in events:
        if event.get("cat") in _LAUNCHES and begin <= event["ts"] < end:
            kernel = kernels.get(event.get("args", {}).get("correlation"))
            if kernel is not None:
                grid = str(kernel["args"].get("grid", ""))
                ns, name = round(kernel["dur"] * 1e3), (kernel["name"], grid)
                found.append(_Work(event["ts"], event["tid"], ns, name))
    return found


def _own_times(ops: list[Any]) -> Iterator[_Work]:
    """Operators of a CPU step with the time in none of those they call."""
    stacks: dict[Any, list[Any]] = {}
    inner: Counter[int] = Counter()
    for op in sorted(ops, key=lambda e: (e["ts"], -e["dur"])):
        stack = stacks.setdefault(op["tid"], [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= op["ts"]:
            stack.pop()
        if stack:
            inner[id(stack[-1])] += round(op["dur"] * 1e3)
        stack.append(op)
    for op in ops:
        own = max(0, round(op["dur"] * 1e3) - inner[id(op)])
        yield _Work(op["ts"], op["tid"], own, (op["name"], ""))


def _path(event: Any) -> str | None:
    return path_of_range(event["name"])


def _on_host(event: Any) -> bool:
    return bool(event.get("cat") == "user_annotation")


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]
