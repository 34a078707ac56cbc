"""The statements of ``sql/*.sql``, run with named parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace import engine
from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    import duckdb

_FOLDER = Path(__file__).with_name("sql")
_PARAMETER = re.compile(r"\$([a-z][a-z0-9_]*)")
_NEEDS_EACH = re.compile(r"\$|^(?:DELETE|UPDATE)", re.MULTILINE)
_END = re.compile(r";\s*(?:\n|\Z)")

# Temporary tables count against the limit and spill to disk beyond it. Below about 500 MB DuckDB
# reads with one thread (5 M events: 39 s at 384 MB, 19 s at 640 MB, for 70 MB more at the peak).
MEMORY_LIMIT = "640MB"
_SETTINGS: dict[str, Any] = {
    "memory_limit": MEMORY_LIMIT,
    "threads": 2,
    "checkpoint_threshold": "256MB",
    "enable_progress_bar": False,  # it would go to stdout
}


@cache
def text(name: str) -> str:
    """The text of ``sql/NAME.sql``."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def run(connection: duckdb.DuckDBPyConnection, script: str, **parameters: Any) -> int:
    """Run every statement of a script; each takes the parameters that it names.

    :return: how many rows the statements changed, where they say so.
    """
    if not _NEEDS_EACH.search(script):
        connection.execute(script)  # at once: a script of a dozen statements takes 10 ms less
        return 0
    changed = 0
    for statement in filter(str.strip, _END.split(script)):
        named = set(_PARAMETER.findall(statement))
        connection.execute(statement, {key: parameters[key] for key in named})
        if statement.startswith(("DELETE", "UPDATE")):
            changed += (connection.fetchone() or (0,))[0]
    return changed


def rows(
    connection: duckdb.DuckDBPyConnection, query: str, **parameters: Any
) -> list[tuple[Any, ...]]:
    """The rows that a query gives."""
    return connection.execute(query, parameters or None).fetchall()


def row(connection: duckdb.DuckDBPyConnection, query: str, **parameters: Any) -> tuple[Any, ...]:
    """The one row that a query gives."""
    found = connection.execute(query, parameters or None).fetchone()
    assert found is not None
    return found


def value(connection: duckdb.DuckDBPyConnection, query: str, **parameters: Any) -> Any:
    """The one value that a query gives."""
    return row(connection, query, **parameters)[0]


@contextmanager
def limits(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Bound DuckDB's memory and threads, and keep it quiet, while a file loads; then restore.

    A connection that has one thread keeps to it.
    """
    wanted = ", ".join(f"current_setting('{name}')" for name in _SETTINGS)
    before = dict(zip(_SETTINGS, row(connection, f"SELECT {wanted}"), strict=True))
    fewest = min(_SETTINGS["threads"], before["threads"])
    try:
        _set(connection, _SETTINGS | {"threads": fewest})
        yield
    except engine.module().OutOfMemoryException as error:
        raise CbTraceError(
            f"the trace does not fit the memory limit of {MEMORY_LIMIT}: {error}"[:300],
            hint="load a part of it with --window or --steps",
        ) from error
    finally:
        _set(connection, before)


def _set(connection: duckdb.DuckDBPyConnection, settings: dict[str, Any]) -> None:
    connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
