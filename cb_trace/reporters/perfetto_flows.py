"""Arrows from the modules to their kernels. The UI follows them both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cb_trace.reporters import perfetto_events as events
from cb_trace.reporters.perfetto_events import Kernel, Placed, Windows, touches
from cb_trace.reporters.perfetto_rows import Source
from cb_trace.reporters.sql_files import stream

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Connection

_WHOLE = 0.9995


class Flows:
    """One arrow from a module's slice to each of its kernels, made while they are read.

    A kernel of several modules has one from each, named by its share.
    """

    def __init__(
        self,
        connection: Connection,
        source: Source,
        pid: int,
        placed: Sequence[Placed],
        windows: Windows,
    ) -> None:
        self._connection = connection
        self._source = source
        self._pid = pid
        self._placed: Mapping[object, Placed] = {item.slice.key: item for item in placed}
        self._windows = windows
        self._ids: dict[tuple[object, str], int] = {}
        self.early = 0  # kernels before their module, which get none

    def __iter__(self) -> Iterator[bytes]:
        for row in stream(self._connection, "perfetto_kernels", trace_id=self._source.trace_id):
            call = self._placed.get(row["call_id"])
            if call is not None:
                names = ("kernel_id", "pid", "tid", "start_ns")
                kernel = (*(row[name] for name in names), float(row["share"]))
                yield from self._arrow(call, kernel)
        for item in self._placed.values():
            for kernel in item.slice.kernels:
                yield from self._arrow(item, kernel)

    def _arrow(self, item: Placed, kernel: Kernel) -> Iterator[bytes]:
        kernel_id, pid, tid, start_ns, share = kernel
        if not touches(self._windows, start_ns, 0):
            return
        if start_ns < item.slice.start_ns:
            self.early += 1
            return
        name = "runs" if share > _WHOLE else f"{100 * share:.3g} % of the kernel"
        flow = self._ids.get((item.slice.key, name))
        if flow is None:
            flow = self._ids[item.slice.key, name] = len(self._ids)
            yield events.flow_start(self._pid, item, flow, name)
        copy = self._placed.get(("copy", kernel_id))
        if copy is not None:  # the file's own slice may not be drawn
            pid, tid = str(self._pid), str(copy.tid)
        yield events.flow_end(flow, name, pid, tid, start_ns)
