"""Heavy imports, faster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import without garbage collection.

    Imports make 300,000 objects that stay; looking for garbage among them takes a fifth of the
    time of polars, then and at each later look.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
