"""One trace file into the event tables of a temporary profile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace.trace import sql
from cb_trace.trace.decode import Decoder
from cb_trace.trace.options import LoadOptions
from cb_trace.trace.unpacked import Unpacked

if TYPE_CHECKING:
    import duckdb

    from cb_trace.bundle import Role
    from cb_trace.trace.results import LoadReport


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
    :param linked: called when all tables but trace and drop are filled; not for a large trace.
    :raises CbTraceError: no file, not a trace, several traces in one, or a bad option.
    """
    with sql.limits(connection), nullcontext(text) if text else Unpacked(file) as unpacked:
        decoder = Decoder(connection, unpacked, trace_id)
        try:
            decoder.run()
            # with numpy: not before the first blocks are being decoded
            from cb_trace.trace.complete import Job, complete

            job = Job(
                connection=connection, trace_id=trace_id, run_id=run_id, role=role, path=path,
                sha256=sha256, cpu_kernels=cpu_kernels, options=options,
            )  # fmt: skip
            return complete(job, decoder, linked)
        except BaseException:
            sql.run(connection, sql.text("clear"))
            raise
        finally:
            connection.execute("DROP TABLE IF EXISTS raw_total; DROP TABLE IF EXISTS raw_wait")
