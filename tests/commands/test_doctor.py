"""``cb-trace doctor`` on this machine, and on one that lacks a half."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest

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
