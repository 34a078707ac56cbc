"""``nn.Module:`` slices and their nesting, by Python id and Python parent id (traces.md row 23)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cb_trace.trace.nest import Ints, nest

_ROUNDING_NS = 1000
_DEEPEST = 10_000  # frames; ids that run in a circle end here


@dataclass(frozen=True, slots=True)
class Frames:
    """All Python frames of one process, one row a frame; -1 stands for an absent id."""

    thread: Ints
    python_id: Ints
    parent_id: Ints
    start: Ints
    end: Ints
    module: Ints  # indices of the frames that are module slices


def module_tree(frames: Frames) -> tuple[Ints, Ints, int]:
    """Parents and clamped ends of the module slices.

    A frame without a return runs to the end of the profile, past its caller (row 23), so a slice
    ends where the first of its callers ends. Without ids, slices nest by time.

    :return: per module slice the index of its parent among the module slices or -1, its end, and
        how many ends were moved by more than rounding.
    """
    module = frames.module
    end = frames.end[module].copy()
    if not len(module) or (frames.python_id[module] < 0).all():
        return _by_time(frames), end, 0
    parent, end = _climb(frames, end)
    while True:  # a clamped parent clamps its children
        inherited = np.where(parent >= 0, end[parent], end)
        clamped = np.where(frames.start[module] < inherited, np.minimum(end, inherited), end)
        if (clamped == end).all():
            break
        end = clamped
    return parent, end, int(np.sum(frames.end[module] - end > _ROUNDING_NS))


def _climb(frames: Frames, end: Ints) -> tuple[Ints, Ints]:
    """Walk from every module slice to the nearest one around it, all slices abreast."""
    by_id = np.argsort(frames.python_id, kind="stable")
    ids = frames.python_id[by_id]
    rank = np.full(len(frames.python_id), -1, np.int64)
    rank[frames.module] = np.arange(len(frames.module))
    parent = np.full(len(frames.module), -1, np.int64)
    start = frames.start[frames.module]
    walking = np.arange(len(frames.module))
    frame = frames.module.copy()
    for _ in range(_DEEPEST):
        wanted = frames.parent_id[frame]
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        found = (wanted >= 0) & (ids[at] == wanted)
        walking, frame = walking[found], by_id[at[found]]
        if not len(walking):
            break
        holds = (frames.start[frame] <= start[walking]) & (start[walking] < frames.end[frame])
        within = walking[holds]
        end[within] = np.minimum(end[within], frames.end[frame[holds]])
        arrived = rank[frame] >= 0
        parent[walking[arrived]] = rank[frame[arrived]]
        walking, frame = walking[~arrived], frame[~arrived]
    # a caller's id is the lower one in every real file; this also breaks circles
    own, theirs = frames.python_id[frames.module], frames.python_id[frames.module[parent]]
    parent[theirs >= own] = -1
    return parent, end


def _by_time(frames: Frames) -> Ints:
    module = frames.module
    start = frames.start[module]
    nested = nest(frames.thread[module], start, frames.end[module] - start)
    parent = np.full(len(module), -1, np.int64)
    held = nested.parent >= 0
    parent[nested.order[held]] = nested.order[nested.parent[held]]
    return parent
