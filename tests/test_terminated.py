"""SIGTERM unwinds: exit status 143, the old output intact, nothing left beside it or elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cb_trace.conduct import ingest
from tests.bundles import write_net_bundle

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def begun(tmp_path: Path, temporary: Path) -> Callable[..., subprocess.Popen[str]]:
    def begin(*arguments: str | Path) -> subprocess.Popen[str]:
        environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-m", "cb_trace", *map(str, arguments)], cwd=tmp_path, text=True,
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return begin


def terminated(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its status and what it says last, after two signals as ``timeout`` sends them."""
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    return process.returncode, said.splitlines()[-1]


@pytest.mark.parametrize("where", ["step", "alone"])
def test_a_recording(
    where: str, tmp_path: Path, temporary: Path, begun: Callable[..., subprocess.Popen[str]]
) -> None:
    """Also while modules are alone, where Ctrl-C keeps what was measured and goes on."""
    old = tmp_path / "p.duckdb"
    old.write_text("old")
    workload = ["profile", "tests.commands.workloads:waiting", "--set", f"where={where}"]
    process = begun(*workload, "--device", "cpu", "-o", old, "--force")
    assert process.stderr is not None
    assert "waiting" in process.stderr.readline()
    assert len(list(tmp_path.iterdir())) == 3  # there is something to clear away
    assert terminated(process) == (143, "cb-trace: terminated")
    assert set(tmp_path.iterdir()) == {old, temporary}
    assert old.read_text() == "old"
    assert list(temporary.iterdir()) == []


def test_a_report_that_is_served(
    tmp_path: Path, temporary: Path, begun: Callable[..., subprocess.Popen[str]]
) -> None:
    source = write_net_bundle(tmp_path / "bundle")
    ingest(source, tmp_path / "p.duckdb")
    process = begun("serve", tmp_path / "p.duckdb")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://")
    assert len(list(temporary.iterdir())) == 1
    assert terminated(process) == (143, "cb-trace: terminated")
    assert list(temporary.iterdir()) == []
