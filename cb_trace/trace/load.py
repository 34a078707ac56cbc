"""One trace file into the event tables of a temporary profile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace.trace import sql
from cb_trace.trace.decode import Decoder, FirstIds
from cb_trace.trace.flaws import Span, settle
from cb_trace.trace.options import Drop, LoadOptions, LoadReport
from cb_trace.trace.part import select_part
from cb_trace.trace.report import Job, report, store
from cb_trace.trace.steps import mark_steps
from cb_trace.trace.unpacked import Unpacked

if TYPE_CHECKING:
    import duckdb

    from cb_trace.bundle import Role

_SKEW_NS = 1_000_000  # how far host and device clocks may disagree (traces.md row 25)


def load_trace(
    connection: duckdb.DuckDBPyConnection,
    file: Path,
    *,
    trace_id: int,
    run_id: str,
    role: Role,
    path: str,
    sha256: str | None = None,
    cpu_kernels: bool = False,
    options: LoadOptions = LoadOptions(),  # noqa: B008  (frozen)
    text: Unpacked | None = None,
    linked: Callable[[], None] = lambda: None,
) -> LoadReport:
    """Fill the tables trace, thread, step, annotation, python_module, op, launch, kernel and drop.

    The tables exist; identifiers go on from the largest in each. Times are the file's own
    ``ts × 1000``, exact. The connection must not be in a transaction: groups of blocks are
    committed one by one so that memory stays bounded. On an error the tables hold part of the
    trace and the profile must be thrown away.

    :param path: how the profile names the file, see :func:`cb_trace.bundle.stored_path`.
    :param cpu_kernels: our own recording on the CPU: one ``kernel`` row a stretch of an
        operator's self time. In foreign traces without device events ``kernel`` stays empty.
    :param text: the file, where its unpacking has begun already.
    :param linked: called when all tables but trace and drop are filled.
    :raises CbTraceError: no file, not a trace, several traces in one, or a bad option.
    """
    job = Job(
        connection=connection,
        trace_id=trace_id,
        run_id=run_id,
        role=role,
        path=path,
        sha256=sha256,
        cpu_kernels=cpu_kernels,
        options=options,
    )
    with sql.limits(connection), nullcontext(text) if text else Unpacked(file) as unpacked:
        try:
            decoder = Decoder(connection, unpacked, trace_id)
            span, drops, unmatched = _fill(job, decoder)
            linked()
            found = report(job, decoder, span, drops, unmatched)
            store(job, found, span)
        finally:
            connection.execute("DROP TABLE IF EXISTS raw_total; DROP TABLE IF EXISTS raw_wait")
    return found


def _fill(job: Job, decoder: Decoder) -> tuple[Span, list[Drop], str | None]:
    """From the text to the final rows, with nothing left of what was between.

    :return: the span, what was changed or not linked, and what :func:`mark_steps` has to say.
    """
    try:
        decoder.run()
        span, drops = settle(job.connection, job.trace_id)
        unlinked, unmatched = _link(job, decoder.first, span)
    finally:
        sql.run(job.connection, sql.text("clear"))
    return span, drops + unlinked, unmatched


def _link(job: Job, first: FirstIds, span: Span) -> tuple[list[Drop], str | None]:
    """From staging tables to the final rows, linked; a part of them where the options say so.

    :return: what could not be linked, and what :func:`mark_steps` has to say.
    """
    from cb_trace.trace import link  # numpy: not before the first blocks are being decoded

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
