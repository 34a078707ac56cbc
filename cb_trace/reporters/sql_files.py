"""Run the reporters' own SQL files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BATCH = 10_000


def fetch(connection: DuckDBPyConnection, name: str, **given: Any) -> list[dict[str, Any]]:
    """Every row of a file's result, by column name."""
    return list(stream(connection, name, **given))


def stream(connection: DuckDBPyConnection, name: str, **given: Any) -> Iterator[dict[str, Any]]:
    """The rows one by one, few of them in memory at a time."""
    cursor = connection.cursor()  # of its own: several results are read at once
    result = cursor.execute(_text(name), given)
    names = [column[0] for column in result.description or ()]
    while batch := result.fetchmany(_BATCH):
        for values in batch:
            yield dict(zip(names, values, strict=True))


@cache
def _text(name: str) -> str:
    return files("cb_trace.reporters").joinpath("sql", f"{name}.sql").read_text("utf-8")
