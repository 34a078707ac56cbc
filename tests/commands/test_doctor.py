"""``cb-trace doctor`` on this machine, and on one that lacks a half."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest

from cb_trace.bundle import open_bundle
from tests.commands.running import Cli


def test_it_finds_both_halves_and_a_working_profiler(cli: Cli) -> None:
    outcome = cli("doctor", "--format", "json")
    assert (outcome.status, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert document["schema_version"] == 1
    found = {item["topic"]: item for item in document["findings"]}
    assert found["reading half"]["state"] == "ok"
    assert "duckdb" in found["reading half"]["value"]
    assert found["recording half"]["state"] == "ok"
    assert found["module ranges"]["value"] == "recorded"
    assert found["nn.Module slices"]["value"] == "recorded"
    assert "processors" in found["CPU threads"]["value"]
    assert "quartiles" in found["timing noise"]["value"]


def test_it_tells_nothing_private(cli: Cli) -> None:
    out = cli("doctor").out
    private = {socket.gethostname(), str(Path.home()), str(Path.cwd())} - {"/"}
    assert not [text for text in private if text in out]
    assert f"/{getpass.getuser()}" not in out


def test_missing_halves_are_findings_not_errors(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cb_trace.commands.machine.installed", lambda name: False)
    outcome = cli("doctor")
    assert outcome.status == 0
    assert "bundles can be made, not read" in outcome.out
    assert "profiles can be read, not made" in outcome.out


def test_measured_ceilings_go_to_a_file_that_profile_takes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cb_trace.capture.ceilings._CPU_SHAPES", {"fp32": ((8, 8, 8),), "bf16": ()})
    monkeypatch.setattr("cb_trace.capture.ceilings._buffer_bytes", lambda _: 1 << 20)
    monkeypatch.setattr("cb_trace.commands.measuring.default_device", lambda: "cpu")
    target = tmp_path / "ceilings.json"
    outcome = cli("doctor", "--measure", "--format", "json", "-o", target)
    document = json.loads(outcome.out)
    assert [c["kind"] for c in document["ceilings"]] == [
        "matmul", "copy", "triad", "empty_event_pair", "eager_op",
    ]  # fmt: skip
    found = {item["topic"]: item["value"] for item in document["findings"]}
    assert found["matmul fp32"].endswith("FLOP/s at 8×8×8")
    assert found["copy"].endswith("B/s at 1 MiB")
    assert "datasheet" in found
    again = cli("doctor", "--measure", "-o", target)
    assert (again.status, "exists" in again.err) == (2, True)
    pair = "tests.commands.workloads:pair"
    arguments = ("--device", "cpu", "--steps", "1", "--budget", "1", "--ceilings", target)
    assert cli("profile", pair, *arguments, "-o", tmp_path / "pair.zip").status == 0
    kept = open_bundle(tmp_path / "pair.zip").manifest.ceilings
    assert [c.kind for c in kept] == [c["kind"] for c in document["ceilings"]]


def test_a_file_without_measuring_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("doctor", "-o", tmp_path / "ceilings.json")
    assert outcome.status == 2
    assert "add --measure" in outcome.err


def test_no_ceilings_file_is_said_before_recording(cli: Cli, tmp_path: Path) -> None:
    pair = "tests.commands.workloads:pair"
    outcome = cli(
        "profile",
        pair,
        "--device",
        "cpu",
        "--ceilings",
        tmp_path / "gone",
        "-o",
        tmp_path / "p.zip",
    )
    assert outcome.status == 2
    assert "cannot read" in outcome.err
    assert not list(tmp_path.iterdir())
