"""Nesting by an explicit stack: slow, plain, and the rule that the fast one is held to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def clipped(intervals: Sequence[Row]) -> tuple[list[int | None], list[int]]:
    """Parent (position in ``intervals``) and clipped end of every interval, track by track.

    An interval of no length has a parent and is nobody's.
    """
    parents: list[int | None] = [None] * len(intervals)
    ends = [row["start_ns"] + row["dur_ns"] for row in intervals]
    for track in _tracks(intervals).values():
        stack: list[int] = []
        for at in track:
            while stack and ends[stack[-1]] <= intervals[at]["start_ns"]:
                stack.pop()
            if stack and intervals[at]["dur_ns"] > 0:
                ends[at] = min(ends[at], ends[stack[-1]])
            parents[at] = stack[-1] if stack else None
            if intervals[at]["dur_ns"] > 0:
                stack.append(at)
    return parents, ends


def innermost(points: Sequence[Row], intervals: Sequence[Row]) -> list[int | None]:
    """Position of the innermost interval around each point's start, on its thread."""
    _, ends = clipped(intervals)
    tracks = _tracks(intervals)
    waiting = {thread: list(reversed(track)) for thread, track in tracks.items()}
    stacks: dict[Any, list[int]] = defaultdict(list)
    found: list[int | None] = [None] * len(points)
    for number in sorted(range(len(points)), key=lambda n: points[n]["start_ns"]):
        thread, at = points[number]["thread"], points[number]["start_ns"]
        stack, to_come = stacks[thread], waiting.get(thread, [])
        while to_come and intervals[to_come[-1]]["start_ns"] <= at:
            if intervals[to_come[-1]]["dur_ns"] > 0:
                stack.append(to_come[-1])
            to_come.pop()
        inside = [i for i in stack if ends[i] > at]
        stack[:] = inside
        found[number] = inside[-1] if inside else None
    return found


def _tracks(intervals: Sequence[Row]) -> dict[Any, list[int]]:
    """Positions by thread, in the order of the rule: by start, the longer first."""
    tracks: dict[Any, list[int]] = defaultdict(list)
    for at, row in enumerate(intervals):
        tracks[row["thread"]].append(at)
    for track in tracks.values():
        track.sort(key=lambda i: (intervals[i]["start_ns"], -intervals[i]["dur_ns"], i))
    return tracks
