"""Keep Kineto's own lines off stderr."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_LEVEL = "KINETO_LOG_LEVEL"
_NOTHING = "99"


@contextmanager
def quiet_kineto() -> Iterator[None]:
    """Set up a profiler in this block and Kineto prints nothing of its own.

    Kineto writes lines such as ``USDT:… profiler_start`` from C++, past any redirection in Python.
    It reads the level when a profiler is first set up and keeps it for the process (seen with torch
    2.11 and 2.13), so the variable is there for as long as the block only. A level that is set
    stands.
    """
    if _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = _NOTHING
    try:
        yield
    finally:
        os.environ.pop(_LEVEL, None)
