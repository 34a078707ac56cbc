"""Loading a part of a trace: a window of time, or some of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cb_trace.errors import CbTraceError
from cb_trace.trace import sql
from cb_trace.trace.options import LoadOptions
from cb_trace.trace.results import Drop

if TYPE_CHECKING:
    import duckdb

OUTSIDE = "outside window"


def select_part(
    connection: duckdb.DuckDBPyConnection,
    trace_id: int,
    first_ns: int,
    options: LoadOptions,
    unmatched: str | None,
) -> list[Drop]:
    """Remove what lies outside the options' window and steps.

    Host events stay where they touch the window, launches where they start in it, kernels where
    their launch (else they themselves) start in it, steps where they lie in it whole.

    :param unmatched: what there is to say of a step pattern that no name matches.
    :raises CbTraceError: the options name no time or no step of this trace.
    """
    window = _window(connection, first_ns, options, unmatched)
    if window is None:
        return []
    low, high = window
    events, ns = sql.row(connection, sql.text("outside"), low=low, high=high)
    sql.run(connection, sql.text("part_window"), trace_id=trace_id, low=low, high=high)
    return [Drop(OUTSIDE, events, ns)] if events else []


def _window(
    connection: duckdb.DuckDBPyConnection,
    first_ns: int,
    options: LoadOptions,
    unmatched: str | None,
) -> tuple[int, int] | None:
    window = None
    if options.window_ns is not None:
        low, high = options.window_ns
        if low >= high:
            raise CbTraceError(
                f"the window {low}:{high} is empty", hint="give START:END with START < END"
            )
        window = first_ns + low, first_ns + high
    if options.steps is not None:
        steps = _steps(connection, options.steps, unmatched)
        window = steps if window is None else (max(window[0], steps[0]), min(window[1], steps[1]))
    return window


def _steps(
    connection: duckdb.DuckDBPyConnection, steps: tuple[int, int], unmatched: str | None
) -> tuple[int, int]:
    sql.run(connection, sql.text("numbered_step"))
    low, high = sql.row(
        connection,
        "SELECT min(start_ns), max(start_ns + dur_ns) FROM numbered_step "
        "WHERE number BETWEEN $first AND $last",
        first=steps[0],
        last=steps[1],
    )
    if low is None:
        first, last = sql.row(connection, "SELECT min(number), max(number) FROM numbered_step")
        known = unmatched or "it has no steps" if first is None else f"its steps are {first}-{last}"
        raise CbTraceError(
            f"no step {steps[0]}-{steps[1]} in this trace; {known}",
            hint="see the names in the trace, or name steps by a pattern",
        )
    return int(low), int(high)
