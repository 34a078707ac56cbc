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


def test_what_is_no_profile_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hta", str(tmp_path / "absent.duckdb")]) == 2
    assert "no such profile" in capsys.readouterr().err
