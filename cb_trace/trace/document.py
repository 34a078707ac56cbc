"""The text of a trace, cut into blocks of whole events without parsing any of them.

A cut is only a guess that the decoder proves: the first block starts at a true boundary, so if
``[block]`` parses, its end is a true boundary too. A wrong guess fails to parse and is mended by
:mod:`cb_trace.trace.salvage`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cb_trace.errors import CbTraceError
from cb_trace.trace.header import object_in
from cb_trace.trace.not_a_trace import check_text, no_events

BLOCK = 4 << 20  # bytes of one block
_LEAST = 1 << 20
_HEAD_LIMIT = 64 << 20
_PROBE = 1 << 12
_HEAD = 1 << 16
_MOST_OPENINGS = 8  # tried in a header; each costs a parse of the text before it
_SPACE = b" \t\r\n"
_SEPARATORS = _SPACE + b","
_LEADING = re.compile(rb"[ \t\r\n,]*")
_FIRST = re.compile(rb"[ \t\r\n]*([^ \t\r\n]?)")

_EVENTS = b'"traceEvents"'
_OPENING = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_EVENT_KEY = rb'\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:'
_CUTS = (
    re.compile(rb"\}\s*,(?=\s*\{" + _EVENT_KEY + rb")"),
    re.compile(rb"\}\s*,(?=\s*\{)"),
    re.compile(rb"\}(?=\s*\{)"),
)
_CLOSING = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}|\Z))')


@dataclass(slots=True)
class Document:
    """One trace file's text: header parts around the events, and how the end looked."""

    name: str
    before: bytes = b"{"
    after: bytes = b""
    closed: bool = False  # the end of traceEvents was found
    lost_bytes: int = 0
    _buffer: bytearray = field(default_factory=bytearray)

    def blocks(self, text: Iterator[bytes]) -> Iterator[bytes | memoryview]:
        """Yield blocks of events, separators at both ends removed.

        A block may be a view that the next step of the iterator releases: whole copies of a
        large file cost more than cutting it.

        :raises CbTraceError: the text is no Kineto trace, or several documents.
        """
        text = _without_mark(text)
        if not self._open(text):
            return
        for piece in text:
            while len(self._buffer) > BLOCK and len(self._buffer) + len(piece) > 2 * BLOCK:
                if not (end := _cut(self._buffer, BLOCK, exact=False)):
                    break
                yield from self._take(end)
            self._buffer += piece
            if blank := _LEADING.match(self._buffer):
                blank_end = blank.end()
                del self._buffer[:blank_end]
            while len(self._buffer) > 2 * BLOCK:
                yield from self._take(_cut(self._buffer, BLOCK))
        yield from self._finish()

    # --- the beginning ------------------------------------------------------------------------

    def _open(self, text: Iterator[bytes]) -> bool:
        """Move past the opening bracket of the events; False where the file has no events."""
        buffer, searched, start = self._buffer, 0, b""
        candidates: list[tuple[int, int]] = []
        for piece in text:
            buffer += piece
            if not start:
                check_text(self.name, bytes(buffer[:_PROBE]))
                start = _first(buffer)
                if start == b"[":
                    return self._open_list()
            for span in _openings(buffer, max(0, searched - 64)):
                candidates.append(span)
                if _header_before(buffer[: span[0]]) is not None:
                    return self._begin(*span)
                if len(candidates) == _MOST_OPENINGS:
                    return self._begin(*candidates[0])
            searched = len(buffer)
            if searched > _HEAD_LIMIT:
                break
        if candidates:  # a broken header, then, and no nested traceEvents
            return self._begin(*candidates[0])
        no_events(self.name, bytes(buffer), whole=searched <= _HEAD_LIMIT)
        self.closed = True
        return False

    def _begin(self, start: int, end: int) -> bool:
        self.before = bytes(self._buffer[:start])
        del self._buffer[:end]
        return True

    def _open_list(self) -> bool:
        """Begin a list of events without a header (traces.md row 5)."""
        buffer = self._buffer
        del buffer[: buffer.index(b"[") + 1]
        found = next(_openings(buffer[:_HEAD]), None)
        header = _header_before(buffer[: found[0]]) if found else None
        if header is not None and "ph" not in header:
            raise CbTraceError(
                f"{self.name} is a list of traces, one document each",
                hint="write each document to a file of its own and give their folder",
            )
        return True

    # --- the end ------------------------------------------------------------------------------

    def _finish(self) -> Iterator[bytes | memoryview]:
        buffer = self._buffer
        if _first(buffer) == b"]":
            at = buffer.index(b"]")
            self.close(bytes(buffer[at + 1 :]))
            return
        end = self._find_end()
        if end is not None:
            after = bytes(buffer[end:])
            del buffer[end:]
            self.close(after[after.index(b"]") + 1 :])
        elif last := _cut(buffer, len(buffer), exact=False):
            tail = bytes(buffer[last:])
            del buffer[last:]
            yield from self._pieces()
            yield tail.strip(_SEPARATORS)
            return
        yield from self._pieces()

    def _pieces(self) -> Iterator[bytes | memoryview]:
        """Hand out the rest in at least four pieces where that pays: one decoder thread each."""
        size = min(BLOCK, max(_LEAST, len(self._buffer) // 4 + 1))
        while len(self._buffer) > size + size // 2:
            yield from self._take(_cut(self._buffer, size))
        if rest := bytes(self._buffer).strip(_SEPARATORS):
            yield rest
        self._buffer.clear()

    def _take(self, end: int) -> Iterator[memoryview]:
        leading = _LEADING.match(self._buffer, 0, end)
        start, stop = leading.end() if leading else 0, end
        while start < stop and self._buffer[stop - 1] in _SEPARATORS:
            stop -= 1
        with memoryview(self._buffer) as whole, whole[start:stop] as block:
            yield block
        del self._buffer[:end]

    def _find_end(self) -> int | None:
        """Where the events end: the first closing bracket after which the rest parses.

        Looked for in the last 64 KB first; an earlier true end then fails to parse as events and
        is found by the salvage, which reads event by event.
        """
        buffer, seen = self._buffer, len(self._buffer)
        for span in (1 << 16, 1 << 20, len(buffer)):
            start = max(0, len(buffer) - span)
            for found in _CLOSING.finditer(buffer, start):
                if found.start() >= seen:
                    break
                bracket = found.end()
                if header_after(bytes(buffer[bracket:])) is not None:
                    return found.start() + 1
            seen = start
            if not start:
                break
        return None

    def close(self, text: bytes) -> bool:
        """Take what follows the events' closing bracket; count what cannot be read as lost.

        :return: False where it cannot be read at all.

        :raises CbTraceError: another document follows (traces.md row 8).
        """
        self.closed = True
        used = header_after(text)
        if used is None:  # a Windows path, say
            from cb_trace.trace.salvage import escapes

            text = escapes(text.decode("utf-8", "replace")).encode()
            used = header_after(text)
        if used is None:
            self.lost_bytes += len(text)
            return False
        self.after, rest = text[:used], text[used:].strip(_SPACE + b"\0")
        if any(_openings(self.after)) and "traceEvents" in (object_in(b'{"":0' + self.after) or {}):
            raise CbTraceError(
                f"{self.name} holds two traceEvents lists",
                hint="keep one; readers of JSON take the last, viewers the first",
            )
        if rest[:1] in (b"{", b"["):
            raise CbTraceError(
                f"{self.name} holds several JSON documents one after the other",
                hint="split it into one file a trace; were they joined with cat?",
            )
        self.lost_bytes += len(rest)
        return True


def header_after(text: bytes) -> int | None:
    """Length of the rest of the document after the events; None where it does not parse."""
    start = text.lstrip(_SPACE)[:1]
    if not start:
        return len(text)
    if start not in (b",", b"}"):
        return 0 if start in (b"{", b"[") else None
    for size in dict.fromkeys((min(len(text), _PROBE), len(text))):
        source = '{"":0' + text[:size].decode("utf-8", "surrogateescape")
        try:
            _, end = json.JSONDecoder(strict=False).raw_decode(source)
        except json.JSONDecodeError as error:
            if error.pos < len(source) - _PROBE // 2:
                break
            continue
        except RecursionError:
            break
        rest = source[end:]
        if rest.lstrip()[:1] in tuple("},]:"):
            break  # the bracket closed something inside an event
        return size - len(rest.encode("utf-8", "surrogateescape"))
    return None


def _openings(text: bytes | bytearray, start: int = 0) -> Iterator[tuple[int, int]]:
    """Where lists of events may begin. Searching for the pattern itself takes 0.1 s for 4 MB."""
    at = start - 1
    while (at := text.find(_EVENTS, at + 1)) >= 0:
        if found := _OPENING.match(text, at):
            yield found.span()


def _header_before(text: bytearray) -> dict[str, Any] | None:
    """The header before the events; None where something in it is still open."""
    return object_in(bytes(text).rstrip(_SEPARATORS) + b"}")


def _cut(buffer: bytearray, near: int, *, exact: bool = True) -> int:
    """The last likely event boundary before ``near``; with ``exact`` always some position."""
    for pattern in _CUTS:
        window = 1 << 16
        while True:
            start = max(0, near - window)
            ends = [found.end() for found in pattern.finditer(buffer, start, near)]
            if ends:
                return ends[-1]
            if not start or window >= BLOCK:
                break
            window <<= 3
    if exact and (following := _CUTS[0].search(buffer, near)):  # one event larger than a block
        return following.end()
    return near if exact else 0


def _first(text: bytearray) -> bytes:
    """The first byte that is no white space; ``lstrip`` would copy the whole text."""
    found = _FIRST.match(text)
    return found[1] if found else b""


def _without_mark(text: Iterator[bytes]) -> Iterator[bytes]:
    first = next(text, b"")
    yield first.removeprefix(b"\xef\xbb\xbf")
    yield from text
