"""``cb-trace hta`` and ``ingest --hta``: the table on stdout, the notes on stderr, exit 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cb_trace.cli import run
from tests.hta.profiles import events
from tests.kineto import op, write_trace


def test_an_ingest_can_ask_hta(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write_trace(tmp_path / "trace.json", events())
    profile = str(tmp_path / "p.duckdb")
    assert run(["ingest", str(trace), "-o", profile, "--hta"]) == 0
    shown = capsys.readouterr()
    assert "traces asked: 1; HTA agrees on 2 of 7 figures" in shown.err
    lines = [line.split() for line in shown.out.splitlines() if line.startswith("trace.json")]
    assert [line[3] for line in lines] == ["kernels", "busy", "idle", "kernel_time", "span"]
    assert lines[0][5:9] == ["5", "4", "-1", "0"]


def test_a_trace_without_a_device_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path / "trace.json", [op("aten::mm", 10, 40)])
    profile = str(tmp_path / "p.duckdb")
    assert run(["ingest", str(trace), "-o", profile]) == 0
    capsys.readouterr()
    assert run(["hta", profile, "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["rows"] == []
    assert "note: HTA, trace 0: load failed: ValueError: HTA sees no device activity" in shown.err
    assert "Traceback" not in shown.err
    assert "traces asked: 1; HTA gave no figure to compare" in shown.err
    assert "agrees" not in shown.err


def test_a_trace_that_is_gone_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path / "trace.json", events())
    profile = tmp_path / "p.duckdb"
    assert run(["ingest", str(trace), "-o", str(profile)]) == 0
    trace.unlink()
    before = profile.read_bytes()
    capsys.readouterr()
    assert run(["hta", str(profile)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    line, hint = shown.err.splitlines()
    assert f"the trace of {profile} is gone: it was expected at {trace}" in line
    assert hint == "  put it back there, or ingest it again"
    assert profile.read_bytes() == before


def test_a_rank_whose_trace_is_gone_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, profile = tmp_path / "ranks", str(tmp_path / "p.duckdb")
    folder.mkdir()
    for rank in range(2):
        write_trace(folder / f"rank{rank}.json", events())
    assert run(["ingest", str(folder), "-o", profile]) == 0
    (folder / "rank0.json").unlink()
    capsys.readouterr()
    assert run(["hta", profile]) == 0
    shown = capsys.readouterr().err
    gone = f"the trace of {profile} is gone: it was expected at {folder / 'rank0.json'}"
    assert f"note: HTA was not asked: {gone}\n" in shown
    assert "traces asked: 1 of 2; HTA agrees on 2 of 7 figures" in shown


def test_what_is_no_profile_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hta", str(tmp_path / "absent.duckdb")]) == 2
    assert "no such profile" in capsys.readouterr().err
