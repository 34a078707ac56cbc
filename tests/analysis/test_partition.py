from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis import BareStep, idle_stretches, step_partition
from cb_trace.bundle import Deployment
from tests.analysis.timelines import ROOT, A, B, C, D, Timeline
from tests.frames import frame

Parts = dict[tuple[int | None, str], int]


def partition(timeline: Timeline, **more: Any) -> pl.DataFrame:
    given_: dict[str, Any] = {"bare": {}, "device_type": "cuda", "run_id": "r"} | more
    return step_partition(**timeline.frames(), launch=timeline.launch_frame(), **given_)


def parts(timeline: Timeline, **more: Any) -> Parts:
    """Time by module and kind, rows of 0 left out."""
    rows = partition(timeline, **more).filter(pl.col("ns") != 0)
    found = {
        (module, kind): ns for module, kind, ns in rows.select("module_id", "kind", "ns").rows()
    }
    assert len(found) == rows.height
    return found


def bare(ns: int, low: int | None = None, high: int | None = None) -> dict[Deployment, BareStep]:
    return {"eager": BareStep(ns, ns if low is None else low, ns if high is None else high, 30)}


def test_busy_belongs_to_the_kernel_that_started_first() -> None:
    timeline = Timeline().step(0, 100)
    timeline.kernel(A, 0, 60).kernel(B, 20, 60, stream=8).kernel(C, 30, 10, stream=9)
    timeline.kernel(D, 80, 20)
    assert parts(timeline) == {(A, "busy"): 60, (B, "busy"): 20, (D, "busy"): 20}


def test_a_tie_goes_to_the_lower_id() -> None:
    timeline = Timeline().step(0, 10)
    timeline.kernel(B, 0, 6).kernel(A, 0, 10, stream=8)
    assert parts(timeline) == {(B, "busy"): 6, (A, "busy"): 4}


def test_the_equal_split_of_overlap() -> None:
    timeline = Timeline().step(0, 100)
    timeline.kernel(A, 0, 60).kernel(B, 20, 60, stream=8).kernel(C, 30, 10, stream=9)
    # [20, 30) and [40, 60) halves, [30, 40) thirds, [60, 80) b alone; 20 idle at the end
    assert parts(timeline, overlap="equal") == {
        (A, "busy"): 20 + 5 + 3 + 10,
        (B, "busy"): 5 + 3 + 10 + 20,
        (C, "busy"): 4,
        (ROOT, "idle_host"): 20,
    }


def test_a_fused_kernel_is_split_by_share_and_so_is_the_idle_before_it() -> None:
    timeline = Timeline().step(0, 31).kernel(C, 0, 10)
    timeline.kernel({A: 0.25, B: 0.75}, 20, 11)
    assert parts(timeline) == {
        (C, "busy"): 10,
        (A, "busy"): 3,
        (B, "busy"): 8,
        (A, "idle_gap"): 3,
        (B, "idle_gap"): 7,
    }


def test_each_kind_of_idle() -> None:
    timeline = Timeline().step(0, 1000)
    timeline.launch(1, "cudaLaunchKernel", 10, 5).kernel(ROOT, 100, 100, launch_id=1)
    # launched in time, back to back but for 10: the device's gap
    timeline.launch(2, "cudaLaunchKernel", 20, 5).kernel(A, 210, 90, launch_id=2)
    # launched only after the device had run dry
    timeline.launch(3, "cudaLaunchKernel", 310, 5).kernel(B, 330, 70, launch_id=3)
    # a synchronisation came back after the device had run dry, before the launch
    timeline.launch(4, "cudaStreamSynchronize", 320, 85)
    timeline.launch(5, "cudaLaunchKernel", 410, 5).kernel(C, 430, 70, launch_id=5)
    # a pageable copy: the call returned after the copy's end
    timeline.launch(6, "cudaMemcpyAsync", 505, 200)
    timeline.kernel(D, 540, 60, launch_id=6, kind="memcpy")
    # an asynchronous copy launched late: host
    timeline.launch(7, "cudaMemcpyAsync", 720, 5)
    timeline.kernel(D, 750, 50, launch_id=7, kind="memcpy")
    # a blocking copy by name
    timeline.launch(8, "cudaMemcpy", 801, 2).kernel(A, 810, 90, launch_id=8, kind="memcpy")
    # a synchronisation on another thread does not count; no launch known: gap
    timeline.launch(9, "cudaDeviceSynchronize", 850, 60, thread=2)
    timeline.launch(10, "cudaLaunchKernel", 915, 5).kernel(B, 920, 20, launch_id=10)
    timeline.kernel(B, 950, 20)
    idle = {key: ns for key, ns in parts(timeline).items() if key[1].startswith("idle")}
    assert idle == {
        (ROOT, "idle_host"): 100 + 30,  # before the first, after the last: nothing waited
        (A, "idle_gap"): 10,
        (B, "idle_host"): 30 + 20,
        (C, "idle_sync"): 30,
        (D, "idle_copy"): 40,
        (D, "idle_host"): 150,
        (A, "idle_copy"): 10,
        (B, "idle_gap"): 10,
    }


def test_a_synchronisation_that_waits_at_the_end_is_the_roots() -> None:
    timeline = Timeline().step(0, 50).kernel(A, 0, 30)
    timeline.launch(1, "cudaDeviceSynchronize", 5, 30)
    assert parts(timeline) == {(A, "busy"): 30, (ROOT, "idle_sync"): 20}


def test_idle_alone_is_scaled_to_the_bare_step() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 10, 30).kernel(B, 60, 20)
    # idle: 10 + 20 root, 20 b; 50 busy leave 25 of 75
    assert parts(timeline, bare=bare(75)) == {
        (A, "busy"): 30,
        (B, "busy"): 20,
        (ROOT, "idle_host"): 15,
        (B, "idle_gap"): 10,
    }
    assert parts(timeline, bare=bare(150))[B, "idle_gap"] == 40  # the factor may exceed 1


def test_busy_beyond_the_bare_step_is_a_row_of_its_own() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 10, 30).kernel(B, 60, 20)
    assert parts(timeline, bare=bare(45)) == {
        (A, "busy"): 30,
        (B, "busy"): 20,
        (None, "profiled_excess"): -5,
    }


def test_no_idle_to_scale_is_the_roots() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 0, 100)
    assert parts(timeline, bare=bare(110)) == {(A, "busy"): 100, (ROOT, "idle_host"): 10}


def test_each_deployment_is_scaled_to_its_own_step() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 0, 20).kernel(B, 60, 20)
    both: dict[Deployment, BareStep] = {**bare(90), "graph": BareStep(46, 45, 47, 9)}
    rows = partition(timeline, bare=both)
    sums = rows.group_by("deployment").agg(pl.col("ns").sum()).sort("deployment")
    assert sums.rows() == [("eager", 90), ("graph", 46)]
    graph = rows.filter(deployment="graph", kind="idle_gap").select("ns", "low_ns", "high_ns")
    # 20 of 60 idle after the last kernel, 40 between; a graph waits for no host
    assert graph.rows() == [(2, 1, 3), (4, 3, 5)]  # of 5, 6 and 7
    assert set(rows.filter(deployment="graph")["kind"]) == {"busy", "idle_gap"}


def test_on_a_cpu_everything_is_scaled() -> None:
    timeline = Timeline().step(0, 200)
    timeline.kernel(A, 20, 100, kind="cpu").kernel(B, 140, 60, kind="cpu")
    assert parts(timeline, bare=bare(50), device_type="cpu") == {
        (A, "busy"): 25,
        (B, "busy"): 15,
        (ROOT, "idle_host"): 5,
        (B, "idle_host"): 5,
    }


def test_unattributed_time_and_the_idle_before_it_have_no_module() -> None:
    timeline = Timeline().step(0, 40).kernel(A, 0, 10).kernel(None, 20, 20)
    assert parts(timeline) == {
        (A, "busy"): 10,
        (None, "unattributed"): 20,
        (None, "idle_gap"): 10,
    }


def test_a_kernel_without_a_row_of_attribution_is_unattributed() -> None:
    timeline = Timeline().step(0, 10).kernel(A, 0, 10)
    timeline.owners.clear()
    assert parts(timeline) == {(None, "unattributed"): 10}


def test_without_steps_the_whole_trace_is_one_and_unscaled() -> None:
    timeline = Timeline().launch(1, "cudaLaunchKernel", 90, 5)
    timeline.kernel(A, 100, 10, launch_id=1).kernel(A, 130, 10).call(A, 80, 15)
    assert parts(timeline) == {(A, "busy"): 20, (A, "idle_gap"): 20, (ROOT, "idle_host"): 20}
    assert partition(timeline)["deployment"].unique().to_list() == ["eager"]


def test_windows_that_overlap_count_each_instant_once() -> None:
    timeline = Timeline().step(0, 60).step(50, 50)
    timeline.kernel(A, 0, 60).kernel(B, 60, 40, step=1)
    assert parts(timeline) == {(A, "busy"): 30, (B, "busy"): 20}


def test_kernels_are_cut_to_the_windows() -> None:
    timeline = Timeline().step(10, 20).step(40, 20)
    timeline.kernel(A, 0, 50).kernel(B, 55, 20, step=1)
    assert parts(timeline) == {(A, "busy"): 15, (B, "busy"): 3, (B, "idle_gap"): 2}


def test_a_called_module_has_a_row_and_one_not_called_has_none() -> None:
    timeline = Timeline().step(0, 10).kernel(A, 0, 10).call(A, 0, 1).call(D, 2, 1)
    rows = partition(timeline).select("module_id", "phase", "kind", "ns").rows()
    assert rows == [(A, "forward", "busy", 10), (D, "forward", "busy", 0)]


def test_bounds_come_from_the_steps_and_the_bare_step() -> None:
    timeline = Timeline()
    for number, dur in enumerate((20, 40, 30, 30)):
        timeline.step(number * 100, 100)
        timeline.kernel(A, number * 100, dur, step=number)
    rows = partition(timeline, bare=bare(80, 70, 95))
    found = {
        kind: tuple(row) for kind, *row in rows.select("kind", "ns", "low_ns", "high_ns").rows()
    }
    busy, idle = found["busy"], found["idle_host"]
    assert busy[0] == 30
    assert 22 <= busy[1] < 30 < busy[2] <= 38
    assert idle[0] == 50
    assert 30 <= idle[1] <= 40  # 70 less busy
    assert 65 <= idle[2] <= 75  # 95 less busy


def test_one_step_has_the_bounds_of_the_bare_step_alone() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 0, 30).kernel(B, 50, 30)
    rows = partition(timeline, bare=bare(80, 70, 90)).select(
        "module_id", "kind", "ns", "low_ns", "high_ns"
    )
    assert rows.rows() == [
        (A, "busy", 30, 30, 30),
        (B, "busy", 30, 30, 30),
        (ROOT, "idle_host", 10, 5, 15),
        (B, "idle_gap", 10, 5, 15),
    ]


def test_bounds_of_the_excess() -> None:
    timeline = Timeline().step(0, 100).kernel(A, 0, 100)
    row = partition(timeline, bare=bare(95, 90, 103)).filter(kind="profiled_excess")
    assert row.select("module_id", "phase", "ns", "low_ns", "high_ns").rows() == [
        (None, None, -5, -10, 0)
    ]


@pytest.mark.parametrize("device_type", ["cuda", "cpu", None])
def test_an_empty_trace_is_idle_of_the_root(device_type: str | None) -> None:
    found = parts(Timeline(), bare=bare(70), device_type=device_type)
    assert found == {(ROOT, "idle_host"): 70}
    assert parts(Timeline(), device_type=device_type) == {}


def test_without_one_root_the_edges_have_no_module() -> None:
    timeline = Timeline().step(0, 30).kernel(0, 10, 20)
    frames = timeline.frames() | {"module": frame("module", {"module_id": 0}, {"module_id": 1})}
    rows = step_partition(
        **frames, launch=timeline.launch_frame(), run_id="r", bare={}, device_type=None
    )
    assert rows.select("module_id", "kind", "ns").rows() == [
        (0, "busy", 20),
        (None, "idle_host", 10),
    ]


owner = st.sampled_from([None, ROOT, A, B, C, D, {A: 0.5, None: 0.5}, {B: 0.3, D: 0.45, A: 0.25}])
kernels = st.lists(st.tuples(owner, st.integers(0, 130), st.integers(0, 40)), max_size=12)


@given(
    events=kernels,
    steps=st.integers(0, 3),
    bare_ns=st.integers(1, 300),
    device_type=st.sampled_from(["cuda", "cpu", None]),
    overlap=st.sampled_from(["first", "equal"]),
)
@settings(max_examples=30, deadline=None)
def test_the_parts_sum_to_the_bare_step(
    events: list[Any], steps: int, bare_ns: int, device_type: str | None, overlap: str
) -> None:
    timeline = built(events, steps)
    both: dict[Deployment, BareStep] = {**bare(bare_ns), "graph": BareStep(17, 16, 18, 5)}
    rows = partition(timeline, bare=both, device_type=device_type, overlap=overlap)
    assert dict(rows.group_by("deployment").agg(pl.col("ns").sum()).iter_rows()) == {
        "eager": bare_ns,
        "graph": 17,
    }
    assert rows.filter(
        (pl.col("low_ns") > pl.col("ns")) | (pl.col("ns") > pl.col("high_ns"))
    ).is_empty()
    excess = pl.col("kind") == "profiled_excess"
    assert rows.filter(
        pl.when(excess).then(pl.col("ns") > 0).otherwise(pl.col("ns") < 0)
    ).is_empty()
    again = partition(timeline, bare=both, device_type=device_type, overlap=overlap)
    assert rows.equals(again)


@given(events=kernels)
@settings(max_examples=40, deadline=None)
def test_against_the_owner_of_every_nanosecond(events: list[Any]) -> None:
    """One step, unscaled, kernels of one module each: who owns an instant, by brute force."""
    events = [(of if not isinstance(of, dict) else A, start, dur) for of, start, dur in events]
    expected: Counter[tuple[int | None, bool]] = Counter()
    order = sorted(range(len(events)), key=lambda k: (events[k][1], k))
    order = [k for k in order if events[k][2] > 0]
    for t in range(40):
        running = [k for k in order if events[k][1] <= t < events[k][1] + events[k][2]]
        before = [k for k in order if events[k][1] < t]
        after = [k for k in order if t < events[k][1] < 40]
        if running:
            expected[events[running[0]][0], True] += 1
        else:
            inside = before and after
            expected[events[after[0]][0] if inside else ROOT, False] += 1
    found: Counter[tuple[int | None, bool]] = Counter()
    for (module, kind), ns in parts(built(events, 1)).items():
        found[module, kind in ("busy", "unattributed")] += ns
    assert found == expected


def built(events: list[Any], steps: int) -> Timeline:
    timeline = Timeline()
    for number in range(steps):
        timeline.step(number * 45, 40)
    for of, start, dur in events:
        step = min(start // 45, steps - 1) if steps else None
        timeline.kernel(of, start, dur, step=step, phase="forward")
    return timeline


def stretches(timeline: Timeline) -> list[tuple[int, int, str]]:
    frames = timeline.frames()
    named = {name: frames[name] for name in ("kernel", "step", "module_call")}
    found = idle_stretches(**named, launch=timeline.launch_frame(), device_type="cuda")
    return found.rows()


def test_idle_stretches_lie_where_nothing_runs_with_their_kind() -> None:
    timeline = Timeline().step(0, 100)
    timeline.kernel(A, 10, 30).kernel(B, 20, 30, stream=8).kernel(C, 60, 20)
    assert stretches(timeline) == [
        (0, 10, "idle_host"),
        (50, 60, "idle_gap"),  # no launch is known
        (80, 100, "idle_host"),
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 30)), max_size=8))
def test_idle_stretches_sum_to_the_idle_of_the_partition(kernels: list[tuple[int, int]]) -> None:
    timeline = Timeline().step(0, 130)
    for start, dur in kernels:
        timeline.kernel(A, start, dur)
    idle = sum(ns for (_, kind), ns in parts(timeline).items() if kind.startswith("idle"))
    assert sum(end - start for start, end, _ in stretches(timeline)) == idle
