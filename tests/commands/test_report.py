"""``cb-trace report``: what it writes, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cb_trace.reporters import icicle_png
from tests.commands.running import Cli


def test_each_format_goes_to_its_own_name(cli: Cli, small: Path, tmp_path: Path) -> None:
    profile = tmp_path / "a.duckdb"
    profile.write_bytes(small.read_bytes())
    for given, name in (
        ("html", "a.report.html"),
        ("speedscope", "a.speedscope.json"),
        ("svg", "a.svg"),
    ):
        outcome = cli("report", profile, "--format", given)
        assert (outcome.status, outcome.out) == (0, "")
        assert f"Wrote {tmp_path / name}" in outcome.err
    assert (tmp_path / "a.report.html").read_text("utf-8").startswith("<!doctype html>")
    assert json.loads((tmp_path / "a.speedscope.json").read_bytes())["profiles"]
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")


def test_png_needs_a_browser(
    cli: Cli, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.png"
    if icicle_png.find_browser():
        assert cli("report", small, "--format", "png", "-o", target).status == 0
        assert target.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = cli("report", small, "--format", "png", "-o", target, "--force")
    assert outcome.status == 2
    assert "png needs Chromium or Chrome" in outcome.err


def test_nothing_is_overwritten_unasked(cli: Cli, small: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    target.write_text("mine")
    outcome = cli("report", small, "-o", target)
    assert outcome.status == 2
    assert "--force" in outcome.err
    assert target.read_text() == "mine"
    assert cli("report", small, "-o", target, "--force").status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", "7"], "holds no rank 7"),
        (["-o", "no/such/folder/x.html"], "no such folder"),
        (["--format", "svg", "--deployment", "graph", "-o", "x.svg"], "no deployment 'graph'"),
    ],
)
def test_mistakes_write_nothing(
    cli: Cli,
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("report", small, *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_serve_refuses_a_folder_that_is_no_ui(cli: Cli, small: Path, tmp_path: Path) -> None:
    outcome = cli("serve", small, "--perfetto-ui", tmp_path)
    assert outcome.status == 2
    assert "is no Perfetto UI" in outcome.err
