"""Profiles for the commands: one written by hand, one from a trace, one recorded here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cb_trace.conduct import ingest
from tests.commands.running import Cli
from tests.kineto import Event, annotation, event, kernel, launch, op, write_trace
from tests.reporters.profiles import write_profile


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hand-written profile with round figures; its trace file does not exist."""
    return write_profile(tmp_path_factory.mktemp("small") / "small.duckdb")


# Root 0..100, block 10..60 inside it; one kernel of each, and one before every range.
TRACE: list[Event] = [
    annotation("ProfilerStep#3", 0.0, 120.0),
    annotation("cb:<root>", 1.0, 99.0),
    annotation("cb:block", 10.0, 50.0),
    op("aten::mm", 11.0, 8.0),
    launch(12.0, 2.0, 1),
    launch(70.0, 2.0, 2),
    kernel("gemm", 20.0, 40.5, 1),
    kernel("relu", 75.125, 5.0, 2),
    event("python_function", "odd \\ name", 2.0, 1.0),
]


@pytest.fixture(scope="session")
def traced_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    trace = write_trace(folder / "trace.json.gz", TRACE, host_name="s3cret")
    ingest(trace, folder / "traced.duckdb")
    return folder


@pytest.fixture
def traced(traced_once: Path, tmp_path: Path) -> Path:
    """A profile of the hand-made trace beside it, to do anything with."""
    shutil.copytree(traced_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "traced.duckdb"
