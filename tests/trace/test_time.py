"""Rows 14 to 26 of the facts on how trace files break: time, duration, nesting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cb_trace.errors import CbTraceError
from cb_trace.trace import LoadOptions, LoadReport
from tests.kineto import Event, annotation, kernel, launch, module_slice, op, write_trace
from tests.trace.conftest import Loader

BASE = 5_126_667_474_542  # µs since the quarter began, as Kineto writes them


def times(profile: duckdb.DuckDBPyConnection, table: str = "op") -> list[tuple[int, int]]:
    rows = profile.execute(f"SELECT start_ns, dur_ns FROM {table} ORDER BY 1, 2 DESC").fetchall()
    return [(start, dur) for start, dur in rows]


def raw(path: Path, *pairs: tuple[str, str]) -> Path:
    """Operators whose ts and dur stand in the file exactly as given."""
    events = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}'
        for ts, dur in pairs
    )
    path.write_text(f'{{"traceEvents":[{events}]}}')
    return path


def drops(report: LoadReport) -> dict[str, tuple[int, int | None]]:
    return {drop.reason: (drop.events, drop.ns) for drop in report.drops}


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ('"1700000000000000.123"', 1_700_000_000_000_000_123),
        ('"1700000000000000"', 1_700_000_000_000_000_000),
        ('"12.5"', 12_500),
        ("1700000000000000.001", 1_700_000_000_000_000_001),
        ("1700000000000000.999", 1_700_000_000_000_000_999),
        ("5126667474542.782", 5_126_667_474_542_782),
        ("7889237999999.999", 7_889_237_999_999_999),
        ("8796093022207.999", 8_796_093_022_207_999),
        ("8796093022208.001", 8_796_093_022_208_001),
        ("1e3", 1_000_000),
        ("0.0004", 0),
        ("0.0006", 1),
        ("-3.5", -3_500),
    ],
)
def test_row_14_decimal_text_to_exact_nanoseconds(
    ts: str, ns: int, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    load(raw(tmp_path / "t.json", (ts, "1.001")))
    assert times(profile) == [(ns, 1001)]


def test_row_14_every_nanosecond_of_a_microsecond(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    for trace_id, base in enumerate((7_889_237_999_999, 1_700_000_000_000_000)):
        pairs = [(f"{base}.{ns:03}", f"17.{ns:03}") for ns in range(1000)]
        load(raw(tmp_path / "t.json", *pairs), trace_id=trace_id)
        assert times(profile) == [(base * 1000 + ns, 17_000 + ns) for ns in range(1000)]
        profile.execute("DELETE FROM op")


NO_TIMES = ("true", "false", '"soon"', '"true"', '"0x1f"', '""', "[1]", "[]", '{"a": 1}', "{}")


@pytest.mark.parametrize("ts", [*NO_TIMES, "null", "9.3e18"])
def test_row_14_what_is_no_time_drops_the_event(
    ts: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(raw(tmp_path / "t.json", ("1", "1"), (ts, "1")))
    assert times(profile) == [(1000, 1000)]
    assert drops(report) == {"event without a usable time": (1, None)}
    assert (report.slices, report.dropped) == (1, 1)


@pytest.mark.parametrize("dur", NO_TIMES)
def test_row_14_what_is_no_duration_drops_the_event(
    dur: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(raw(tmp_path / "t.json", ("1", "1"), ("2", dur), ("3", "0")))
    assert times(profile) == [(1000, 1000), (3000, 0)]
    assert drops(report) == {"event without a usable time": (1, None)}
    assert (report.slices, report.dropped) == (2, 1)


@pytest.mark.parametrize(("dur", "resolution"), [("3", 1000), ("3.0", 1000), ("3.25", 1)])
def test_row_15_resolution_and_display_unit(
    dur: str, resolution: int, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = raw(tmp_path / "t.json", ("7", dur), ("9", "0"))
    path.write_text(path.read_text().replace("{", '{"displayTimeUnit":"ns",', 1))
    load(path)
    found = profile.execute("SELECT resolution_ns, first_ns, span_ns FROM trace").fetchall()
    assert found == [(resolution, 7000, int(float(dur) * 1000))]


def test_row_16_lost_timing_is_out_of_all_sums(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        annotation("ProfilerStep#0", BASE, 100),
        op("aten::mm", BASE + 1, 50), launch(BASE + 2, 5, 1), kernel("gemm", BASE + 9, 7, 1),
        launch(BASE + 8, 5, 2), kernel("lost", 0, 3, 2), op("lost", 0, 4),
    ]  # fmt: skip
    report = load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT name, dur_ns, step, flaw FROM kernel ORDER BY name").fetchall()
    assert found == [("gemm", 7000, 0, None), ("lost", 0, None, "lost timing")]
    assert drops(report) == {"host event without timing": (1, None), "lost timing": (1, 3000)}
    assert (report.slices, report.dropped) == (6, 1)
    assert profile.execute("SELECT first_ns, span_ns FROM trace").fetchall() == [
        (BASE * 1000, 100_000)
    ]


def test_row_16_a_trace_may_begin_at_zero(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(write_trace(tmp_path / "t.json", [op("a", 0, 5), kernel("k", 2, 3, 0)]))
    assert times(profile) == [(0, 5000)]
    assert "lost timing" not in drops(report)


@pytest.mark.parametrize("dur", [-1, -9_223_372_036_854_775, 9_223_372_036_854_775, 1.8e19])
def test_row_17_open_host_events_end_with_the_trace(
    dur: float, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [op("a", 10, 50), op("open", 20, dur), launch(25, 5, 1), kernel("k", 30, 60, 1)]
    report = load(write_trace(tmp_path / "t.json", events))
    assert times(profile) == [(10_000, 50_000), (20_000, 70_000)]
    assert drops(report) == {"unfinished, clamped to the trace end": (1, None)}
    assert profile.execute("SELECT span_ns FROM trace").fetchall() == [(80_000,)]


@pytest.mark.parametrize(("dur", "ns"), [(-3, 3000), (9e9, 9_000_000_000_000)])
def test_row_17_impossible_device_durations_count_zero(
    dur: float, ns: int, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    flaw = "negative duration" if dur < 0 else "overflowing duration"
    events = [kernel("a", 10, 5, 0), kernel("b", 20, dur, 0), op("c", 1, 9)]
    report = load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT name, dur_ns, flaw FROM kernel ORDER BY name").fetchall()
    assert found == [("a", 5000, None), ("b", 0, flaw)]
    assert drops(report)[flaw] == (1, ns)


def test_row_17_a_long_event_that_fits_the_trace_is_kept(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    hours = 3 * 3600 * 1_000_000
    report = load(write_trace(tmp_path / "t.json", [op("long", 1, hours), op("late", hours, 5)]))
    assert times(profile)[0] == (1000, hours * 1000)
    assert drops(report) == {}


def test_a_missing_duration_counts_zero(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    event = kernel("k", 10, 5, 0)
    del event["dur"]
    report = load(write_trace(tmp_path / "t.json", [event]))
    assert profile.execute("SELECT dur_ns, flaw FROM kernel").fetchall() == [
        (0, "missing duration")
    ]
    assert drops(report)["missing duration"] == (1, 0)


def test_rows_18_and_19_overlaps_on_one_stream_are_kept(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [kernel("a", 10, 20, 0), kernel("pdl", 25, 20, 0), kernel("overrun", 40, 900, 0)]
    load(write_trace(tmp_path / "t.json", events))
    assert times(profile, "kernel") == [(10_000, 20_000), (25_000, 20_000), (40_000, 900_000)]


def test_row_20_the_stream_is_the_argument_and_a_sync_is_no_kernel(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    odd: Event = {**kernel("k", 10, 5, 0, stream=20), "tid": 1_000_020}
    sync = {**kernel("Stream Sync", 10, 50, 0), "cat": "cuda_sync"}
    load(write_trace(tmp_path / "t.json", [odd, sync]))
    assert profile.execute("SELECT name, stream FROM kernel").fetchall() == [("k", 20)]


def test_row_21_annotations_are_a_layer_of_their_own(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        module_slice("Linear_0", 5, 20, 1, None),  # ends inside the annotation
        annotation("ProfilerStep#3", 10, 1000),
        {**annotation("ProfilerStep#3", 30, 900), "cat": "gpu_user_annotation", "pid": 0},
    ]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT layer, dur_ns FROM annotation ORDER BY layer").fetchall()
    assert found == [("gpu", 900_000), ("user", 1_000_000)]
    assert profile.execute("SELECT name, start_ns, dur_ns, window_ns FROM step").fetchall() == [
        ("ProfilerStep#3", 10_000, 1_000_000, 1_000_000)
    ]


def test_rows_22_and_24_ties_and_zero_lengths_nest(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        op("parent", 10, 10), op("child", 15, 5.001),  # overruns its parent by rounding
        op("empty", 16, 0), launch(16, 1, 1), kernel("k", 30, 0, 1),
        op("next", 20, 5), launch(20, 1, 2), kernel("k", 40, 1, 2),
        launch(25, 1, 3), kernel("k", 50, 1, 3),  # starts where the last operator ends
    ]  # fmt: skip
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute(
        "SELECT k.correlation, o.name FROM kernel k LEFT JOIN op o USING (op_id) ORDER BY 1"
    ).fetchall()
    assert found == [(1, "child"), (2, "next"), (3, None)]


def test_row_23_frames_without_return_are_clamped_to_their_callers(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    frame: dict[str, Any] = {"cat": "python_function", "name": "forward"}
    events = [
        module_slice("Net_0", 10, 50, 1, None),
        {**module_slice("x", 11, 40, 2, 1), **frame},  # ends at 51
        module_slice("Linear_0", 12, 900, 3, 2),  # no return: ran to the end of the profile
        module_slice("Inner_0", 13, 800, 4, 3),
        module_slice("Other_0", 20, 5, 5, 77),  # its caller is not in the file
    ]
    report = load(write_trace(tmp_path / "t.json", events))
    found = profile.execute(
        "SELECT m.name, p.name, m.start_ns + m.dur_ns FROM python_module m "
        "LEFT JOIN python_module p ON m.parent_python_id = p.python_id ORDER BY m.python_id"
    ).fetchall()
    assert found == [
        ("Net_0", None, 60_000), ("Linear_0", "Net_0", 51_000), ("Inner_0", "Linear_0", 51_000),
        ("Other_0", None, 25_000),
    ]  # fmt: skip
    assert drops(report)["python frame clamped to its caller"] == (2, None)


def test_modules_are_numbered_by_time_whatever_their_order_in_the_file(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        module_slice("Inner_0", 13, 5, 3, 1),
        module_slice("Other_0", 90, 5, 7, None),
        module_slice("Net_0", 10, 50, 1, None),
    ]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute(
        "SELECT python_id, name, parent_python_id FROM python_module ORDER BY python_id"
    ).fetchall()
    assert found == [(0, "Net_0", None), (1, "Inner_0", 0), (2, "Other_0", None)]


def test_row_23_ids_that_run_in_a_circle_do_not_hang(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [module_slice("A_0", 1, 9, 1, 2), module_slice("B_0", 2, 5, 2, 1)]
    load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT name, parent_python_id FROM python_module").fetchall()
    assert found == [("A_0", None), ("B_0", 0)]


def test_row_25_a_kernel_before_its_launch_is_flagged(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        launch(9000, 5, 1), kernel("early", 10, 5, 1),
        launch(9010, 5, 2), kernel("skewed", 8800, 5, 2), launch(9020, 5, 3),
    ]  # fmt: skip
    report = load(write_trace(tmp_path / "t.json", events))
    found = profile.execute("SELECT name, flaw FROM kernel ORDER BY name").fetchall()
    assert found == [("early", "before launch"), ("skewed", None)]
    assert drops(report) == {"before launch": (1, 5000), "launch without kernel": (1, None)}


def test_row_26_kernels_outside_every_step_have_none(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    events = [
        kernel("warm-up", 1, 5, 0),
        annotation("ProfilerStep#7", 10, 10), launch(12, 1, 1), kernel("in", 15, 30, 1),
        annotation("ProfilerStep#8", 20, 10), launch(22, 1, 2), kernel("next", 46, 3, 2),
        launch(40, 1, 3), kernel("after", 50, 3, 3),
    ]  # fmt: skip
    report = load(write_trace(tmp_path / "t.json", events))
    assert drops(report)["kernel outside every step"] == (2, 8000)
    found = profile.execute("SELECT name, step FROM kernel ORDER BY start_ns").fetchall()
    assert found == [("warm-up", None), ("in", 0), ("next", 1), ("after", None)]
    steps = profile.execute("SELECT step, name, dur_ns, window_ns FROM step ORDER BY 1").fetchall()
    assert steps == [(0, "ProfilerStep#7", 10_000, 35_000), (1, "ProfilerStep#8", 10_000, 29_000)]


# --- a part of a trace (row 12) ---------------------------------------------------------------

STEPS = [
    event
    for number in range(4)
    for event in (
        annotation(f"ProfilerStep#{number + 3}", 100 * number + 5, 90),
        op("mm", 100 * number + 10, 50),
        launch(100 * number + 20, 5, number + 1),
        kernel("k", 100 * number + 90, 30, number + 1),
    )
]


def test_row_12_steps_load_a_part(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = write_trace(tmp_path / "t.json", STEPS)
    report = load(path, options=LoadOptions(steps=(4, 5)))
    steps = profile.execute("SELECT step, name FROM step ORDER BY 1").fetchall()
    assert steps == [(0, "ProfilerStep#4"), (1, "ProfilerStep#5")]
    found = profile.execute("SELECT step, start_ns FROM kernel ORDER BY start_ns").fetchall()
    assert found == [(0, 190_000), (1, 290_000)]
    assert (report.ops, report.launches) == (2, 2)
    assert drops(report) == {"outside window": (2, 60_000)}


def test_row_12_a_window_counts_from_the_first_event(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = write_trace(tmp_path / "t.json", STEPS)
    report = load(path, options=LoadOptions(window_ns=(95_000, 200_000)))
    assert profile.execute("SELECT name FROM step").fetchall() == [("ProfilerStep#4",)]
    assert times(profile, "kernel") == [(190_000, 30_000)]
    assert drops(report) == {"outside window": (3, 90_000)}
    none = load(path, trace_id=1, options=LoadOptions(window_ns=(0, 50_000)))
    assert none.notes == ("no whole step in this window: the whole window is one step",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoadOptions(steps=(9, 12)), "no step 9-12 in this trace; its steps are 3-6"),
        (LoadOptions(window_ns=(5, 5)), "the window 5:5 is empty"),
        (LoadOptions(step_pattern="step["), "is no regular expression"),
    ],
)
def test_impossible_parts_are_refused(
    options: LoadOptions, message: str, tmp_path: Path, load: Loader
) -> None:
    with pytest.raises(CbTraceError, match=message):
        load(write_trace(tmp_path / "t.json", STEPS), options=options)


def test_the_axis_is_the_file_s_own(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = write_trace(tmp_path / "t.json", [op("a", BASE, 1)], baseTimeNanoseconds=123)
    load(path)
    assert json.loads(path.read_text())["traceEvents"][0]["ts"] * 1000 == times(profile)[0][0]
