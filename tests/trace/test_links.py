"""Rows 27 to 40 of the facts on how trace files break: launch links, devices, steps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cb_trace.errors import CbTraceError
from cb_trace.trace import LoadOptions, LoadReport
from tests.kineto import Event, annotation, event, kernel, launch, op, write_trace
from tests.trace.conftest import Loader


def linked(profile: duckdb.DuckDBPyConnection) -> list[tuple[str, str | None, str | None]]:
    """Kernel, launch and operator names, in time order."""
    return profile.execute(
        "SELECT k.name, l.name, o.name FROM kernel k LEFT JOIN launch l USING (launch_id) "
        "LEFT JOIN op o ON o.op_id = k.op_id ORDER BY k.start_ns, k.kernel_id"
    ).fetchall()


def drops(report: LoadReport) -> dict[str, tuple[int, int | None]]:
    return {drop.reason: (drop.events, drop.ns) for drop in report.drops}


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cuda_driver", "cuLaunchKernelEx"),
        ("cuda_runtime", "cudaLaunchKernelExC"),
        ("cuda_runtime", "hipExtModuleLaunchKernel"),
        ("xpu_runtime", "urEnqueueKernelLaunch"),
        ("Runtime", "cudaLaunchKernel"),
        ("cuda_runtime", "a name never seen"),
    ],
)
def test_row_27_any_runtime_or_driver_call_links(
    category: str, name: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [op("mm", 1, 20), event(category, name, 5, 2, correlation=9), kernel("k", 9, 5, 9)]
    load(write_trace(tmp_path / "t.json", events))
    assert linked(profile) == [("k", name, "mm")]


def test_row_28_one_graph_launch_has_many_kernels(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    graph = event("cuda_runtime", "cudaGraphLaunch", 5, 2, correlation=9)
    kernels = [kernel(f"k{i}", 10 + i, 1, 9, stream=7 + i % 2) for i in range(5)]
    load(write_trace(tmp_path / "t.json", [op("replay", 1, 20), graph, *kernels]))
    assert linked(profile) == [(f"k{i}", "cudaGraphLaunch", "replay") for i in range(5)]


def test_row_29_a_graph_launch_without_kernels_is_counted(tmp_path: Path, load: Loader) -> None:
    graphs = [event("cuda_runtime", "hipGraphLaunch", 5 * i, 2, correlation=i) for i in (1, 2)]
    report = load(write_trace(tmp_path / "t.json", [*graphs, kernel("k", 50, 1, 2)]))
    assert drops(report) == {"graph launch without kernel": (1, None)}


@pytest.mark.parametrize(
    ("wait", "other", "found"),
    [
        (5000, [], (1, 4_890_000)),  # waited until 5,010, the last kernel ended at 120
        (200, [], None),  # 90 µs more than the graph's own 100 µs: as usual
        (5000, [kernel("late", 4000, 1000, 0)], None),  # the device was at work
        (5000, [kernel("long", 5, 5000, 0)], None),
    ],
)
def test_row_31_a_graph_that_ran_on_after_its_last_kernel_is_said(
    wait: int, other: list[Event], found: tuple[int, int] | None, tmp_path: Path, load: Loader
) -> None:
    """A conditional node: of its iterations CUPTI records the first."""
    events = [
        event("cuda_runtime", "cudaGraphLaunch", 2, 2, correlation=9),
        kernel("body", 20, 50, 9), kernel("body", 70, 50, 9),
        event("cuda_runtime", "cudaStreamSynchronize", 10, wait, correlation=10),
    ]  # fmt: skip
    report = load(write_trace(tmp_path / "t.json", [*events, *other]))
    assert drops(report).get("graph that ran on after its last kernel") == found
    said = [note for note in report.notes if "kernels are missing" in note]
    assert len(said) == (found is not None)
    assert not found or "4.9 ms more for graphs" in said[0]


def test_row_30_graph_ids_are_kept(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    ids = {"graph id": 3, "graph node id": 3 * 2**32 + 17}
    none = {"graph id": 0, "graph node id": 0}
    events = [kernel("a", 1, 1, 0, **ids), kernel("b", 2, 1, 0, **none), kernel("c", 3, 1, 0)]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT graph_id, graph_node_id FROM kernel ORDER BY name").fetchall()
    assert found == [(3, 12_884_901_905), (None, None), (None, None)]


def two_ranks(gpu_a: object, gpu_b: object, own: tuple[int, int] | None) -> list[Event]:
    """Two processes whose ids collide at 5; with ``own``, ids that only one of them has."""
    events: list[Event] = []
    for pid, gpu, at in (("A", gpu_a, 0), ("B", gpu_b, 1)):
        events += [
            op(f"op{pid}", 10, 20, pid=pid, tid=1),
            launch(12, 2, 5, pid=pid, tid=1),
            {**kernel(f"k{pid}", 20 + at, 3, 5), "pid": gpu},
        ]
        if own:
            events += [
                launch(15, 2, own[at], pid=pid, tid=1),
                {**kernel(f"own{pid}", 25 + at, 3, own[at]), "pid": gpu},
            ]
    return events


def test_row_32_ranks_in_one_file_are_told_apart_by_process(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    load(write_trace(tmp_path / "t.json", two_ranks("A", "B", None)))
    assert linked(profile) == [
        ("kA", "cudaLaunchKernel", "opA"), ("kB", "cudaLaunchKernel", "opB"),
    ]  # fmt: skip


def test_row_32_a_device_is_told_by_its_other_links(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    load(write_trace(tmp_path / "t.json", two_ranks(0, 1, (6, 7))))
    assert [(name, operator) for name, _, operator in linked(profile)] == [
        ("kA", "opA"), ("kB", "opB"), ("ownA", "opA"), ("ownB", "opB"),
    ]  # fmt: skip


@pytest.mark.parametrize("own", [None, (6, 7)])
def test_row_32_what_cannot_be_told_is_refused(
    own: tuple[int, int] | None, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(write_trace(tmp_path / "t.json", two_ranks(0, 0, own)))
    by_name = {name: operator for name, _, operator in linked(profile)}
    assert (by_name["kA"], by_name["kB"]) == (None, None)
    if own:
        assert (by_name["ownA"], by_name["ownB"]) == ("opA", "opB")
    assert drops(report)["correlation id of several ranks, not linked"] == (2, None)
    assert drops(report)["no launch in file"] == (2, 6000)


@pytest.mark.parametrize(("second", "said"), [(800, True), (900, False)])
def test_row_32_steps_of_two_processes_that_overlap_are_told(
    second: float, said: bool, tmp_path: Path, load: Loader
) -> None:
    """An instant of two steps has no one owner, so what is split over modules mixes the two."""
    events = [
        annotation("ProfilerStep#1", 0, 1000, pid="A"),
        annotation("ProfilerStep#2", 1000.5, 1000, pid="A"),
        annotation("ProfilerStep#1", second + 1100, 1000, pid="B"),
    ]
    report = load(write_trace(tmp_path / "t.json", events))
    assert any("steps of several processes overlap" in note for note in report.notes) == said


def test_row_33_an_id_that_comes_again_links_to_the_call_before(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        op("first", 1, 10), launch(2, 1, 5), kernel("a", 8, 1, 5),
        op("second", 50, 10), launch(52, 1, 5), kernel("b", 58, 1, 5), kernel("c", 1, 1, 5),
    ]  # fmt: skip
    load(write_trace(tmp_path / "t.json", events))
    assert [(name, operator) for name, _, operator in linked(profile)] == [
        ("c", "first"), ("a", "first"), ("b", "second"),
    ]  # fmt: skip


def test_row_33_correlation_zero_or_absent_is_no_link(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    absent = kernel("absent", 9, 5, 0)
    del absent["args"]["correlation"]
    events = [op("mm", 1, 20), launch(2, 1, 0), kernel("zero", 5, 5, 0), absent]
    report = load(write_trace(tmp_path / "t.json", events))
    assert linked(profile) == [("zero", None, None), ("absent", None, None)]
    assert drops(report)["no launch in file"] == (2, 10_000)
    assert report.kernels_without_launch == 2


def test_row_33_streams_are_64_bits_wide(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [kernel("a", 1, 1, 0, stream=2**62), kernel("b", 2, 1, 0, stream=2**64 - 1)]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT stream FROM kernel ORDER BY start_ns").fetchall()
    assert found == [(2**62,), (None,)]


def test_row_33_an_external_id_is_no_link(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    external = {"External id": 41}
    events = [op("mm", 1, 20, **external), kernel("k", 5, 5, 77, **external)]
    load(write_trace(tmp_path / "t.json", events))
    assert linked(profile) == [("k", None, None)]
    assert profile.execute("SELECT external_id FROM kernel").fetchall() == [(41,)]


def test_row_33_one_id_for_everything_is_no_square(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    """10,000 calls times 10,000 kernels would neither fit nor end."""
    events = [e for i in range(10_000) for e in (launch(3 * i, 1, 5), kernel("k", 3 * i + 1, 1, 5))]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute(
        "SELECT count(*), count(DISTINCT launch_id), max(kernel.start_ns - launch.start_ns) "
        "FROM kernel JOIN launch USING (launch_id)"
    ).fetchall()
    assert found == [(10_000, 10_000, 1000)]


def test_row_34_launches_without_device_events_are_said(tmp_path: Path, load: Loader) -> None:
    report = load(write_trace(tmp_path / "t.json", [op("mm", 1, 20), launch(2, 1, 5)]))
    assert report.notes[0] == "launches but no device events in this trace"
    assert report.kernels == 0


def test_row_35_xpu_kernels_lack_most_arguments(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    args: dict[str, Any] = {
        "correlation": 4, "device": 0, "context": "0xab", "sycl queue": "0x1", "appended": "12",
    }  # fmt: skip
    events = [
        event("xpu_runtime", "piextEnqueueKernel", 2, 2, correlation=4),
        {**event("kernel", "gemm", 9, 5, pid=0, tid=3), "args": args},
    ]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute('SELECT device, stream, grid, "block", bytes FROM kernel').fetchall()
    assert found == [(0, 3, None, None, None)]
    assert linked(profile)[0][1] == "piextEnqueueKernel"


def test_row_36_overhead_claims_no_kernel(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    overhead = event("overhead", "Lazy Function Loading", 3, 500, pid=-1, tid=0, correlation=5)
    events = [op("mm", 1, 20), overhead, launch(4, 1, 5), kernel("k", 30, 5, 5)]
    load(write_trace(tmp_path / "t.json", events))
    assert linked(profile) == [("k", "cudaLaunchKernel", "mm")]
    assert profile.execute("SELECT sum(dur_ns) FROM kernel").fetchall() == [(5000,)]


@pytest.mark.parametrize("record_function", [{}, {"Record function id": 0}])
def test_row_37_the_record_function_id_is_optional(
    record_function: dict[str, int],
    tmp_path: Path,
    load: Loader,
    profile: duckdb.DuckDBPyConnection,
) -> None:
    ids: dict[str, Any] = {"External id": 7, **record_function}
    events = [op("mm", 1, 20, **ids), op("add", 30, 20, **ids), launch(35, 1, 5, **ids)]
    load(write_trace(tmp_path / "t.json", [*events, kernel("k", 60, 5, 5, **ids)]))
    assert linked(profile) == [("k", "cudaLaunchKernel", "add")]


@pytest.mark.parametrize(
    ("names", "pattern", "found"),
    [
        (["step[DECODE bs=64]", "step[DECODE bs=1]"], None, 2),
        (["execute_context_1(8)_generation_0(0)"], None, 1),
        (["execute_32_context_0(s)", "executed"], None, 1),
        (["ProfilerStep#1", "step[PREFILL]"], None, 1),
        (["iteration 1", "iteration 2"], None, 0),
        (["iteration 1", "iteration 2", "ProfilerStep#1"], "^iteration", 2),
        ([], None, 0),
    ],
)
def test_row_38_steps_by_name(
    names: list[str], pattern: str | None, found: int, tmp_path: Path, load: Loader
) -> None:
    events = [annotation(name, 10 * i + 1, 8) for i, name in enumerate(names)]
    options = LoadOptions(step_pattern=pattern)
    report = load(write_trace(tmp_path / "t.json", [*events, op("x", 99, 1)]), options=options)
    assert report.steps == found
    said = "no steps in this trace: the whole trace is one step" in report.notes
    assert said == (found == 0)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "nothing, as this trace has no annotations"),
        (["b", "a", "b"], "none of the 2 names of annotations (b, a)"),
        (["d", "c", "b" * 41, "a"], f"none of the 4 names of annotations (d, c, {'b' * 39}…, …)"),
    ],
)
def test_a_step_pattern_that_matches_nothing_is_told_the_names(
    names: list[str], said: str, tmp_path: Path, load: Loader
) -> None:
    events = [annotation(name, 10 * i + 1, 8) for i, name in enumerate(names)]
    path = write_trace(tmp_path / "t.json", [*events, op("x", 99, 1)])
    options = LoadOptions(step_pattern="^it")
    part = f"the step pattern '^it' matches {said}"
    assert load(path, options=options).notes == (f"{part}: the whole trace is one step",)
    window = replace(options, window_ns=(0, 50_000))
    found = load(path, trace_id=1, options=window).notes
    assert found == (f"{part}: the whole window is one step",)
    with pytest.raises(CbTraceError, match=re.escape(f"no step 1-2 in this trace; {part}")):
        load(path, trace_id=2, options=replace(options, steps=(1, 2)))


def test_row_38_nested_ranges_count_once(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [annotation("it a", 1, 50), annotation("it b", 5, 10), annotation("it c", 51, 9)]
    load(write_trace(tmp_path / "t.json", events), options=LoadOptions(step_pattern="it"))
    assert profile.execute("SELECT name FROM step").fetchall() == [("it a",), ("it c",)]


def test_steps_of_several_processes_hold_for_their_own(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = []
    for pid, at in (("A", 0), ("B", 5)):
        events += [
            annotation("ProfilerStep#0", 10 + at, 30, pid=pid, tid=1),
            launch(20 + at, 1, 1 + at, pid=pid, tid=1),
            {**kernel(f"k{pid}", 30 + at, 3, 1 + at), "pid": pid},
        ]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute(
        "SELECT k.name, t.pid FROM kernel k JOIN step s USING (step) "
        "JOIN thread t ON t.thread = s.thread ORDER BY 1"
    ).fetchall()
    assert found == [("kA", "A"), ("kB", "B")]


# --- producers --------------------------------------------------------------------------------


def test_the_shapes_of_2021(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    def old(cat: str, name: str, ts: int, tid: str, pid: int = 9, **args: Any) -> Event:
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": 4,
                "args": args}  # fmt: skip

    events = [
        old("Operator", "ProfilerStep#2", 1, "5555", **{"External id": 1}),
        old("Operator", "aten::mm", 2, "5555", **{"External id": 2}),
        old("Runtime", "cudaLaunchKernel", 3, "5555", correlation=8, **{"external id": 2}),
        old("Kernel", "gemm", 8, "stream 7", pid=0, device=0, stream=7, correlation=8,
            grid=[50, 1, 1], block=[256, 1, 1], **{"external id": 2, "registers per thread": 38}),
        old("Memcpy", "Memcpy HtoD", 15, "stream 9", pid=0, bytes=64, **{"external id": 3}),
        old("Memset", "Memset (Device)", 20, "stream 7", pid=0, bytes=8),
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps(events))
    report = load(tmp_path / "t.json")
    found = profile.execute(
        'SELECT kind, category, stream, external_id, grid, "block", registers, bytes, step '
        "FROM kernel ORDER BY start_ns"
    ).fetchall()
    assert found == [
        ("kernel", "Kernel", 7, 2, "50,1,1", "256,1,1", 38, None, 0),
        ("memcpy", "Memcpy", 9, 3, None, None, None, 64, None),
        ("memset", "Memset", 7, None, None, None, None, 8, None),
    ]
    assert linked(profile)[0] == ("gemm", "cudaLaunchKernel", "aten::mm")
    assert report.steps == 1


@pytest.mark.parametrize("category", ["mtia_ccp_events", "kernel"])
def test_other_accelerators_stay_outside_kernel(
    category: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        event("mtia_runtime", "runFunction", 1, 5, correlation=3),
        event(category, "fc", 3, 9, pid=1, tid=2, correlation=3, stream=2),
    ]
    report = load(write_trace(tmp_path / "t.json", events))
    assert profile.execute("SELECT count(*) FROM kernel").fetchall() == [(0,)]
    assert drops(report) == {"rows of an accelerator that is not read": (1, 9000)}
    assert report.slices == 2


def test_threads_carry_their_names(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    def meta(name: str, pid: int, tid: object, label: str) -> Event:
        return {"name": name, "ph": "M", "ts": 1, "pid": pid, "tid": tid, "args": {"name": label}}

    events = [
        meta("process_name", 1, 0, "python"), meta("thread_name", 1, 7, "main"),
        meta("thread_name", 1, 8, "unused"), op("a", 1, 1, pid=1, tid=7),
        op("b", 1, 1, pid=1, tid="7"), op("c", 1, 1, pid="", tid="x"),
    ]  # fmt: skip
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT pid, tid, name, process FROM thread ORDER BY 1").fetchall()
    assert found == [("", "x", None, None), ("1", "7", "main", "python")]
