"""DuckDB's engine without its Python package, started in a thread beside other imports.

``import duckdb`` takes 0.16 s, of which 0.04 are the engine that it wraps; starting one takes 0.06
more, most of it without Python's lock. The engine runs every statement; only relations and frames
as Arrow need the package, which whoever begins early imports meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Of a profile in the making, which is thrown away if its writer is killed: nothing is synced
# before the end.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "fsync_mode": "NONE",
}


class _Start(Thread):
    """An engine that starts; without a connection where that failed."""

    connection: DuckDBPyConnection | None = None

    def run(self) -> None:
        with suppress(Exception):  # connect meets it again
            self.connection = module().connect(config=_SETTINGS)


_begun: list[_Start] = []


def module() -> Any:
    """What of ``duckdb`` needs no more than the engine: ``connect``, the errors, the version."""
    with suppress(ImportError):  # another version may have it elsewhere
        engine = import_module("_duckdb")
        if hasattr(engine, "connect") and hasattr(engine, "Error"):
            return engine
    return import_module("duckdb")


def begin() -> None:
    """Start an engine for the next :func:`connect`."""
    if not _begun:
        _begun.append(_Start())
        _begun[0].start()


def connect(temporary: str) -> DuckDBPyConnection:
    """A connection to an engine of its own, to write a profile by.

    :param temporary: the folder for what does not fit the memory.
    :raises duckdb.Error: it does not start.
    """
    begun = _begun.pop() if _begun else None
    if begun is not None:
        begun.join()
        if begun.connection is not None:
            begun.connection.execute("SET temp_directory = ?", [temporary])
            return begun.connection
    connection: DuckDBPyConnection = import_module("duckdb").connect(
        config=_SETTINGS | {"temp_directory": temporary}
    )
    return connection
