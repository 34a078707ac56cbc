"""Small typed frames to test the pure stages: name the columns that matter, the rest is null."""

from __future__ import annotations

from typing import Any

import polars as pl

from cb_trace.columns import polars_schema


def frame(table: str, *rows: dict[str, Any]) -> pl.DataFrame:
    """A frame with a table's full schema.

    :raises KeyError: a row names a column that the table does not have.
    """
    schema = polars_schema(table)
    if unknown := {key for row in rows for key in row} - set(schema):
        raise KeyError(f"{table} has no {sorted(unknown)}")
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in schema}, schema=schema, strict=True
    )
