"""What-if on timelines made by hand: exact answers of the simulator."""

from __future__ import annotations

import pytest

from cb_trace.analysis.changes import Answer, Change, Kind, changed_step
from cb_trace.analysis.marginal import scaled_steps
from cb_trace.analysis.parts import Parts
from cb_trace.analysis.stats import Interval
from cb_trace.analysis.to_bare import StepWindow
from cb_trace.bundle import Deployment
from tests.analysis.test_simulate import begun, device_chain, host_chain, run, stepped
from tests.analysis.timelines import MODULE, ROOT, A, B, C, Timeline

# 3 µs beyond those of an empty one.
WINDOWED = Parts(window=StepWindow(host_ns=0, closing_ns=8_000, window_ns=0, empty_ns=5_000))


def answer(
    timeline: Timeline,
    bare_ns: int,
    *changes: tuple[Kind, int, float],
    graph: bool = False,
    parts: Parts | None = None,
) -> Answer:
    deployment: Deployment = "graph" if graph else "eager"
    bare = Interval(bare_ns, bare_ns, bare_ns)
    scaled = scaled_steps(stepped(timeline), deployment, bare, parts or Parts())
    return changed_step(scaled, [Change(*change) for change in changes], MODULE)


def test_half_of_a_module_is_half_of_its_host_work_in_a_host_bound_step() -> None:
    assert answer(host_chain(), 50_000, ("set", A, 0.5)) == Answer(
        50_000, 42_500, 42_500, 42_500, 7_500, 7_500, 7_500
    )
    assert answer(host_chain(), 50_000, ("set", C, 3.0)).then_ns == 60_000


def test_removing_all_leaves_nothing() -> None:
    for parts in (None, WINDOWED):
        assert answer(host_chain(), 50_000, ("remove", ROOT, 1.0), parts=parts).then_ns == 0


def test_half_of_a_module_is_half_of_its_kernels_in_a_graph() -> None:
    # 50 + 2 + 30 + 2 + 10 becomes 25 + 2 + 30 + 2 + 10.
    assert answer(device_chain(), 94_000, ("set", A, 0.5), graph=True).then_ns == 69_000


def test_changes_of_a_module_and_of_one_inside_it_multiply() -> None:
    # a has 20 of its own and c 10, of 50 % each; c's again 50 %.
    changes = (("set", A, 0.5), ("set", C, 0.5))
    assert answer(host_chain(), 100_000, *changes).then_ns == 100_000 - 10_000 - 7_500  # type: ignore[arg-type]


def test_fusing_saves_gaps_for_sure_and_kernel_time_at_best() -> None:
    # b's two kernels of 30 and 10 become one of 40, or of 30 at best; a gap of 2 goes.
    found = answer(device_chain(), 94_000, ("fuse", B, 1.0), graph=True)
    assert found == Answer(94_000, 92_000, 82_000, 92_000, 2_000, 2_000, 12_000)


def test_fusing_saves_launches_in_a_host_bound_step() -> None:
    timeline = begun(100_000).call(A, 10_000, 40_000, parent_call_id=0)
    run(timeline, A, 20_000, 22_000, 1_000)
    run(timeline, A, 40_000, 42_000, 1_000)
    # Two launches in 40 µs become one in 20.
    assert answer(timeline, 100_000, ("fuse", A, 1.0)).then_ns == 80_000
    # As there is a window to close, the host takes 97 and 77.6 of that, and 3 to close it.
    assert answer(timeline, 100_000, ("fuse", A, 1.0), parts=WINDOWED).then_ns == 80_600


def test_one_kernel_is_fused_already() -> None:
    assert answer(device_chain(), 94_000, ("fuse", A, 1.0), graph=True).then_ns == 94_000


def chain() -> Timeline:
    """a, b, then the root's own last kernel, which needs both."""
    timeline = begun(8_000)
    run(timeline, A, 2_000, 4_000, 50_000)
    run(timeline, B, 4_000, 55_000, 30_000)
    return run(timeline, ROOT, 6_000, 86_000, 10_000)


def test_overlap_hides_the_shorter_of_two_neighbours_at_best() -> None:
    # 50 + 2 + 30 + 2 + 10; b beside a: 50 + 2 + 10.
    found = answer(chain(), 94_000, ("overlap", B, 1.0), graph=True)
    assert found == Answer(94_000, 62_000, 62_000, 94_000, 32_000, 0, 32_000)


def test_an_overlapped_step_ends_with_its_window_too() -> None:
    # The device is through after 4 + 50 + 1 + 30 + 1 + 10, with all of b beside a 4 + 50; less 5.
    found = answer(device_chain(), 91_000, ("overlap", B, 1.0), parts=WINDOWED)
    assert (found.now_ns, found.low_ns, found.high_ns) == (91_000, 49_000, 91_000)


def test_the_first_module_overlaps_with_the_one_after_it() -> None:
    found = answer(chain(), 94_000, ("overlap", A, 1.0), graph=True)
    assert found.then_ns == 62_000


@pytest.mark.parametrize("kind", ["fuse", "overlap"])
def test_a_module_without_kernels_changes_nothing(kind: Kind) -> None:
    assert answer(chain(), 94_000, (kind, C, 1.0), graph=True).then_ns == 94_000
