"""What several packages share: where the real traces lie, and what is made once a test run."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests import compiler

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("CB_TRACE_SHARED", ROOT.parent / "shared")) / "traces"
SAMPLES = ROOT / "sample_traces"

Ingested = Callable[[Path], Path]


def pytest_configure(config: pytest.Config) -> None:
    """Workers inherit the compiler."""
    if "PYTEST_XDIST_WORKER" not in os.environ and hasattr(config, "cache"):
        compiler.install(Path(config.cache.mkdir("compiler")))


def pytest_runtest_setup() -> None:
    """The compiler counts graphs from 0, as in a process of its own: kernels bear the numbers."""
    if "torch._inductor.compile_fx" in sys.modules:
        vars(sys.modules["torch._inductor.compile_fx"])["_graph_counter"] = count()


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of real traces that are not part of this repository."""
    if not SHARED.is_dir():
        pytest.skip(f"no real traces: {SHARED} is absent (set CB_TRACE_SHARED)")
    return SHARED


@pytest.fixture(scope="session")
def sample_traces() -> Path:
    """The recordings that ship with the repository."""
    return SAMPLES


@pytest.fixture(scope="session")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """The profile of a recording, made once for all workers: to be read, not written."""
    from cb_trace.conduct import ingest  # not on a machine that only records

    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    folder = run / "ingested"
    folder.mkdir(exist_ok=True)

    def profile(source: Path) -> Path:
        target = folder / f"{source.stem}.duckdb"
        with (folder / f"{source.stem}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            if not target.exists():
                ingest(source, target)
        return target

    return profile
