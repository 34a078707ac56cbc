"""Modules fused and overlapped, one inside another and side by side: exact answers."""

from __future__ import annotations

from itertools import permutations

import pytest

from cb_trace.analysis.changes import Answer, Change, Kind, changed_step
from cb_trace.analysis.marginal import scaled_steps
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.stats import Interval
from tests.analysis.test_simulate import begun, run, stepped
from tests.frames import frame

# root ─┬─ x
#       ├─ y ─┬─ p
#       │     └─ q
#       └─ z
ROOT, X, Y, P, Q, Z = range(6)
PARENT = {ROOT: None, X: ROOT, Y: ROOT, P: Y, Q: Y, Z: ROOT}
MODULE = frame(
    "module", *({"module_id": id_, "run_id": "r", "parent_id": up} for id_, up in PARENT.items())
)
Wanted = tuple[Kind, int, float]
BARE_NS = 116_000


def answer(*changes: Wanted) -> Answer:
    """Of a graph of 30 + 50 + 20 + 10 µs, 2 µs apart: x, p, q, z."""
    timeline = begun(8_000)
    for number, (owner, dur) in enumerate(((X, 30), (P, 50), (Q, 20), (Z, 10))):
        run(timeline, owner, 2_000 + 1_000 * number, 4_000 + 100_000 * number, dur * 1_000)
    bare = Interval(BARE_NS, BARE_NS, BARE_NS)
    scaled = scaled_steps(stepped(timeline), "graph", bare, Parts())
    return changed_step(scaled, [Change(*change) for change in changes], MODULE)


OVER: dict[int, Wanted] = {module: ("overlap", module, 1.0) for module in (Y, P, Q, Z)}
FUSE: dict[int, Wanted] = {module: ("fuse", module, 1.0) for module in (Y, P, Q)}


@pytest.mark.parametrize(
    ("changes", "then_us"),
    [
        ((OVER[Y],), 50 + 2 + 20 + 2 + 10),  # y beside x
        ((OVER[Q],), 30 + 2 + 50 + 2 + 10),  # q beside p
        ((OVER[Y], OVER[Q]), 50 + 2 + 10),  # x, p and q at once
        ((OVER[Y], OVER[Y]), 50 + 2 + 20 + 2 + 10),
        ((OVER[Y], OVER[Z]), 50 + 2 + 20),  # x, y and z at once
        ((OVER[Y], OVER[Q], OVER[Z]), 50),
        ((OVER[Y], ("remove", P, 1.0)), 30 + 2 + 10),  # x beside q
        ((OVER[Q], ("remove", Y, 1.0)), 30 + 2 + 10),
    ],
)
def test_modules_overlap_inside_one_another_and_side_by_side(
    changes: tuple[Wanted, ...], then_us: int
) -> None:
    for given in permutations(changes):
        found = answer(*given)
        assert (found.then_ns, found.low_ns) == (then_us * 1_000, then_us * 1_000)


@pytest.mark.parametrize(
    ("changes", "then_us", "best_us"),
    [
        ((FUSE[Y],), 30 + 2 + 70 + 2 + 10, 30 + 2 + 50 + 2 + 10),
        ((FUSE[Y], FUSE[P]), 30 + 2 + 70 + 2 + 10, 30 + 2 + 50 + 2 + 10),
        ((FUSE[Y], OVER[Q]), 30 + 2 + 70 + 2 + 10, 30 + 2 + 50 + 2 + 10),  # one kernel is one
        ((FUSE[Y], OVER[Y]), 70 + 2 + 10, 50 + 2 + 10),
        ((FUSE[Y], ("set", Q, 0.5)), 30 + 2 + 60 + 2 + 10, 30 + 2 + 50 + 2 + 10),
        ((FUSE[Y], ("set", P, 0.5)), 30 + 2 + 45 + 2 + 10, 30 + 2 + 25 + 2 + 10),
        ((FUSE[Y], ("remove", P, 1.0)), 30 + 2 + 20 + 2 + 10, 30 + 2 + 20 + 2 + 10),
        ((FUSE[Y], ("remove", Q, 1.0)), 30 + 2 + 50 + 2 + 10, 30 + 2 + 50 + 2 + 10),
        ((FUSE[Y], ("remove", Y, 1.0)), 30 + 2 + 10, 30 + 2 + 10),
    ],
)
def test_a_kernel_made_of_several_is_still_of_all_their_modules(
    changes: tuple[Wanted, ...], then_us: int, best_us: int
) -> None:
    for given in permutations(changes):
        found = answer(*given)
        assert (found.then_ns, found.low_ns) == (then_us * 1_000, best_us * 1_000)


def test_without_kernels_there_is_nothing_to_fuse() -> None:
    """What the host does in a module that launches nothing stays."""
    timeline = begun(100_000).call(X, 10_000, 30_000, parent_call_id=0)
    run(timeline, Z, 60_000, 62_000, 5_000)
    scaled = scaled_steps(stepped(timeline), "eager", Interval(100_000, 100_000, 100_000), Parts())
    assert changed_step(scaled, [Change("fuse", X)], MODULE) == Answer(
        100_000, 100_000, 100_000, 100_000, 0, 0, 0
    )
    assert changed_step(scaled, [Change("remove", X)], MODULE).then_ns == 70_000
