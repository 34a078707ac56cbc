"""Open a profile for reading: ours, whole, and of a schema this version knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.errors import CbTraceError
from cb_trace.imports import uncollected
from cb_trace.interrupts import interruptible

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MAGIC = b"DUCK"
_MAGIC_AT = 8
_MAKE_ONE = "make one with 'cb-trace ingest' or 'cb-trace profile'"


def open_profile(path: Path) -> DuckDBPyConnection:
    """Open a profile read-only.

    The connection reaches no other file: a view in a stranger's profile must not read yours.

    :raises CbTraceError: no such file, not a DuckDB file, not a profile, or of another schema.
    """
    _check_file(path)
    connection = _connect(path)
    try:
        _check_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise CbTraceError(f"{path} is a folder, not a profile", hint=_MAKE_ONE)
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise CbTraceError(f"{path} is a pipe or a device, not a profile", hint=_MAKE_ONE)
    try:
        with path.open("rb") as stream:
            magic = stream.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:]
    except FileNotFoundError as error:
        raise CbTraceError(f"no such profile: {path}", hint="check the path") from error
    except OSError as error:
        raise CbTraceError(f"cannot read {path}: {error.strerror}") from error
    if magic != _MAGIC:
        raise CbTraceError(f"{path} is not a profile: no DuckDB file", hint=_MAKE_ONE)


def _connect(path: Path) -> DuckDBPyConnection:
    with uncollected():
        import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    try:
        return interruptible(duckdb.connect(path, read_only=True, config=config))
    except duckdb.Error as error:
        cause = str(error).splitlines()[0]
        raise CbTraceError(f"cannot open {path}: {cause}") from error


def _check_schema(connection: DuckDBPyConnection, path: Path) -> None:
    import duckdb

    try:
        # fetchall, not fetchone: an unfinished result blocks the connection.
        version = connection.execute("SELECT max(schema_version) FROM run").fetchall()[0][0]
    except duckdb.Error:
        version = None
    if version is None:
        raise CbTraceError(f"{path} is a DuckDB file but no profile of cb-trace", hint=_MAKE_ONE)
    if version > SCHEMA_VERSION:
        raise CbTraceError(
            f"{path} was written by a newer cb-trace (schema {version}; this one reads "
            f"{SCHEMA_VERSION})",
            hint="upgrade cb-trace",
        )
    if version < SCHEMA_VERSION:
        raise CbTraceError(
            f"{path} has schema {version}; this cb-trace reads {SCHEMA_VERSION}",
            hint="ingest its bundle again",
        )
