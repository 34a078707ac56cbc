"""HTA itself on hand-made traces: what is stored, and that nothing it does reaches us."""

from __future__ import annotations

import gzip
import logging
import shutil
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cb_trace.bundle import file_sha256
from cb_trace.errors import CbTraceError
from cb_trace.hta import process, second_opinion
from cb_trace.store import amend, open_profile
from tests.hta.profiles import events, rows, write_profile
from tests.kineto import annotation, event, kernel, launch, op, write_trace


def stored(profile: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_profile(tmp_path_factory.mktemp("opinion"), events(), rows())
    second_opinion(path)
    return path


def test_the_breakdowns_are_htas(profile: Path) -> None:
    assert stored(profile, "FROM hta_temporal") == [(0, True, 262_000, 120_000, 0, 142_000)]
    assert stored(profile, "FROM hta_idle ORDER BY category") == [
        (0, True, 7, "host_wait", 1, 138_000),
        (0, True, 7, "kernel_wait", 2, 4_000),
        (0, True, 7, "other", 0, 0),
    ]
    assert stored(profile, "FROM hta_kernel ORDER BY name") == [
        (0, True, "COMPUTATION", "add", 2, 20_000, 10_000, 10_000),
        (0, True, "COMPUTATION", "gemm", 2, 100_000, 50_000, 50_000),
    ]
    assert stored(profile, "FROM hta_kernel_type") == [(0, True, "COMPUTATION", 120_000)]
    assert stored(profile, "FROM hta_overlap") == [(0, True, None)]
    assert stored(profile, "FROM hta_failure") == []


def test_events_and_critical_path_are_joined_to_our_rows(profile: Path) -> None:
    joined = "SELECT event_index, kernel_id, start_ns, dur_ns, linked FROM hta_event ORDER BY 1"
    assert stored(profile, joined) == [
        (4, 1, 70_000, 50_000, True), (7, 2, 122_000, 10_000, True),
        (11, 3, 270_000, 50_000, True), (14, 4, 322_000, 10_000, True),
    ]  # fmt: skip
    path = """SELECT kind, bound_by, ns, event_index, kernel_id, op_id, module_id, step
        FROM hta_critical_path ORDER BY position"""
    assert stored(profile, path) == [
        ("operator", "cpu_bound", 10_000, 9, None, 3, 1, 1),
        ("kernel_launch_delay", "gpu_kernel_launch_overhead", 40_000, 11, 3, None, 1, 1),
        ("operator", "gpu_compute_bound", 50_000, 11, 3, None, 1, 1),
        ("kernel_kernel_delay", "gpu_kernel_kernel_overhead", 2_000, 11, 3, None, 1, 1),
        ("operator", "gpu_compute_bound", 10_000, 14, 4, None, None, 1),
    ]


def test_the_kernel_that_hta_drops_is_a_disagreement_with_its_reason(profile: Path) -> None:
    found = stored(
        profile, "SELECT metric, ours, hta, bound, reason FROM hta_check WHERE NOT agrees"
    )
    why = "HTA drops kernels without a launch in the file where there are two steps or more: 1"
    assert found == [
        ("kernels", 5, 4, 0, why), ("kernel_time", 124_000, 120_000, 0, why),
        ("span", 331_000, 262_000, 0, why), ("busy", 124_000, 120_000, 0, why),
        ("idle", 207_000, 142_000, 0, why),
    ]  # fmt: skip
    assert stored(profile, "SELECT metric FROM hta_check WHERE agrees ORDER BY 1") == [
        ("kernels_with_launch",), ("matched_durations",),
    ]  # fmt: skip


def test_nothing_is_left_behind_and_a_second_opinion_replaces_the_first(
    profile: Path, tmp_path: Path
) -> None:
    assert {p.name for p in profile.parent.iterdir()} == {"p.duckdb", "trace.json"}
    again = Path(shutil.copytree(profile.parent, tmp_path / "copy")) / "p.duckdb"
    before = stored(again, "SELECT count(*) FROM hta_event")
    handlers = list(logging.getLogger().handlers)
    assert second_opinion(again).traces == 1
    assert stored(again, "SELECT count(*) FROM hta_event") == before == [(4,)]
    assert logging.getLogger().handlers == handlers


def test_a_finer_trace_is_read_rounded_and_unrounded(tmp_path: Path) -> None:
    given, ours = events(fraction=0.25)[1:], rows(fraction_ns=250)
    del ours["kernel"][0]
    path = write_profile(tmp_path, given, ours, resolution_ns=1)
    opinion = second_opinion(path)
    assert opinion.checks.filter(~pl.col("agrees")).is_empty()
    assert opinion.failures.is_empty()
    figures = {
        (row["metric"], row["rounded"]): (row["ours"], row["hta"], row["bound"])
        for row in opinion.checks.iter_rows(named=True)
    }
    assert figures["kernel_time", True] == (119_000, 116_000, 8_000)
    assert figures["kernel_time", False] == (119_000, 119_000, 8)
    assert figures["idle", False] == (142_750, 142_750, 8)
    assert stored(path, "SELECT DISTINCT rounded FROM hta_temporal") == [(True,)]


def test_what_fails_when_rounded_is_taken_unrounded(tmp_path: Path) -> None:
    """A kernel inside one microsecond ends before it starts, and an assert of HTA fails."""
    given = [
        op("aten::a", 0, 30), launch(10, 5, 1), kernel("k", 20.2, 0.5, 1),
        op("aten::b", 40, 30), launch(50, 5, 2), kernel("Memset (Device)", 60.2, 0.5, 2),
    ]  # fmt: skip
    ours = {"kernel": [
        {"kernel_id": k, "trace_id": 0, "kind": "kernel", "name": name, "stream": 7,
         "start_ns": at, "dur_ns": 500, "correlation": k, "launch_id": k}
        for k, name, at in ((1, "k", 20_200), (2, "Memset (Device)", 60_200))
    ]}  # fmt: skip
    path = write_profile(tmp_path, given, ours, resolution_ns=1)
    failures = second_opinion(path).failures.rows()
    assert [(rounded, analysis) for _, rounded, analysis, _ in failures] == [(True, "temporal")]
    assert "assert" in failures[0][3]
    assert stored(path, "FROM hta_temporal") == [(0, False, 40_500, 500, 500, 39_500)]


def test_text_in_a_trace_is_not_run(tmp_path: Path) -> None:
    """HTA 0.5.0 evaluates thread ids as Python when it builds the critical path."""
    mark = tmp_path / "mark"
    attack = f'100 or @pd.io.common.os.system("touch {mark}")'
    wait = {"stream": 7, "correlation": 2, "wait_on_cuda_event_record_corr_id": 3}
    given = [
        annotation("ProfilerStep#0", 0, 200), op("aten::mm", 5, 60), launch(10, 5, 1),
        kernel("a", 20, 10, 1), op("aten::add", 80, 20), launch(85, 5, 5), kernel("b", 100, 10, 5),
        event("cuda_runtime", "cudaStreamWaitEvent", 40, 3, correlation=2, tid=attack),
        event("cuda_sync", "Stream Wait Event", 45, 1, pid=0, tid=7, **wait),
    ]  # fmt: skip
    path = write_profile(tmp_path, given, {})
    second_opinion(path)
    assert not mark.exists()
    assert stored(path, "SELECT count(*) > 0 FROM hta_critical_path") == [(True,)]


CPU_ONLY = [op("aten::mm", 10, 40), annotation("ProfilerStep#0", 0, 100)]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("cpu only", "HTA sees no device activity"),
        ("not JSON", "JSONDecodeError"),
        ("zstd", "HTA reads JSON, plain or gzip, and nothing else"),
        ("recorded on cpu", "recorded on the CPU"),
        ("text for time", "TypeError"),
    ],
)
def test_what_hta_cannot_read_is_a_stored_reason(
    tmp_path: Path, damage: str, expected: str
) -> None:
    given = CPU_ONLY if damage == "cpu only" else events()
    if damage == "text for time":
        given[0]["ts"] = "__import__('os')"
    device = "cpu" if damage == "recorded on cpu" else None
    path = write_profile(tmp_path, given, {}, device_type=device)
    spoil(tmp_path / "trace.json", damage, path)
    opinion = second_opinion(path)
    assert (opinion.traces, opinion.absent) == (1, ())
    (row,) = opinion.failures.rows()
    assert row[:3] == (0, True, "load")
    assert expected in row[3]
    assert opinion.checks.is_empty()
    assert stored(path, "SELECT analysis, reason FROM hta_failure") == [row[2:]]


def spoil(file: Path, damage: str, profile: Path) -> None:
    """Damage the file; the profile believes what it now holds."""
    spoilt = {"not JSON": b'{"traceEvents": [{', "zstd": b"\x28\xb5\x2f\xfd"}
    if damage not in spoilt:
        return
    file.write_bytes(spoilt[damage])
    with amend(profile) as draft:
        draft.connection.execute("UPDATE trace SET sha256 = ?", [file_sha256(file)])


def test_a_trace_that_is_gone_or_another_is_refused_and_the_earlier_opinion_kept(
    profile: Path, tmp_path: Path
) -> None:
    kept = Path(shutil.copytree(profile.parent, tmp_path / "kept")) / "p.duckdb"
    trace, before = kept.with_name("trace.json"), kept.read_bytes()
    trace.write_bytes(b"{}")
    with pytest.raises(CbTraceError, match=r"trace\.json is not the trace this profile was made"):
        second_opinion(kept)
    trace.unlink()
    with pytest.raises(CbTraceError, match=r"is gone: it was expected at .*kept/trace\.json \(put"):
        second_opinion(kept)
    with_another_rank(kept)
    before_two = kept.read_bytes()
    with pytest.raises(CbTraceError, match=r"none of the 2 traces of .* is there; the trace of"):
        second_opinion(kept)
    assert stored(kept, "SELECT count(*) FROM hta_check") == [(7,)]
    assert before != before_two == kept.read_bytes()


def test_of_several_ranks_those_that_are_there_are_asked(profile: Path, tmp_path: Path) -> None:
    kept = Path(shutil.copytree(profile.parent, tmp_path / "kept")) / "p.duckdb"
    with_another_rank(kept)
    kept.with_name("trace.json").rename(kept.with_name("other.json"))
    opinion = second_opinion(kept)
    assert opinion.traces == 1
    assert opinion.checks["trace_id"].unique().to_list() == [1]
    (reason,) = opinion.absent
    assert reason.endswith(f"is gone: it was expected at {kept.with_name('trace.json')}")
    counted = "SELECT trace_id, count(*) FROM hta_check GROUP BY 1 ORDER BY 1"
    assert stored(kept, counted) == [(0, 7), (1, opinion.checks.height)]


def with_another_rank(profile: Path) -> None:
    with amend(profile) as draft:
        draft.connection.execute(
            "INSERT INTO trace SELECT * REPLACE (1 AS trace_id, 1 AS rank, 'other.json' AS path) "
            "FROM trace"
        )


def test_a_profile_without_a_full_pass_is_refused(tmp_path: Path) -> None:
    path = write_profile(tmp_path, events(), {})
    with amend(path) as draft:
        draft.connection.execute("UPDATE trace SET role = 'isolated'")
    with pytest.raises(CbTraceError, match="holds no trace of a full pass"):
        second_opinion(path)


def test_a_trace_inside_a_bundle_is_read(tmp_path: Path) -> None:
    path = write_profile(tmp_path, events(), rows())
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.write(tmp_path / "trace.json", "context.json")
    (tmp_path / "trace.json").unlink()
    with amend(path) as draft:
        draft.connection.execute("UPDATE trace SET path = 'b.zip/context.json'")
    assert second_opinion(path).failures.is_empty()
    assert stored(path, "SELECT count(kernel_id) FROM hta_event") == [(4,)]


def test_a_reading_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "t.json", events())
    reading = process.read(file, rounded=True, analyses=(), timeout_s=0)
    assert reading.failures == (("load", "HTA ran for more than 0 s and was stopped"),)


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (gzip.compress(b"{}", mtime=0), ".json.gz"),
        (b'\n {"traceEvents": []}', ".json"),
        (b"[]", ".json"),
        (b"\x28\xb5\x2f\xfd", None),
        (b"", None),
    ],
)
def test_a_file_is_known_by_its_content(tmp_path: Path, content: bytes, suffix: str | None) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(content)
    assert process.suffix_of(file) == suffix


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match="no such profile"):
        second_opinion(tmp_path / "absent.duckdb")


def test_hta_on_a_real_trace(shared_traces: Path, tmp_path: Path) -> None:
    """Triton operators carry a stream argument: HTA adds their host time to the device's."""
    from tests.attribution.kineto_reader import read

    file = Path(shutil.copy(shared_traces / "h200" / "gpt_compiled.json.gz", tmp_path))
    found = read(file)
    ours = {
        name: getattr(found, name).with_columns(trace_id=0).to_dicts()
        for name in ("kernel", "launch", "op", "step")
    }
    path = write_profile(tmp_path, events(), ours, resolution_ns=1, given=file)
    opinion = second_opinion(path)
    counts = (
        opinion.checks.filter(pl.col("unit") == "count").select("metric", "ours", "hta").unique()
    )
    assert sorted(counts.rows()) == [
        ("kernels", 464, 732), ("kernels_with_launch", 464, 464), ("matched_durations", 464, 464),
    ]  # fmt: skip
    expected = "HTA counts cpu_op events with a stream that are no sound kernel of ours: 268, "
    reasons = opinion.checks.filter(~pl.col("agrees"))["reason"].to_list()
    assert reasons
    assert all(reason.startswith(expected) for reason in reasons)
    assert stored(path, "SELECT count(kernel_id), count(*) FROM hta_event") == [(464, 732)]
