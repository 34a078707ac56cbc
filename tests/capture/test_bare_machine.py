"""The recording half on a machine with torch, click and rich, and nothing of the reading half."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

from cb_trace.bundle import open_bundle
from tests.conftest import ROOT

ABSENT = ("polars", "duckdb", "pyarrow", "numpy", "pandas", "orjson", "isal")

RECORD = f"""
import sys, importlib.util
from pathlib import Path
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.output import bundle_at
from cb_trace.capture.record import record
from cb_trace.providers import load

assert not [name for name in {ABSENT} if importlib.util.find_spec(name)]
options = RecordOptions(bare_samples=3, bare_seconds=0.0, replay_seconds=1.0, steps=1)
small = {{"batch": 1, "seq": 8, "layers": 1}}
with bundle_at(Path("library.zip")) as folder:
    record(load("nanogpt", settings=small), folder, options, provider="nanogpt")
"""


def needed(*names: str) -> dict[str, Distribution]:
    """Distributions with all that they require and that is installed; optional extras are not."""
    found: dict[str, Distribution] = {}
    queue = list(names)
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in found or name in ABSENT:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # for another platform
            continue
        required = [r for r in found[name].requires or [] if "extra ==" not in r]
        queue += [re.match(r"[\w.-]+", r).group() for r in required]  # type: ignore[union-attr]
    return found


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with links to the few packages."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for dist in needed("torch", "click", "rich").values():
        tops = {file.parts[0] for file in dist.files or [] if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(dist.locate_file(top)))
    return folder / "bin" / "python"


def run(python: Path, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONWARNINGS", None)
    command = [str(python), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_library_records_a_bundle(bare_python: Path, tmp_path: Path) -> None:
    run(bare_python, tmp_path, "-c", RECORD)
    manifest = open_bundle(tmp_path / "library.zip").manifest
    assert {t.role for t in manifest.traces} == {"context", "isolated"}
    assert any(replay.samples_ns for replay in manifest.replays)


def test_the_command_line_records_a_bundle(bare_python: Path, tmp_path: Path) -> None:
    small = ("--set", "batch=1", "--set", "seq=8", "--set", "layers=1", "--device", "cpu")
    command = ("-m", "cb_trace", "profile", "nanogpt", *small, "--budget", "2", "-o", "b.zip")
    run(bare_python, tmp_path, *command)
    assert any(replay.samples_ns for replay in open_bundle(tmp_path / "b.zip").manifest.replays)
