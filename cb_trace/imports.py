"""Heavy imports, faster: only what is used, without garbage collection, beside other work."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread

SWITCH_S = 0.0002


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package whose names are imported when first used.

    :param homes: what each name stands for, by its full name.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].rpartition(".")
        found: object = getattr(import_module(module), attribute)
        setattr(sys.modules[package], name, found)
        return found

    return load


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


@contextmanager
def importing(*modules: str) -> Iterator[Callable[[], None]]:
    """Import modules while the block runs; for blocks that mostly wait for DuckDB.

    It gets a function to wait for all of them: two threads that import what needs one another may
    see the one half done.

    A thread that comes back from DuckDB waits a switch interval for the interpreter, 5 ms a
    statement by default.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    thread = Thread(target=_import, args=modules)
    thread.start()
    try:
        yield thread.join
    finally:
        thread.join()
        sys.setswitchinterval(before)


def _import(*modules: str) -> None:
    with suppress(Exception), uncollected():  # whoever needs one meets its error himself
        for module in modules:
            import_module(module)
