"""Blocks of text become staging tables, decoded by DuckDB; what it refuses is mended here.

A block is tried three times: straight into typed columns; as text, with a cast that may fail
value by value; and event by event after repair. Only the last makes Python objects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace.errors import CbTraceError
from cb_trace.trace import sql
from cb_trace.trace.document import Document
from cb_trace.trace.salvage import UNREADABLE, Salvaged, mend_last, salvage

if TYPE_CHECKING:
    import duckdb

TRUNCATED = "truncated tail"
LONG_NS = 30 * 60 * 10**9  # longer durations are looked at twice, see flaws.py

_KINDS = ("track", "op", "launch", "device", "frame", "annotation", "meta")
_GROUP = 12  # blocks of one statement: DuckDB reads one file a thread
_FIRST_GROUP = 4  # few, so that decoding begins early
_EXACT_FROM_NS = 2**43 * 1000  # doubles hold microseconds with three decimals below this
_AFTER_LIMIT = 64 << 20
_EVENT_LIMIT = 32 << 20  # real events are of a few kB; what grows beyond this is none
_FRACTION = re.compile(rb'"ts"\s*:\s*"?\d{13,}\.\d*[1-9]')
_BOOLEAN_TS = re.compile(rb'"ts"\s*:\s*(?:true|false)\b')
_BEFORE_INTEGER = re.compile(
    rb'"(?:correlation|device|stream|bytes|registers per thread|shared memory|graph (?:node )?id'
    rb'|External id|Sequence number|Fwd thread id|Python (?:parent )?id)"\s*:\s*\Z'
)
_NUMBER = re.compile(rb'("(?:ts|dur)"\s*:\s*)(-?\d[\d.eE+-]*)')


@dataclass(frozen=True, slots=True)
class FirstIds:
    """The first free identifier of each table."""

    thread: int
    op: int
    annotation: int
    python: int
    launch: int
    kernel: int


@dataclass(slots=True)
class Decoder:
    """Decodes one document's blocks into the staging tables."""

    connection: duckdb.DuckDBPyConnection
    document: Document
    folder: Path
    trace_id: int
    first: FirstIds
    counts: Counter[str] = field(default_factory=Counter)
    _rows: int = 0
    _exact: bool = False
    _old_names: bool = False
    _carry: bytes = b""
    _after: bytes | None = None

    def run(self, text: Iterator[bytes]) -> None:
        """Decode a whole document.

        :raises CbTraceError: the text is no trace, or several.
        """
        with ThreadPoolExecutor(1) as ahead:  # unpack the next group while DuckDB reads this one
            files = self._files(self.document.blocks(text))
            upcoming = ahead.submit(lambda: list(islice(files, _FIRST_GROUP)))
            while group := upcoming.result():
                upcoming = ahead.submit(lambda: list(islice(files, _GROUP)))
                self._load(group)
        self._end()

    def _files(self, blocks: Iterator[bytes | memoryview]) -> Iterator[Path]:
        for number, block in enumerate(blocks):
            if not number:  # the names of 2021; see source_exact.sql
                self._old_names = b'"external id"' in bytes(block)
            path = self.folder / f"block{number}.json"
            with path.open("wb") as stream:
                stream.writelines((b"[", block, b"]"))
            yield path

    def _load(self, group: list[Path]) -> None:
        if self._carry or self._after is not None or not self._read(group):
            for path in group:
                self._load_one(path)
        for path in group:
            path.unlink(missing_ok=True)

    def _load_one(self, path: Path) -> None:
        if self._after is not None:
            block = path.read_bytes()[1:-1]
            if len(self._after) < _AFTER_LIMIT:
                self._after += b"," + block
        elif self._read([path]):
            self._settle_carry()
        else:
            block = path.read_bytes()[1:-1]
            mended = salvage(self._carry + b"," + block if self._carry else block)
            self._carry, self._after = mended.rest, mended.after
            if len(self._carry) > _EVENT_LIMIT:
                size = f"{_EVENT_LIMIT >> 20} MB"
                raise CbTraceError(
                    f"{self.document.name} holds {size} without the end of an event",
                    hint="record the trace again",
                )
            self._insert(mended, path)

    def _settle_carry(self, *, last: bool = False) -> None:
        """Decide about text that was left over: the block after it began with a whole event."""
        if not self._carry:
            return
        carry, self._carry = self._carry, b""
        mended = mend_last(carry)
        if last and not (mended.events or mended.counts):
            mended = salvage(carry, last=True)
        self._insert(mended, self.folder / "carry.json")
        if not mended.rest:
            return
        if last and not self.document.closed:
            self.counts[TRUNCATED] += 1
            self.document.lost_bytes += len(mended.rest)
        else:
            self.counts[UNREADABLE] += 1

    def _insert(self, mended: Salvaged, path: Path) -> None:
        self.counts += mended.counts
        self._insert_events(mended.events, path)

    def _insert_events(self, events: list[bytes], path: Path) -> None:
        """Read mended events; those that still fail are found by halving."""
        if not events:
            return
        path.write_bytes(b"[" + b",\n".join(events) + b"]")
        if self._read([path]):
            return
        if len(events) == 1:
            self.counts[UNREADABLE] += 1
            return
        half = len(events) // 2
        self._insert_events(events[:half], path)
        self._insert_events(events[half:], path)

    def _end(self) -> None:
        if self._after is not None and not self.document.close(self._after):
            # the bracket did not end the events after all
            self._insert(salvage(self._after, last=True), self.folder / "after.json")
        self._settle_carry(last=True)

    # --- one group ----------------------------------------------------------------------------

    def _read(self, group: list[Path]) -> bool:
        """Decode files into their tables; False where DuckDB refuses one, with nothing kept."""
        import duckdb

        sources = ["source_fast", "source_exact"]
        if self._exact or self._old_names:
            sources = ["source_exact"]
        elif len(group) > 1:  # one odd block must not slow down the others
            sources = ["source_fast"]
        for source in sources:
            try:
                self._decode(group, source)
            except (duckdb.OutOfMemoryException, duckdb.IOException):
                raise
            except duckdb.Error:
                continue
            rows, latest, first_us, low_ids = sql.row(self.connection, sql.text("part_facts"))
            if source == "source_fast" and (
                (first_us and _any_has(_BOOLEAN_TS, group)) or (low_ids and _any_boolean(group))
            ):
                continue  # read as 0 or 1, and no number at all
            if not self._needs_no_decimals(group, latest):
                return False
            self._absorb(rows)
            return True
        return False

    def _decode(self, group: list[Path], source: str) -> None:
        if self._exact:
            for path in group:
                path.write_bytes(_NUMBER.sub(rb'\1"\2"', path.read_bytes()))
        script = sql.text("part").replace("/*source*/", sql.text(source))
        sql.run(self.connection, script, files=[str(path) for path in group])

    def _needs_no_decimals(self, group: list[Path], latest_ns: int | None) -> bool:
        """Where epoch microseconds carry a fraction, quote the numbers and read them again."""
        if self._exact or latest_ns is None or latest_ns < _EXACT_FROM_NS:
            return True
        self._exact = _any_has(_FRACTION, group)
        return not self._exact

    def _absorb(self, rows: int) -> None:
        """Sort the part's rows into their tables; identifiers follow the file, with gaps."""
        script = sql.text("total")
        kinds = {kind for (kind,) in sql.rows(self.connection, script, long_ns=LONG_NS)}
        if kinds - {"meta"}:
            kinds.add("track")
        for kind in _KINDS:
            if kind in kinds:
                sql.run(
                    self.connection,
                    sql.text(f"absorb_{kind}"),
                    trace_id=self.trace_id,
                    rows_before=self._rows,
                    first_thread=self.first.thread,
                    first_op=self.first.op,
                    first_annotation=self.first.annotation,
                    first_launch=self.first.launch,
                    first_kernel=self.first.kernel,
                )
        self._rows += rows


def _any_boolean(group: list[Path]) -> bool:
    """Whether one of the arguments that are read as integers is a boolean."""
    for path in group:
        text = path.read_bytes()
        for word in (b"true", b"false"):
            at = -1
            while (at := text.find(word, at + 1)) >= 0:
                if _BEFORE_INTEGER.search(text, max(0, at - 64), at):
                    return True
    return False


def _any_has(pattern: re.Pattern[bytes], group: list[Path]) -> bool:
    return any(pattern.search(path.read_bytes()) for path in group)
