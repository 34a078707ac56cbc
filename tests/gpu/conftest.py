"""Tests that need a CUDA device; benchmarks/gpu_session.py runs them on a machine that has one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PyTorch deprecates itself differently in every version; ours is checked without a device."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for kind in ("DeprecationWarning", "FutureWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*TensorFloat32:UserWarning"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda", 0)
