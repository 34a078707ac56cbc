"""From the staging tables of a decoded file to its linked rows, and what there is to tell."""

from __future__ import annotations

from collections.abc import Callable

from cb_trace.trace import link, sql
from cb_trace.trace.decode import Decoder, FirstIds
from cb_trace.trace.flaws import Span, settle
from cb_trace.trace.part import select_part
from cb_trace.trace.report import Job, report, store
from cb_trace.trace.results import Drop, LoadReport
from cb_trace.trace.steps import mark_steps

__all__ = ["Job", "complete"]

_MANY_ROWS = 1_000_000
_SKEW_NS = 1_000_000  # how far host and device clocks may disagree (traces.md row 25)


def complete(job: Job, decoder: Decoder, linked: Callable[[], None]) -> LoadReport:
    """Fill the tables that ``load_trace`` does from what was decoded, and clear that away.

    :param linked: called when only trace and drop are left to be filled; not for a large trace,
        which is better read when the memory that loading it took is free again.
    """
    span, drops = settle(job.connection, job.trace_id)
    unlinked, unmatched = _link(job, decoder.first, span)
    sql.run(job.connection, sql.text("clear"))
    if decoder.rows < _MANY_ROWS:
        linked()
    found = report(job, decoder, span, drops + unlinked, unmatched)
    store(job, found, span)
    return found


def _link(job: Job, first: FirstIds, span: Span) -> tuple[list[Drop], str | None]:
    """From staging tables to the final rows, linked; a part of them where the options say so.

    :return: what could not be linked, and what :func:`mark_steps` has to say.
    """
    connection, trace_id = job.connection, job.trace_id
    unmatched = mark_steps(connection, trace_id, job.options.step_pattern)
    link.link_launches(connection, trace_id)
    drops = link.link_kernels(connection)
    drops += link.link_modules(connection, trace_id, first.python)
    drops += select_part(connection, trace_id, span.first_ns, job.options, unmatched)
    sql.run(connection, sql.text("kernel"), trace_id=trace_id, skew_ns=_SKEW_NS)
    sql.run(connection, sql.text("finish"), trace_id=trace_id)
    if job.cpu_kernels:
        link.link_cpu_kernels(connection, trace_id, first.kernel)
    return drops, unmatched
