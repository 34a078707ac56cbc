"""The named queries: documented .sql files that run unchanged here and in the DuckDB client."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cb_trace.errors import CbTraceError

_FOLDER = Path(__file__).parent.parent / "queries"
_COLUMN = re.compile(r"^  (\w+) {2,}(\S.*)$")
_NO_ROWS = "No rows: "
_VARIABLE = re.compile(r"getvariable\('(\w+)'\)")


@dataclass(frozen=True, slots=True)
class Query:
    """A query and what its header says.

    ``columns`` maps each result column to its meaning and unit, in order; ``no_rows`` says what it
    means if there are none; ``variables`` are the DuckDB variables it reads, each with a default.
    """

    name: str
    question: str
    columns: dict[str, str]
    no_rows: str
    example: str
    variables: tuple[str, ...]
    sql: str


def named_queries() -> list[Query]:
    """Every query that ships, by name."""
    return [_load(name) for name in _names()]


def named_query(name: str) -> Query:
    """One query.

    :raises CbTraceError: there is none of that name; close ones are named.
    """
    if name in _names():
        return _load(name)
    close = difflib.get_close_matches(name, _names(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(_names())}"
    raise CbTraceError(f"no query named {name!r}", hint=hint)


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.sql")))


@cache
def _load(name: str) -> Query:
    """Read a query's file and its header in comments: question, Columns, No rows, Example."""
    sql = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    header = [line[3:] for line in sql.splitlines() if line.startswith("-- ")]
    columns_at, example_at = header.index("Columns:"), header.index("Example:")
    found = [_COLUMN.match(line) for line in header[columns_at + 1 : example_at]]
    return Query(
        name=name,
        question=" ".join(header[:columns_at]).strip(),
        columns={match[1]: match[2] for match in found if match},
        no_rows=next(line for line in header if line.startswith(_NO_ROWS)).removeprefix(_NO_ROWS),
        example=" ".join(line.strip() for line in header[example_at + 1 :]).strip(),
        variables=tuple(dict.fromkeys(_VARIABLE.findall(sql))),
        sql=sql,
    )
