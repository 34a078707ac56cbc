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

from cb_trace.errors import CbTraceError
from cb_trace.trace.salvage import escapes

BLOCK = 4 << 20  # bytes of one block
_LEAST = 1 << 20
_HEAD_LIMIT = 64 << 20
_PROBE = 1 << 12
_SPACE = b" \t\r\n"
_SEPARATORS = _SPACE + b","
_FIRST = re.compile(rb"[ \t\r\n]*([^ \t\r\n]?)")

_OPENING = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_EVENT_KEY = rb'\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:'
_CUTS = (
    re.compile(rb"\}\s*,(?=\s*\{" + _EVENT_KEY + rb")"),
    re.compile(rb"\}\s*,(?=\s*\{)"),
    re.compile(rb"\}(?=\s*\{)"),
)
_CLOSING = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}|\Z))')
_MAGICS = (
    (b"SQLite format 3", "an SQLite file, as Nsight Systems exports", "record with torch.profiler"),
    (b"\x80\x02", "a pickle, which is never read", "export with prof.export_chrome_trace"),
    (b"\x80\x04", "a pickle, which is never read", "export with prof.export_chrome_trace"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)


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
            self._buffer += piece
            while len(self._buffer) > 2 * BLOCK:
                yield from self._take(_cut(self._buffer, BLOCK))
        yield from self._finish()

    # --- the beginning ------------------------------------------------------------------------

    def _open(self, text: Iterator[bytes]) -> bool:
        """Move past the opening bracket of the events; False where the file has no events."""
        buffer = self._buffer
        searched = 0
        for piece in text:
            buffer += piece
            start = _first(buffer) if not searched else b"{"
            if start == b"[":
                del buffer[: buffer.index(b"[") + 1]
                self.before = b"{"
                return True
            if start not in (b"{", b""):
                raise _not_json(self.name, bytes(buffer[:4096]))
            if found := _OPENING.search(buffer, max(0, searched - 64)):
                self.before = bytes(buffer[: found.start()])
                del buffer[: found.end()]
                return True
            searched = len(buffer)
            if searched > _HEAD_LIMIT:
                break
        self._explain_no_events(bytes(buffer))
        return False

    def _explain_no_events(self, text: bytes) -> None:
        if not text.strip():
            raise CbTraceError(f"{self.name} is empty", hint="record the trace again")
        if re.search(rb'"nodes"\s*:\s*\[', text) and b'"traceEvents"' not in text:
            raise CbTraceError(
                f"{self.name} is an execution trace (ExecutionTraceObserver), not a Kineto trace",
                hint="give the file written by export_chrome_trace",
            )
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CbTraceError(
                f"{self.name} is not a trace: no traceEvents, and not whole JSON ({error})"[:300],
                hint="record the trace again",
            ) from error
        if value.get("traceEvents") is not None or "traceEvents" not in value:
            raise CbTraceError(
                f"{self.name} is JSON but not a trace: it has no traceEvents list",
                hint="give a Kineto trace, the file written by export_chrome_trace",
            )
        self.closed = True

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
        start, stop = 0, end
        while start < stop and self._buffer[start] in _SEPARATORS:
            start += 1
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
            text = escapes(text.decode("utf-8", "replace")).encode()
            used = header_after(text)
        if used is None:
            self.lost_bytes += len(text)
            return False
        self.after, rest = text[:used], text[used:].strip(_SPACE + b"\0")
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


def _not_json(name: str, head: bytes) -> CbTraceError:
    for magic, kind, hint in _MAGICS:
        if head.startswith(magic):
            return CbTraceError(f"{name} is {kind}", hint=hint)
    if _is_protobuf_trace(head):
        return CbTraceError(
            f"{name} is a native Perfetto trace (protobuf), not Kineto JSON",
            hint="export with a name that ends in .json or .json.gz",
        )
    if head[8:12] == b"DUCK":
        return CbTraceError(f"{name} is a DuckDB file", hint="use it with cb-trace compare")
    return CbTraceError(
        f"{name} is not JSON: it starts with {head.lstrip()[:8]!r}",
        hint="give a Kineto trace, the file written by export_chrome_trace",
    )


def _is_protobuf_trace(head: bytes) -> bool:
    """Whether the text is a list of TracePacket messages: tag 0x0a, a length, and again."""
    at, shift, length = 1, 0, 0
    while head[:1] == b"\n" and at < min(len(head), 6):
        byte = head[at]
        length |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            following = head[at + length : at + length + 1]
            return length > 0 and following in (b"\n", b"")
    return False
