"""Traces of others become runs of a profile: one run a file, with the modules its slices name."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace import store
from cb_trace.columns import SCHEMA_VERSION
from cb_trace.errors import CbTraceError
from cb_trace.files import file_sha256, stored_path
from cb_trace.ingest_run import (
    Context,
    Ingest,
    analyse,
    attribute,
    events_of,
    keep,
    next_id,
)
from cb_trace.trace import LoadOptions, load_trace
from cb_trace.version import VERSION

if TYPE_CHECKING:
    import polars as pl

    from cb_trace.attribution import Backward, TraceEvents
    from cb_trace.bundle import Role
    from cb_trace.trace import LoadReport, Unpacked

TRACE_NAMES = (".json", ".json.gz", ".json.zst", ".json.zip", ".pftrace")


@dataclass(slots=True)
class _Frames:
    """A loaded trace, and the modules that it names."""

    events: TraceEvents
    autograd: Backward | None
    module: pl.DataFrame

    def attributed(self) -> TraceEvents:
        """Let go of what the figures do not need: of five million events 80 MB."""
        none = {"op": self.events.op.clear(), "python_module": self.events.python_module.clear()}
        self.events, self.autograd = replace(self.events, **none), None
        return self.events


def ingest_foreign(
    run: Ingest, source: Path, capture: Path | None, text: Unpacked | None = None
) -> list[str]:
    """Add each file of a source to a profile.

    :param capture: the trace in which the CUDA graphs of the one file were captured.
    :param text: the one file, where its unpacking has begun already.
    :returns: the runs.
    """
    run_ids: list[str] = []
    reports: list[LoadReport] = []
    for trace_id, file in enumerate(_trace_files(source)):
        sha256 = file_sha256(file)
        run_id = sha256[:12]
        run_id += f"-{trace_id}" if run_id in run_ids else ""  # a copy of another rank's file
        with _told_of_folder(source):
            report, frames = _load_foreign(
                run, file, trace_id, run_id, role="foreign", sha256=sha256, text=text
            )
        run_ids.append(run_id)
        reports.append(report)
        _attribute_foreign(run, trace_id, run_id, capture, frames)
    _separate_ranks(run, run_ids, reports)
    return run_ids


@contextmanager
def _told_of_folder(source: Path) -> Iterator[None]:
    """Say of a folder's file that is no trace what to do with it: a rank left out would mislead."""
    try:
        yield
    except CbTraceError as error:
        if not source.is_dir():
            raise
        hint = "; or move the file out of the folder, if it is no rank's trace"
        raise CbTraceError(error.message, hint=f"{error.hint}{hint}".lstrip("; ")) from error


def _load_foreign(
    run: Ingest,
    file: Path,
    trace_id: int,
    run_id: str,
    *,
    role: Role,
    sha256: str,
    text: Unpacked | None = None,
) -> tuple[LoadReport, _Frames]:
    """Load a file; its events are read while what the loader has to tell is gathered."""
    run.progress(f"reading {file.name}")
    frames: list[Future[_Frames]] = []
    with ThreadPoolExecutor(1) as pool:

        def read() -> None:
            if not frames:
                frames.append(pool.submit(_frames, run, trace_id, run_id))

        report = load_trace(
            run.connection,
            file,
            trace_id=trace_id,
            run_id=run_id,
            role=role,
            path=stored_path(file, run.target),
            sha256=sha256,
            options=run.load if role == "foreign" else LoadOptions(),
            text=text,
            linked=read,
        )
        read()
        run.imported()
        keep(run, run_id, report)
        if role == "foreign":
            _foreign_run(run, report, run_id, file.name.split(".")[0])
    return report, frames.pop().result()


def _frames(run: Ingest, trace_id: int, run_id: str) -> _Frames:
    """Read a loaded trace."""
    run.imported()
    from cb_trace import attribution

    with store.beside(run.connection) as reader:
        run = replace(run, connection=reader)
        events = events_of(run, trace_id)
        first = next_id(run, "module", "module_id")
    autograd = attribution.backward(events.op, events.step)
    module = attribution.foreign_modules(
        events, run_id=run_id, first_module_id=first, autograd=autograd
    )
    return _Frames(events, autograd, module)


def _attribute_foreign(
    run: Ingest, trace_id: int, run_id: str, capture: Path | None, frames: _Frames
) -> None:
    """From a trace's events to the figures of its modules."""
    with store.writing_ahead(run.connection) as writer:
        if capture is None:
            run = replace(run, writer=writer)
        run.append("module", frames.module)
        graphs, module = None, frames.module
        if capture is not None:
            graphs = _foreign_capture(run, capture, trace_id + 1, run_id, module)
            module = graphs.module
        context = attribute(
            run, frames.events, run_id, module,
            root_glue=False, source=graphs, autograd=frames.autograd,
        )  # fmt: skip
        writer.write()
        context = replace(context, events=frames.attributed())
        analyse(run, context, None, {})


def _foreign_capture(
    run: Ingest, file: Path, trace_id: int, run_id: str, module: pl.DataFrame
) -> Context:
    """What a CUDA graph was captured from: launches that did not run, else the kernels that did.

    Its ``module`` is the tree of both files.

    :raises CbTraceError: neither is in the file.
    """
    import polars as pl

    from cb_trace import attribution

    sha256 = file_sha256(file)
    _, frames = _load_foreign(run, file, trace_id, run_id, role="capture", sha256=sha256)
    theirs = attribution.capture_modules(module, frames.module)
    run.append("module", theirs)
    tree = pl.concat([module.filter(pl.col("path") == ""), theirs])
    ran = attribute(run, frames.events, run_id, tree, root_glue=False, autograd=frames.autograd)
    launched = attribution.captured(ran.events)
    if launched.kernel.is_empty() and ran.events.kernel.is_empty():
        raise CbTraceError(
            f"{file} does not say which kernels were captured: its launches name none",
            hint="HIP's do, CUDA's do not; give a trace of the same step run without the graph",
        )
    both = pl.concat([module, theirs])
    if launched.kernel.is_empty():
        return replace(ran, module=both)
    first = ran.found.module_call["call_id"].min()
    found = attribution.attribute(
        launched, tree, first_call_id=first if isinstance(first, int) else 0, root_glue=False
    )
    return Context(run_id, both, launched, found)


def _foreign_run(run: Ingest, report: LoadReport, run_id: str, name: str) -> None:
    """The run row of a foreign trace: what its header says, no more."""
    from cb_trace.bundle_frames import table_frame

    header = report.header
    origin_ns, first_ns, step_ns = run.connection.execute(
        "SELECT origin_ns, first_ns, (SELECT quantile_disc(window_ns, 0.5) FROM step WHERE "
        "step.trace_id = trace.trace_id) FROM trace WHERE trace_id = ?",
        [report.trace_id],
    ).fetchall()[0]
    row = {
        "run_id": run_id,
        "created_at": _moment(origin_ns + first_ns) if origin_ns and first_ns else None,
        "workload": name,
        "device_name": header.device_names[0] if header.device_names else None,
        "torch_version": header.torch_version,
        "cuda_version": header.cuda_version,
        "driver_version": header.driver_version,
        "tool_version": VERSION,
        "schema_version": SCHEMA_VERSION,
        "step_profiled_ns": step_ns,
    }
    run.append("run", table_frame("run", [row]))


def _moment(ns: int) -> datetime:
    """Nanoseconds since 1970 as a naive time in UTC, as DuckDB's TIMESTAMP has it."""
    return datetime(1970, 1, 1) + timedelta(microseconds=ns // 1000)


def _separate_ranks(run: Ingest, run_ids: list[str], reports: list[LoadReport]) -> None:
    """Give files that claim one rank, or none, the free numbers, and say so."""
    from cb_trace.bundle_frames import note_frame
    from cb_trace.notes import Note

    taken: set[int] = set()
    repeated: list[int] = []
    for report in reports:
        if report.rank in taken:
            repeated.append(report.trace_id)
        taken.add(report.rank)
    for trace_id in repeated:
        rank = next(n for n in range(len(run_ids)) if n not in taken)
        taken.add(rank)
        run.connection.execute("UPDATE trace SET rank = ? WHERE trace_id = ?", [rank, trace_id])
        said = f"two files have one rank; this one is {rank}"
        note = Note(reason="rank assigned", detail=said)
        run.append("note", note_frame(run_ids[trace_id], [note], {}))
        at = next(n for n, report in enumerate(run.reports) if report.trace_id == trace_id)
        told = run.reports[at]
        run.reports[at] = replace(told, rank=rank, notes=(*told.notes, said))


def check_name(file: Path) -> None:
    """:raises CbTraceError: the name is no UTF-8, so a profile could not hold it."""
    try:
        str(file).encode()
    except UnicodeEncodeError as error:
        raise CbTraceError(f"the name of {file} is not UTF-8", hint="rename it") from error


def _trace_files(source: Path) -> list[Path]:
    """The traces of a source: itself, or those in a folder by name.

    :raises CbTraceError: a folder without traces.
    """
    if not source.is_dir():
        return [source]
    found = sorted(p for p in source.iterdir() if p.name.endswith(TRACE_NAMES) and not p.is_dir())
    for file in found:
        if not file.is_file():  # left out in silence, it would be a missing rank
            raise CbTraceError(
                f"{file} is a broken link, a pipe or a device", hint="mend it, or move it elsewhere"
            )
        check_name(file)
    if not found:
        raise CbTraceError(
            f"{source} is neither a bundle nor a folder of traces",
            hint=f"it needs a manifest.json, or files that end in {', '.join(TRACE_NAMES[:2])}",
        )
    return found
