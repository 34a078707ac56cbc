"""Copy a Kineto file's events through untouched and append events of our own.

The file is never turned into Python objects: a window of bytes moves over it, one regular
expression takes as many whole JSON values as it can at a time, and DuckDB's parser proves each
such piece before it is written. What is not JSON is mended where that cannot change a value
(bytes that are no UTF-8, control characters, NaN), else left out and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cb_trace.errors import CbTraceError
from cb_trace.trace_file import HEADER_KEYS

if TYPE_CHECKING:
    import duckdb

BLOCK_BYTES = 4 << 20
LARGEST_VALUE_BYTES = 256 << 20
_NESTING = 12

_STRING = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_LOOSE_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SCALARS = rb"[\s,:0-9.eE+\-]++|true|false|null"
_LOOSE_SCALARS = rb'[^"\[\]{}]++'


def _nested(string: bytes, scalars: bytes) -> bytes:
    """Pattern of a string, a run of scalars, or brackets around such, some levels deep."""
    inner = string + b"|" + scalars
    for _ in range(_NESTING):
        inner = string + b"|" + scalars + rb"|[\[{](?:" + inner + rb")*+[\]}]"
    return inner


_RUN = re.compile(rb"(?:" + _nested(_STRING, _SCALARS) + rb")*+")
_BRACKETED = rb"[\[{](?:" + _nested(_LOOSE_STRING, _LOOSE_SCALARS) + rb")*+[\]}]"
_LOOSE = re.compile(_BRACKETED, re.DOTALL)
_VALUE = re.compile(_LOOSE_STRING + rb"|[^\s\"\[\]{},:]++|" + _BRACKETED, re.DOTALL)
_NEXT_EVENT = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|args|pid)"\s*:)')
_MENDED = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_UNSAFE = re.compile(rb'[\x00-\x1f]|\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})(.)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What the copy could not take over as it was."""

    mended: int  # events written with escapes where the file had bytes that JSON forbids
    dropped: int  # places where text was no JSON and was left out
    truncated: bool  # the file ends inside the event array


class _Window:
    """The part of a stream that is being looked at: ``data`` from ``position`` on."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self.data = b""
        self.position = 0
        self.ended = False
        self.more()
        if self.data.startswith(b"\xef\xbb\xbf"):
            self.position = 3

    def more(self) -> bool:
        """Read another block; False at the end."""
        block = b"" if self.ended else self._read()
        self.ended = not block
        if block:
            self.data = self.data[self.position :] + block
            self.position = 0
        return bool(block)

    def peek(self) -> bytes:
        """The next byte that is neither space nor comma; empty at the end."""
        while True:
            while self.data[self.position : self.position + 1] in _SEPARATORS:
                self.position += 1
            if self.position < len(self.data) or not self.more():
                return self.data[self.position : self.position + 1]

    def value(self) -> bytes | None:
        """Take one whole JSON value; None where the stream ends within it."""
        self.peek()
        while True:
            found = _VALUE.match(self.data, self.position)
            if found and (found.end() < len(self.data) or self.ended):
                self.position = found.end()
                return found.group()
            if len(self.data) - self.position > LARGEST_VALUE_BYTES or not self.more():
                return found.group() if found and self.ended else None


_SEPARATORS = frozenset({b" ", b"\t", b"\r", b"\n", b","})


class _Events:
    """Iterates over the event array in whole, valid pieces of text."""

    def __init__(self, window: _Window) -> None:
        self._window = window
        self.mended = 0
        self.dropped = 0
        self.truncated = False

    def __iter__(self) -> Iterator[bytes]:
        window = self._window
        while window.peek() != b"]":
            run = _RUN.match(window.data, window.position)
            if run and run.end() > window.position:
                window.position = run.end()
                yield from self._proven(run.group())
            elif not window.peek():
                self.truncated = True
                return
            else:
                yield from self._odd_event()
        window.position += 1

    def _proven(self, piece: bytes) -> Iterator[bytes]:
        """A piece as it is where it parses as a whole, else its events one by one."""
        text, repaired = _as_utf8(piece.strip(b" \t\r\n,"))
        self.mended += repaired
        if _is_json(b"[" + text + b"]"):
            yield text
            return
        for found in _VALUE.finditer(text):
            if _is_json(found.group()):
                yield found.group()
            else:
                self.dropped += 1

    def _odd_event(self) -> Iterator[bytes]:
        """One event the fast pattern stopped at: cut by the window's end, or not clean JSON."""
        window = self._window
        found = _LOOSE.match(window.data, window.position)
        if found is not None:
            text, _ = _as_utf8(_MENDED.sub(_mend, found.group()))
            if _is_json(text):
                window.position = found.end()
                self.mended += 1
                yield text
                return
        elif len(window.data) - window.position < LARGEST_VALUE_BYTES and window.more():
            return
        self._skip_to_next_event()

    def _skip_to_next_event(self) -> None:
        window = self._window
        following = _NEXT_EVENT.search(window.data, window.position)
        while following is None and window.more():
            following = _NEXT_EVENT.search(window.data, window.position)
        self.dropped += 1
        window.position = len(window.data) if following is None else following.end()


def copy_trace(
    source: Path,
    out: IO[bytes],
    appended: Iterable[bytes],
    *,
    ahead: Iterable[bytes] = (),
    windows: Sequence[tuple[int, int]] = (),
) -> CopyReport:
    """Write ``source`` with more events before and after those of its array.

    :param source: a Kineto file, compressed or not; told by content.
    :param appended: events as JSON text, one each.
    :param ahead: the same, to stand before the file's own.
    :param windows: stretches of time, ns; events outside all of them are left out. Empty: none are.
    :raises CbTraceError: the file holds no event array.
    """
    with source.open("rb") as raw:
        window = _Window(_reader(raw))
        first = window.peek()
        window.position += 1
        out.write(b"{")
        found = _copy_header(window, out, last=False) if first == b"{" else first == b"["
        if not found:
            raise CbTraceError(
                f"{source.name} is no Kineto trace: it holds no traceEvents",
                hint="pass a profile whose trace came from torch.profiler",
            )
        out.write(b'"traceEvents": [\n')
        events = _Events(window)
        kept = _inside(events, windows) if windows else events
        _write_joined(out, ahead, kept, appended)
        out.write(b"\n]")
        if first == b"{" and not events.truncated:
            _copy_header(window, out, last=True)
        out.write(b"}\n")
    return CopyReport(events.mended, events.dropped, events.truncated)


def _copy_header(window: _Window, out: IO[bytes], *, last: bool) -> bool:
    """Copy allowed keys up to the event array (True) or to the end of the document (False)."""
    while window.peek() == b'"':
        name = window.value()
        if name is None or window.peek() != b":":
            return False
        window.position += 1
        if name == b'"traceEvents"' and not last and window.peek() == b"[":
            window.position += 1
            return True
        value = window.value()
        if value is None:
            return False
        if name.strip(b'"').decode("ascii", "replace") in HEADER_KEYS and _is_json(value):
            pair = name + b": " + value
            out.write(b",\n" + pair if last else pair + b",\n")
    return False


def _inside(pieces: Iterable[bytes], windows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """The events of whole pieces that have no time, or one that touches a window."""
    for piece in pieces:
        found = [m.group() for m in _VALUE.finditer(piece) if _touches(m.group(), windows)]
        if found:
            yield b",\n".join(found)


def _touches(event: bytes, windows: Sequence[tuple[int, int]]) -> bool:
    import orjson

    try:
        fields = orjson.loads(event)
        # Only chosen by this number, never written: a double is near enough.
        start = 1000 * float(fields["ts"])
        end = start + 1000 * float(fields.get("dur") or 0)
        timeless = fields.get("ph") == "M"
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError, AttributeError):
        return True
    return timeless or any(start <= last and end >= first for first, last in windows)


def _write_joined(out: IO[bytes], *parts: Iterable[bytes]) -> None:
    separator = b""
    for part in parts:
        for text in part:
            out.write(separator + text)
            separator = b",\n"


def _reader(raw: IO[bytes]) -> Callable[[], bytes]:
    """A function that gives the next block of plain text, empty at the end.

    A damaged gzip gives what stands before the damage.
    """
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    if not packed:
        return lambda: raw.read(BLOCK_BYTES)
    blocks = _gunzipped(raw)
    return lambda: next(blocks, b"")


def _gunzipped(raw: IO[bytes]) -> Iterator[bytes]:
    from isal import isal_zlib

    packed = raw.read(BLOCK_BYTES)
    while packed:  # one turn a gzip member: writers may append another
        member = isal_zlib.decompressobj(wbits=31)
        while packed and not member.eof:
            try:
                text = member.decompress(packed, BLOCK_BYTES)
            except isal_zlib.IsalError:  # type: ignore[misc]  # its stub types the class as an instance
                return
            if text:
                yield text
            packed = member.unconsumed_tail or member.unused_data or raw.read(BLOCK_BYTES)
        if not member.eof and (rest := member.flush()):
            yield rest


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """A connection of our own, so that nobody's pending result is replaced."""
    import duckdb

    return duckdb.connect()


def _is_json(text: bytes) -> bool:
    try:
        row = _parser().execute("SELECT json_valid(?)", [text.decode("utf-8")]).fetchone()
    except UnicodeDecodeError:
        return False
    return bool(row and row[0])


def _as_utf8(text: bytes) -> tuple[bytes, int]:
    """Bytes that are no UTF-8 as JSON escapes of the same number, and how many there were."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        decoded = text.decode("utf-8", "surrogateescape")
        odd = sum("\udc80" <= c <= "\udcff" for c in decoded)
        return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]) - 0xDC00:04x}", decoded).encode(), odd
    return text, 0


_SURROGATE = re.compile("[\udc80-\udcff]")


def _mend(found: re.Match[bytes]) -> bytes:
    text = found.group()
    if not text.startswith(b'"'):
        return json.dumps(text.decode("ascii")).encode()
    return _UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[bytes]) -> bytes:
    if found[1] is not None:  # a backslash before a letter that JSON does not escape
        return b"\\\\" + found[1]
    return b"\\u%04x" % found[0][0]
