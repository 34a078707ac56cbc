"""Blocks of text become staging tables, decoded by DuckDB; what it refuses is mended here.

A block is tried three times: straight into typed columns; as text, with a cast that may fail
value by value; and event by event after repair. Only the last makes Python objects.
"""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace import engine
from cb_trace.errors import CbTraceError
from cb_trace.interrupts import interruptible
from cb_trace.trace import sql
from cb_trace.trace.unpacked import Unpacked

if TYPE_CHECKING:
    import duckdb

    from cb_trace.trace.salvage import Salvaged

TRUNCATED = "truncated tail"
_NO_EVENT = "what follows the last whole event is none, not even one cut off"
_MALFORMED = "Malformed JSON"  # as DuckDB says it
LONG_NS = 30 * 60 * 10**9  # longer durations are looked at twice, see flaws.py

# In a database of their own in memory, which every cursor sees; the last is for what is mended.
_PARTS = ("stage.part0", "stage.part1", "stage.mended")
_KINDS = ("track", "op", "launch", "device", "frame", "annotation", "meta")
_EXACT_FROM_NS = 2**43 * 1000  # doubles hold microseconds with three decimals below this
_AFTER_LIMIT = 64 << 20
_EVENT_LIMIT = 32 << 20  # real events are of a few kB; what grows beyond this is none
# As text: compiled where one is needed, which is seldom.
_FRACTION = rb'"ts"\s*:\s*"?\d{13,}\.\d*[1-9]'
_BOOLEAN_TS = rb'"ts"\s*:\s*(?:true|false)\b'
_BEFORE_INTEGER = (
    rb'"(?:correlation|device|stream|bytes|registers per thread|shared memory|graph (?:node )?id'
    rb'|External id|Sequence number|Fwd thread id|Python (?:parent )?id)"\s*:\s*\Z'
)
_NUMBER = rb'("(?:ts|dur)"\s*:\s*)(-?\d[\d.eE+-]*)'


@dataclass(frozen=True, slots=True)
class FirstIds:
    """The first free identifier of each table."""

    thread: int
    op: int
    annotation: int
    python: int
    launch: int
    kernel: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """A group of blocks, and whether DuckDB took them, where that was begun ahead."""

    group: list[Path]
    part: str
    decoded: Future[bool | None] | None


@dataclass(slots=True)
class Decoder:
    """Decodes one document's blocks into the staging tables."""

    connection: duckdb.DuckDBPyConnection
    text: Unpacked
    trace_id: int
    first: FirstIds = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)
    damage: str | None = None  # a fault of the text that is no cut
    rows: int = 0
    _groups: int = 0
    _exact: bool = False
    _carry: bytes = b""
    _after: bytes | None = None

    def run(self) -> None:
        """Decode a whole document.

        :raises CbTraceError: the text is no trace, or several.
        """
        self.connection.execute("ATTACH IF NOT EXISTS ':memory:' AS stage")
        with interruptible(self.connection.cursor()) as beside, ThreadPoolExecutor(1) as pool:
            beside.execute("SET enable_progress_bar = false")
            begun = (self._begin(group, pool, beside) for group in self.text.groups())
            before = next(begun, None)
            self._prepare()
            while before is not None:
                following = next(begun, None)
                self._finish(before)
                before = following
        self._end()

    def _prepare(self) -> None:
        """Make the tables for what is decoded, while the first group is."""
        sql.run(self.connection, sql.text("staging"))
        self.first = FirstIds(*sql.row(self.connection, sql.text("first_ids")))

    def _begin(
        self, group: list[Path], pool: ThreadPoolExecutor, beside: duckdb.DuckDBPyConnection
    ) -> _Begun:
        """Decode a group while the one before it is sorted into its tables.

        A guess that the one before it has nothing to mend, and that this one needs no mending.
        """
        self._groups += 1
        part = _PARTS[self._groups % 2]
        if len(group) == 1 or self._is_mending() or self._exact or self.text.old_names:
            return _Begun(group, part, None)
        return _Begun(group, part, pool.submit(_decode, beside, group, "source_fast", part))

    def _finish(self, begun: _Begun) -> None:
        group, whole = begun.group, False
        decoded = begun.decoded is not None and begun.decoded.result()
        if not self._is_mending():
            if begun.decoded is None or self._exact:
                whole = self._read(group)
            else:
                whole = bool(decoded) and self._keep(group, "source_fast", begun.part) is True
        for path in group:
            if not whole:
                self._load_one(path)
            path.unlink(missing_ok=True)

    def _is_mending(self) -> bool:
        """Whether what came before is not settled: block by block then."""
        return bool(self._carry) or self._after is not None

    def _load_one(self, path: Path) -> None:
        if self._after is not None:
            block = path.read_bytes()[1:-1]
            if len(self._after) < _AFTER_LIMIT:
                self._after += b"," + block
        elif self._read([path]):
            self._settle_carry()
        else:
            from cb_trace.trace.salvage import salvage

            block = path.read_bytes()[1:-1]
            mended = salvage(self._carry + b"," + block if self._carry else block)
            self._carry, self._after = mended.rest, mended.after
            if len(self._carry) > _EVENT_LIMIT:
                size = f"{_EVENT_LIMIT >> 20} MB"
                raise CbTraceError(
                    f"{self.text.document.name} holds {size} without the end of an event",
                    hint="record the trace again",
                )
            self._insert(mended, path)

    def _settle_carry(self, *, last: bool = False) -> None:
        """Decide about text that was left over: the block after it began with a whole event."""
        if not self._carry:
            return
        from cb_trace.trace.salvage import UNREADABLE, cut_short, mend_last, salvage

        carry, self._carry = self._carry, b""
        mended = mend_last(carry)
        if last and not (mended.events or mended.counts):
            mended = salvage(carry, last=True)
        self._insert(mended, self.text.folder / "carry.json")
        if not mended.rest:
            return
        if last and not self.text.document.closed:
            cut = cut_short(carry)
            self.damage = None if cut else _NO_EVENT
            self.counts[TRUNCATED if cut else UNREADABLE] += 1
            self.text.document.lost_bytes += len(mended.rest)
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
            from cb_trace.trace.salvage import UNREADABLE

            self.counts[UNREADABLE] += 1
            return
        half = len(events) // 2
        self._insert_events(events[:half], path)
        self._insert_events(events[half:], path)

    def _end(self) -> None:
        if self._after is not None and not self.text.document.close(self._after):
            # the bracket did not end the events after all
            from cb_trace.trace.salvage import salvage

            self._insert(salvage(self._after, last=True), self.text.folder / "after.json")
        self._settle_carry(last=True)

    # --- one group ----------------------------------------------------------------------------

    def _read(self, group: list[Path]) -> bool:
        """Decode files into their tables; False where DuckDB refuses one, with nothing kept."""
        sources = ["source_fast", "source_exact"]
        if self._exact or self.text.old_names:
            sources = ["source_exact"]
        elif len(group) > 1:  # one odd block must not slow down the others
            sources = ["source_fast"]
        for source in sources:
            if self._exact:
                for path in group:
                    path.write_bytes(re.sub(_NUMBER, rb'\1"\2"', path.read_bytes()))
            decoded = _decode(self.connection, group, source, _PARTS[-1])
            if decoded is None:
                break
            if not decoded:
                continue
            kept = self._keep(group, source, _PARTS[-1])
            if kept is not None:
                return kept
        return False

    def _keep(self, group: list[Path], source: str, part: str) -> bool | None:
        """Sort what was decoded into its tables; False or None where it must be read otherwise.

        :return: None where another source may do, False where none does as the blocks stand.
        """
        sql.run(self.connection, _of_part("summary", part), long_ns=LONG_NS)
        rows, latest, first_us, low_ids = sql.row(self.connection, sql.text("part_facts"))
        if source == "source_fast" and (
            (first_us and _any_has(_BOOLEAN_TS, group)) or (low_ids and _any_boolean(group))
        ):
            return None  # read as 0 or 1, and no number at all
        if not self._needs_no_decimals(group, latest):
            return False
        self._absorb(rows, part)
        return True

    def _needs_no_decimals(self, group: list[Path], latest_ns: int | None) -> bool:
        """Where epoch microseconds carry a fraction, quote the numbers and read them again."""
        if self._exact or latest_ns is None or latest_ns < _EXACT_FROM_NS:
            return True
        self._exact = _any_has(_FRACTION, group)
        return not self._exact

    def _absorb(self, rows: int, part: str) -> None:
        """Sort the part's rows into their tables; identifiers follow the file, with gaps."""
        kinds = {kind for (kind,) in sql.rows(self.connection, sql.text("total"))}
        if kinds - {"meta"}:
            kinds.add("track")
        for kind in _KINDS:
            if kind in kinds:
                sql.run(
                    self.connection,
                    _of_part(f"absorb_{kind}", part),
                    trace_id=self.trace_id,
                    rows_before=self.rows,
                    first_thread=self.first.thread,
                    first_op=self.first.op,
                    first_annotation=self.first.annotation,
                    first_launch=self.first.launch,
                    first_kernel=self.first.kernel,
                )
        self.rows += rows
        self.connection.execute(f"DROP TABLE {part}")


def _decode(
    connection: duckdb.DuckDBPyConnection, group: list[Path], source: str, part: str
) -> bool | None:
    """Decode files into a table of their own; False where DuckDB refuses one.

    None where it does for text that is no JSON, which no other source reads either.
    """
    duckdb = engine.module()
    script = _of_part("part", part).replace("/*source*/", sql.text(source))
    try:
        sql.run(connection, script, files=[str(path) for path in group])
    except (duckdb.OutOfMemoryException, duckdb.IOException, duckdb.InterruptException):
        raise
    except duckdb.Error as error:
        return None if _MALFORMED in str(error) else False
    return True


def _of_part(name: str, part: str) -> str:
    """The statements of a script, on one of the tables that groups are decoded into."""
    return sql.text(name).replace("FROM raw_part", f"FROM {part} AS raw_part").replace(
        "TABLE raw_part", f"TABLE {part}"
    )  # fmt: skip


def _any_boolean(group: list[Path]) -> bool:
    """Whether one of the arguments that are read as integers is a boolean."""
    before = re.compile(_BEFORE_INTEGER)
    for path in group:
        text = path.read_bytes()
        for word in (b"true", b"false"):
            at = -1
            while (at := text.find(word, at + 1)) >= 0:
                if before.search(text, max(0, at - 64), at):
                    return True
    return False


def _any_has(pattern: bytes, group: list[Path]) -> bool:
    return any(re.search(pattern, path.read_bytes()) for path in group)
