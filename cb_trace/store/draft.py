"""A profile while it is being written: a hidden file beside its target, renamed when whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace import engine
from cb_trace.columns import polars_schema
from cb_trace.errors import CbTraceError
from cb_trace.files import check_output
from cb_trace.interrupts import interruptible
from cb_trace.parts import part_beside, remove_part
from cb_trace.store.template import empty_profile, run_script

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

_MANY_ROWS = 100_000
_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class Draft:
    """A profile in the making: the tables and views exist."""

    connection: DuckDBPyConnection
    target: Path


@contextmanager
def create(target: Path, *, force: bool = False) -> Iterator[Draft]:
    """Make a profile at ``target``; it appears there only when the block ends without an error.

    :param force: replace a profile that is there. Until the end, and after an error or a kill,
        the old one is intact.
    :raises CbTraceError: the target exists and ``force`` is off, its folder cannot be written, or
        there is no room.
    """
    check_output(target, force=force)
    part = part_beside(target)
    try:
        with _in_one_line(target):
            connection = _new_database(part, target)
            try:
                yield Draft(connection, target)
                run_script(connection, "finish.sql")
                if connection.execute("SELECT 1 FROM replay LIMIT 1").fetchall():
                    run_script(connection, "finish_isolated.sql")
                connection.execute("CHECKPOINT")
            finally:
                connection.close()
            check_output(target, force=force)
            _sync(part)
            part.replace(target)
    finally:
        remove_part(part)


@contextmanager
def beside(connection: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Another connection to the draft that a connection is to, for another thread."""
    with interruptible(connection.cursor()) as cursor:
        cursor.execute("USE profile")
        yield cursor


@dataclass(frozen=True, slots=True)
class Writer:
    """Fills a draft's tables in a thread, in the order asked for."""

    _cursor: DuckDBPyConnection
    _pool: ThreadPoolExecutor
    _appends: list[Future[None]] = field(default_factory=list)

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """As :func:`append`, some time before the writer's block ends; at once where it is large.

        Then it would take memory beside the figures, where a large trace needs the most.
        """
        self._appends.append(self._pool.submit(append, self._cursor, table, frame))
        if frame.height > _MANY_ROWS:
            self.settle()

    def write(self) -> None:
        """Write to the disk what the tables hold.

        Only a head start: what fails here fails again at the end, and is told there.
        """
        self._pool.submit(_write, self._cursor)

    def settle(self) -> None:
        """Wait for all that was appended.

        :raises ValueError: as :func:`append`.
        """
        for appended in self._appends:
            appended.result()


@contextmanager
def writing_ahead(connection: DuckDBPyConnection) -> Iterator[Writer]:
    """Write to the disk what a draft's tables hold, and more rows, beside the work of the block."""
    with beside(connection) as cursor, ThreadPoolExecutor(1) as pool:
        writer = Writer(cursor, pool)
        writer.write()
        yield writer
        writer.settle()


def _write(cursor: DuckDBPyConnection) -> None:
    found = cursor.execute("SELECT path FROM duckdb_databases() WHERE database_name = 'profile'")
    for (path,) in found.fetchall():
        cursor.execute("CHECKPOINT profile")
        _sync(Path(path))


def _sync(part: Path) -> None:
    """Make sure that the file is on the disk before its name is."""
    with part.open("rb+") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _in_one_line(target: Path) -> Iterator[None]:
    """Turn what a full disk does, here and in the block, into one line."""
    duckdb = engine.module()
    try:
        yield
    except (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException) as error:
        cause = str(error).splitlines()[0]
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        cause = str(error)
    else:
        return
    raise CbTraceError(f"cannot write {target}: {cause}", hint="is there room on the disk?")


def append(connection: DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
    """Append a frame to a table of :data:`cb_trace.columns.TABLES`.

    :raises ValueError: the frame's columns or types are not the table's.
    """
    expected = polars_schema(table)
    if dict(frame.schema) != expected or frame.columns != list(expected):
        wrong = {n: t for n, t in frame.schema.items() if expected.get(n) != t}
        raise ValueError(f"{table}: unfit columns {wrong}, absent {expected.keys() - frame.schema}")
    if frame.height == 0:
        return
    connection.register("_appended", _Stream(frame))
    try:
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM _appended')  # noqa: S608 (a key of TABLES)
    finally:
        connection.unregister("_appended")


@dataclass(frozen=True, slots=True)
class _Stream:
    """A frame as an Arrow stream: DuckDB imports pyarrow, 0.05 s, for a frame as such."""

    frame: pl.DataFrame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.frame.__arrow_c_stream__(requested_schema)


def _new_database(part: Path, target: Path) -> DuckDBPyConnection:
    try:
        return interruptible(empty_profile(part))
    except (engine.module().Error, OSError) as error:
        cause = str(error).splitlines()[0]
        raise CbTraceError(
            f"cannot write {target}: {cause}", hint="choose a folder you can write to"
        ) from error
