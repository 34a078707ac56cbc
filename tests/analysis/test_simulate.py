"""The simulator on timelines made by hand: what goes when a module goes, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from cb_trace.analysis.host_alone import Factors
from cb_trace.analysis.marginal import marginal_costs
from cb_trace.analysis.parts import Measured, Parts, isolated_parts
from cb_trace.analysis.program import Program, StepEvents, programs
from cb_trace.analysis.stats import BareStep, Interval
from cb_trace.analysis.to_bare import StepWindow
from cb_trace.bundle import Deployment
from tests.analysis.timelines import MODULE, ROOT, A, B, C, D, Timeline
from tests.frames import frame


def stepped(timeline: Timeline) -> list[Program]:
    frames = timeline.frames()
    return programs(
        StepEvents(
            **frames, launch=timeline.launch_frame(), op=frame("op"),
        )
    )  # fmt: skip


def begun(length: int = 100_000) -> Timeline:
    """One step of the root, on thread 1."""
    timeline = Timeline().step(0, length)
    timeline.steps[0]["thread"] = 1
    return timeline.call(ROOT, 0, length)


def run(
    timeline: Timeline, owner: int, launched: int, start: int, dur: int, **more: Any
) -> Timeline:
    """A kernel and its launch, which takes 2 µs and returns at ``launched``."""
    number = len(timeline.launches)
    timeline.launch(number, "cudaLaunchKernel", launched - 2_000, 2_000)
    return timeline.kernel(owner, start, dur, launch_id=number, **more)


def lost(
    timeline: Timeline,
    bare_ns: int,
    deployment: Deployment = "eager",
    parts: Parts | None = None,
) -> dict[int | None, int]:
    """Marginal cost by module."""
    bare: dict[Deployment, BareStep] = {deployment: Interval(bare_ns, bare_ns, bare_ns)}
    modules = sorted({part["module_id"] for part in timeline.owners} | {ROOT, A})
    partition = frame(
        "partition",
        *(
            {"module_id": m, "phase": "forward", "deployment": deployment, "kind": "busy", "ns": 1}
            for m in modules
        ),
    )
    found = marginal_costs(
        {deployment: stepped(timeline)}, MODULE, partition, frame("cost_bounds"), parts or Parts(),
        run_id="r", bare=bare, device_type="cuda",
    )  # fmt: skip
    rows = found.filter(pl.col("kind") == "marginal")
    return dict(rows.select("module_id", "ns").iter_rows())


def host_chain() -> Timeline:
    """The host is the bound: 100 µs of it, of which a has 30 (c in it 10) and b 40."""
    timeline = begun().call(A, 10_000, 30_000)
    timeline.call(C, 15_000, 10_000, parent_call_id=1).call(B, 50_000, 40_000)
    for call in timeline.calls[1:]:
        call.setdefault("parent_call_id", 0)
    run(timeline, C, 20_000, 22_000, 5_000)
    run(timeline, A, 30_000, 32_000, 5_000)
    return run(timeline, B, 70_000, 72_000, 5_000)


def test_a_host_bound_step_loses_the_host_work() -> None:
    assert lost(host_chain(), 50_000) == {ROOT: 50_000, A: 15_000, C: 5_000, B: 20_000}


def test_a_call_of_no_length_has_no_work() -> None:
    timeline = (
        host_chain().call(D, 50_000, 0, parent_call_id=0).call(D, 55_000, 0, parent_call_id=3)
    )
    assert lost(timeline, 100_000) == lost(host_chain(), 100_000)


def test_nothing_is_lost_without_work() -> None:
    timeline = host_chain()
    timeline.kernel(5, 80_000, 0, launch_id=0)
    assert lost(timeline, 50_000)[5] == 0


def device_chain() -> Timeline:
    """The device is the bound: launches by 6 µs, kernels of 50, 30 and 10, 1 µs apart."""
    timeline = begun(8_000).call(A, 0, 4_000, parent_call_id=0).call(B, 4_000, 4_000)
    timeline.calls[2]["parent_call_id"] = 0
    run(timeline, A, 2_000, 4_000, 50_000)
    run(timeline, B, 5_000, 55_000, 30_000)
    return run(timeline, B, 6_000, 86_000, 10_000)


def long_chain(gap: int = 1_000) -> Timeline:
    """As :func:`device_chain`, of kernels ten times as long."""
    timeline = begun(8_000).call(A, 0, 4_000, parent_call_id=0).call(B, 4_000, 4_000)
    timeline.calls[2]["parent_call_id"] = 0
    run(timeline, A, 2_000, 4_000, 500_000)
    run(timeline, B, 5_000, 504_000 + gap, 300_000)
    return run(timeline, B, 6_000, 804_000 + 2 * gap, 100_000)


def test_a_device_bound_step_loses_kernels_and_their_gaps() -> None:
    # Without b the step ends with a's kernel; without a, b's first kernel starts at
    # 1 µs (its launch, a's host work gone) + 2 µs latency.
    assert lost(device_chain(), 96_000) == {ROOT: 96_000, A: 96_000 - 44_000, B: 42_000}


def test_where_clocks_told_the_host_s_time_a_profiler_s_gaps_give_way() -> None:
    timed = Parts(spent_ns={A: 4_000.0, B: 4_000.0})  # as under the profiler
    # Gaps of 10 µs: 4 + 500 + 10 + 300 + 10 + 100. Without a the first kernel starts at 3 µs.
    assert lost(long_chain(20_000), 924_000, "eager", timed) == {
        ROOT: 924_000, A: 924_000 - 413_000, B: 420_000,
    }  # fmt: skip


def test_a_window_ends_when_the_host_has_closed_it_and_the_device_is_through() -> None:
    timed = Parts(window=StepWindow(host_ns=0, closing_ns=8_000, window_ns=0, empty_ns=5_000))
    # The host takes 47 of 100 µs, and then 8 − 5 to close the window; one of no step is empty.
    assert lost(host_chain(), 50_000, "eager", timed) == {
        ROOT: 50_000, A: 14_100, C: 4_700, B: 18_800,
    }  # fmt: skip
    # The device is through after 96 µs, less the empty window; no time of the host is hidden there.
    assert lost(device_chain(), 91_000, "eager", timed) == {
        ROOT: 91_000, A: 96_000 - 44_000, B: 42_000,
    }  # fmt: skip
    assert lost(device_chain(), 94_000, "graph", timed) == lost(device_chain(), 94_000, "graph")


def test_a_graph_loses_kernels_and_gaps() -> None:
    # Gaps of 2 µs: 50 + 2 + 30 + 2 + 10.
    assert lost(device_chain(), 94_000, "graph") == {ROOT: 94_000, A: 52_000, B: 44_000}


def test_kernels_longer_than_the_bare_step_shrink() -> None:
    assert lost(device_chain(), 45_000, "graph") == {ROOT: 45_000, A: 25_000, B: 20_000}


def test_overlapped_streams_lose_what_is_exposed() -> None:
    timeline = begun(10_000).call(A, 0, 2_000, parent_call_id=0)
    run(timeline, A, 2_000, 4_000, 60_000)
    run(timeline, B, 4_000, 6_000, 30_000, stream=8)
    assert lost(timeline, 64_000) == {ROOT: 64_000, A: 64_000 - 34_000, B: 0}
    assert lost(timeline, 60_000, "graph") == {ROOT: 60_000, A: 30_000, B: 0}


def joined() -> Timeline:
    """b runs on a second stream; the root's last kernel waits for both."""
    timeline = begun(12_000).call(A, 0, 4_000, parent_call_id=0)
    run(timeline, A, 2_000, 4_000, 20_000)
    run(timeline, B, 6_000, 8_000, 40_000, stream=8)
    timeline.launch(9, "cudaStreamWaitEvent", 7_000, 500)
    return run(timeline, ROOT, 11_000, 49_000, 10_000)


def test_a_join_waits_for_the_longer_branch() -> None:
    # 40 (b) + 1 (the gap) + 10; without b: 20 + 1 + 10.
    assert stepped(joined())[0].needs == {2: (1,)}
    assert lost(joined(), 51_000, "graph") == {ROOT: 51_000, A: 0, B: 20_000}


def test_a_join_stays_when_the_kernel_after_it_goes() -> None:
    timeline = joined()
    timeline.kernels[2] |= {"dur_ns": 4_000}
    run(timeline, C, 11_500, 54_000, 10_000)
    # b's 40, the gap, the root's 4 and c's 10; without the root's, c still waits for b.
    frames = timeline.frames()
    assert stepped(timeline)[0].needs == {2: (1,)}
    timeline.owners[2]["module_id"] = D
    assert frames["kernel"].height == 4
    assert lost(timeline, 56_000, "graph")[D] == 56_000 - 51_000


def test_an_edge_that_the_trace_breaks_is_none() -> None:
    timeline = joined()
    timeline.kernels[2]["start_ns"] = 30_000  # while b runs
    assert stepped(timeline)[0].needs == {}


def synchronised() -> Timeline:
    """The host waits for a's kernel before it launches b's."""
    timeline = begun(70_000).call(A, 0, 4_000, parent_call_id=0)
    run(timeline, A, 2_000, 4_000, 50_000)
    timeline.launch(9, "cudaStreamSynchronize", 4_000, 52_000)  # 2 µs of it after the kernel
    return run(timeline, B, 60_000, 62_000, 6_000)


def test_a_wait_is_not_work() -> None:
    (program,) = stepped(synchronised())
    assert int(program.work_ns.sum()) == 70_000 - 50_000
    # Without a's kernel and its 4 µs of host work the wait is over at once.
    assert lost(synchronised(), 70_000)[A] == 54_000


def test_a_wait_goes_with_its_module() -> None:
    timeline = begun(70_000).call(A, 3_000, 55_000, parent_call_id=0)
    run(timeline, B, 2_000, 4_000, 50_000)
    timeline.launch(9, "cudaDeviceSynchronize", 4_000, 50_000)
    run(timeline, B, 60_000, 62_000, 6_000)
    # Without a's 5 µs of host work and its wait, b's second kernel follows its first by a gap,
    # which no kernel shows: the default of 1 µs.
    assert lost(timeline, 70_000)[A] == 70_000 - 61_000


def test_work_beside_the_steps_thread_is_that_threads() -> None:
    """The backward runs on a thread of its own, outside every call."""
    timeline = begun(100_000)
    timeline.launch(0, "cudaLaunchKernel", 20_000, 30_000, thread=2)
    timeline.kernel(B, 52_000, 5_000, launch_id=0, phase="forward")
    assert lost(timeline, 100_000)[B] == 30_000


def test_the_figure_is_the_median_over_steps_and_bounds_are_all_of_them() -> None:
    timeline = device_chain()
    (one,) = stepped(timeline)
    bare: dict[Deployment, BareStep] = {"graph": Interval(94_000, 92_000, 98_000)}
    partition = frame(
        "partition",
        {"module_id": A, "phase": "forward", "deployment": "graph", "kind": "busy", "ns": 1},
    )
    found = marginal_costs(
        {"graph": [one, one]}, MODULE, partition, frame("cost_bounds"), Parts(),
        run_id="r", bare=bare, device_type="cuda",
    )  # fmt: skip
    row = found.filter(kind="marginal", module_id=A).row(0, named=True)
    assert (row["ns"], row["low_ns"], row["high_ns"]) == (52_000, 51_000, 54_000)


def test_the_step_from_its_parts() -> None:
    parts = Parts(
        host_ratio=0.25, graph_gap_ns=500.0, launch_ns=3_000.0, isolation_ns={"forward": 70_000},
        factors=Factors(dict.fromkeys((ROOT, A, B, C), 0.25)),
    )  # fmt: skip
    wanted: dict[Deployment, int] = {"eager": 25_000, "graph": 15_000 + 2 * 500 + 3_000}
    for deployment, expected in wanted.items():
        bare: dict[Deployment, BareStep] = {deployment: Interval(1, 1, 1)}
        found = marginal_costs(
            {deployment: stepped(host_chain())}, MODULE, frame("partition"),
            frame("cost_bounds"), parts, run_id="r", bare=bare, device_type="cuda",
        )  # fmt: skip
        whole = dict(found.select("kind", "ns").iter_rows())
        assert whole == {"predicted": expected, "kernel_sum": 15_000, "isolation_sum": 70_000}


def test_a_sum_of_forwards_is_none_of_a_step_with_a_backward() -> None:
    timeline = begun(100_000)
    run(timeline, A, 10_000, 10_000, 5_000)
    run(timeline, A, 40_000, 40_000, 9_000, phase="backward")
    bare: dict[Deployment, BareStep] = {"graph": Interval(1, 1, 1)}
    alone: list[tuple[dict[str, int], int | None]] = [
        ({"forward": 7_000}, None), ({"forward": 7_000, "backward": 12_000}, 19_000),
    ]  # fmt: skip
    for isolation, expected in alone:
        found = marginal_costs(
            {"graph": stepped(timeline)}, MODULE, frame("partition"), frame("cost_bounds"),
            Parts(isolation_ns=isolation), run_id="r", bare=bare, device_type="cuda",
        )  # fmt: skip
        assert dict(found.select("kind", "ns").iter_rows()).get("isolation_sum") == expected


def test_on_a_cpu_the_marginal_cost_is_the_cost() -> None:
    rows = [
        {"module_id": m, "phase": "forward", "deployment": "eager", "kind": kind, "ns": ns}
        for m, kind, ns in ((ROOT, "idle_host", 10), (A, "busy", 20), (C, "busy", 5))
    ]
    bounds = [
        {"module_id": m, "phase": "forward", "deployment": "eager", "low_ns": low, "high_ns": high}
        for m, low, high in ((ROOT, 34, 36), (A, 23, 27), (C, 4, 6))
    ]
    bare: dict[Deployment, BareStep] = {"eager": Interval(35, 35, 35)}
    found = marginal_costs(
        {}, MODULE, frame("partition", *rows), frame("cost_bounds", *bounds), Parts(),
        run_id="r", bare=bare, device_type="cpu",
    )  # fmt: skip
    assert found.select("module_id", "ns", "low_ns", "high_ns").rows() == [
        (ROOT, 35, 34, 36),
        (A, 25, 23, 27),
        (C, 5, 4, 6),
    ]


def test_parts_come_from_the_innermost_modules() -> None:
    def replay(number: int, module: int, condition: str, wall: int, busy: int) -> dict[str, object]:
        return {
            "replay_id": number, "measured_id": number, "module_id": module, "phase": "forward",
            "condition": condition, "call_index": 0, "calls": 2, "median_ns": wall,
            "kernel_ns": busy, "busy_ns": busy,
        }  # fmt: skip

    replays = frame(
        "replay",
        replay(0, ROOT, "hot", 900, 0),
        replay(1, C, "hot", 50, 10),
        replay(2, B, "hot", 100, 100),  # bound by the device: says nothing of the host
        replay(3, C, "graph", 16, 10),
        replay(4, B, "graph", 112, 100),
    )
    kernels = frame(
        "replay_kernel",
        *(
            {"replay_id": r, "iteration": 0, "kernel_id": k}
            for r, k in zip([1] * 2 + [2] * 5, range(7), strict=True)
        ),
    )
    calls = frame(
        "module_call",
        *({"module_id": m, "phase": "forward", "step": 0, "dur_ns": 200} for m in (ROOT, B, C)),
    )
    found = isolated_parts(
        Measured(replay=replays, replay_kernel=kernels, module_call=calls, module=MODULE)
    )
    assert found.host_ratio == pytest.approx(0.25)
    assert found.graph_gap_ns == pytest.approx(2.0)  # (12 − 6) ÷ (5 − 2)
    assert found.launch_ns == pytest.approx(2.0)
    assert found.isolation_ns == {"forward": 300}


def test_the_graph_on_one_stream_is_read_off_its_own_samples() -> None:
    rows = [
        ("bare", "graph", 80), ("bare_one_stream", "graph", 100),
        ("bare_one_stream", "graph", 104), ("bare_one_stream", "graph", 130),
    ]  # fmt: skip
    samples = frame(
        "step_sample", *({"kind": kind, "deployment": how, "ns": ns} for kind, how, ns in rows)
    )
    measured = Measured(
        replay=frame("replay"), replay_kernel=frame("replay_kernel"),
        module_call=frame("module_call"), module=MODULE, step_sample=samples,
    )  # fmt: skip
    assert isolated_parts(measured).one_stream_ns == 104
    assert isolated_parts(replace(measured, step_sample=samples[:1])).one_stream_ns is None
