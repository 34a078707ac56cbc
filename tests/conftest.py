"""Fixtures that several packages share: where the real traces lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("CB_TRACE_SHARED", ROOT.parent / "shared")) / "traces"
SAMPLES = ROOT / "sample_traces"


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
