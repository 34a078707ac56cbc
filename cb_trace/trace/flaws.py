"""Events whose time is wrong: lost, negative, overflowing, unfinished (traces.md rows 16, 17, 25).

Host events that cannot be placed are dropped, open ones are clamped to the trace's end. A device
event always stays, counts 0 where its duration is impossible, and says so in ``flaw``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cb_trace.trace import sql
from cb_trace.trace.decode import LONG_NS
from cb_trace.trace.results import Drop

if TYPE_CHECKING:
    import duckdb

MISSING = "missing duration"
CLAMPED = "unfinished, clamped to the trace end"
LOST_HOST = "host event without timing"

_EPOCH_NS = 10**12  # ts 0 beside times of at least this size is no time


@dataclass(frozen=True, slots=True)
class Span:
    """What the decoded events say about the trace's time."""

    slices: int
    first_ns: int
    end_ns: int
    resolution_ns: int


def settle(connection: duckdb.DuckDBPyConnection, trace_id: int) -> tuple[Span, list[Drop]]:
    """Mend the times in the staging tables.

    :return: the trace's span, and what was changed, by reason.
    """
    totals = sql.row(connection, sql.text("totals"))
    slices, missing, odd, zeros, first, last_start, last_end, fractions = totals
    drops = [Drop(MISSING, missing, 0)] if missing else []
    is_lost = bool(zeros) and first is not None and first >= _EPOCH_NS
    if first is None or (zeros and not is_lost):
        first = 0
    last_start = max(first, last_start or 0)
    end = max(last_start, last_end or 0)
    if is_lost and (dropped := sql.run(connection, sql.text("lose_host"), trace_id=trace_id)):
        drops.append(Drop(LOST_HOST, dropped))
        slices -= dropped
    if is_lost or odd:
        limit = max(LONG_NS, 2 * (last_start - first))
        found = sql.value(connection, sql.text("bounds"), trace_id=trace_id, limit_ns=limit)
        end = max(last_start, found or 0)
        drops += _clamp(connection, trace_id, is_lost=is_lost, limit=limit, end=end)
    return Span(int(slices), int(first), int(end), 1 if fractions else 1000), drops


def _clamp(
    connection: duckdb.DuckDBPyConnection, trace_id: int, *, is_lost: bool, limit: int, end: int
) -> list[Drop]:
    """Let device events of impossible time count 0 and clamp open host events to ``end``.

    A duration is impossible above ``limit``: half an hour, and twice the time between the first
    and the last start.
    """
    sql.run(connection, sql.text("flag_device"), is_lost=is_lost, limit=limit)
    flagged = connection.execute(
        "SELECT flaw, count(*), TRY_CAST(sum(abs(dur_ns)) AS BIGINT) FROM raw_device "
        "WHERE flaw <> $missing GROUP BY flaw ORDER BY flaw",
        {"missing": MISSING},
    ).fetchall()
    sql.run(connection, sql.text("void_device"))
    clamped = sql.run(connection, sql.text("clamp_host"), trace_id=trace_id, limit=limit, end=end)
    drops = [Drop(reason, events, ns) for reason, events, ns in flagged]
    return [*drops, Drop(CLAMPED, clamped)] if clamped else drops
