"""A trace's text as files of whole events, unpacked and cut in a thread beside other work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from cb_trace.parts import scratch_folder
from cb_trace.trace.document import Document
from cb_trace.trace.source import Source

_GROUP = 12  # blocks of one statement: DuckDB reads one file a thread
_FIRST_GROUP = 6  # fewer: while the next is decoded they are sorted into their tables


class Unpacked:
    """One trace file; the thread works from ``with`` on, at most two groups of blocks ahead.

    What is wrong with the file is raised by ``groups``, in the thread that asks for them.
    """

    def __init__(self, file: Path) -> None:
        self.source = Source(file)
        self.document = Document(file.name)
        self.old_names = False  # the names of 2021; see source_exact.sql
        self.folder = Path()
        self._scratch = ExitStack()
        self._ahead = ThreadPoolExecutor(1)
        self._upcoming: Future[list[Path]] | None = None
        self._files = self._cut()

    def __enter__(self) -> Unpacked:
        self.folder = self._scratch.enter_context(scratch_folder())
        self._upcoming = self._submit(_FIRST_GROUP)
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.shutdown(cancel_futures=True)
        self._scratch.close()

    def groups(self) -> Iterator[list[Path]]:
        """Yield files of a JSON list each, in order; whoever takes them removes them.

        :raises CbTraceError: the text is no trace, or several.
        """
        while self._upcoming is not None and (group := self._upcoming.result()):
            self._upcoming = self._submit(_GROUP)
            yield group

    def _submit(self, count: int) -> Future[list[Path]]:
        return self._ahead.submit(lambda: list(islice(self._files, count)))

    def _cut(self) -> Iterator[Path]:
        for number, block in enumerate(self.document.blocks(self.source.blocks())):
            if not number:
                self.old_names = b'"external id"' in bytes(block)
            path = self.folder / f"block{number}.json"
            with path.open("wb") as stream:
                stream.writelines((b"[", block, b"]"))
            yield path
