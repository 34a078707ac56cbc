"""An empty profile in memory, and a loader into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cb_trace.columns import TABLES
from cb_trace.trace import LoadReport, load_trace

Loader = Callable[..., LoadReport]


def empty_profile() -> duckdb.DuckDBPyConnection:
    """A connection that has the tables of a profile, empty."""
    connection = duckdb.connect()
    for table, schema in TABLES.items():
        columns = ", ".join(f'"{name}" {kind}' for name, kind in schema.items())
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
    return connection


@pytest.fixture
def profile() -> Iterator[duckdb.DuckDBPyConnection]:
    with empty_profile() as connection:
        yield connection


@pytest.fixture
def load(profile: duckdb.DuckDBPyConnection) -> Loader:
    """Load a file as trace 0 of a foreign run; keywords as of ``load_trace``."""

    def loader(file: Path, **given: Any) -> LoadReport:
        known = {"trace_id": 0, "run_id": "run", "role": "foreign", "path": file.name}
        return load_trace(profile, file, **{**known, **given})

    return loader
