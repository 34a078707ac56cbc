"""Which annotations are the steps, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cb_trace import engine
from cb_trace.errors import CbTraceError
from cb_trace.trace import sql

if TYPE_CHECKING:
    import duckdb

# The profiler's own steps, else those of SGLang and vLLM (traces.md row 38).
STEP_PATTERNS = (r"^ProfilerStep#\d+", r"^step\[", r"^execute_\w*\d")
_SHOWN = 3  # names where a pattern matches none
_WIDTH = 40


def mark_steps(
    connection: duckdb.DuckDBPyConnection, trace_id: int, pattern: str | None
) -> str | None:
    """Find the step ranges.

    :return: where a pattern was given that no name matches, what names there are.
    :raises CbTraceError: the pattern is no regular expression.
    """
    patterns = STEP_PATTERNS if pattern is None else (pattern,) * 3
    given = {f"pattern_{at}": candidate for at, candidate in enumerate(patterns)}
    try:
        sql.run(connection, sql.text("step"), trace_id=trace_id, **given)
    except engine.module().InvalidInputException as error:
        raise CbTraceError(
            f"the step pattern {pattern!r} is no regular expression: {error}"[:300],
            hint="RE2 syntax, as in '^step\\['",
        ) from error
    if pattern is None or sql.value(connection, "SELECT count(*) FROM raw_step"):
        return None
    return f"the step pattern {pattern!r} matches {_names(connection, trace_id)}"


def _names(connection: duckdb.DuckDBPyConnection, trace_id: int) -> str:
    count, first = sql.row(connection, sql.text("step_candidates"), trace_id=trace_id, shown=_SHOWN)
    if not count:
        return "nothing, as this trace has no annotations"
    names = [name if len(name) <= _WIDTH else f"{name[: _WIDTH - 1]}…" for name in first]
    more = ", …" if count > len(names) else ""
    return f"none of the {count} names of annotations ({', '.join(names)}{more})"
