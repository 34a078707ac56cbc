"""What the replay tests share as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def compiler() -> Iterator[None]:
    """The compiler, which forgets afterwards what it compiled."""
    yield
    torch._dynamo.reset()
