"""What a file is that is no Kineto trace, in one line for a person (traces.md rows 8 and 9)."""

from __future__ import annotations

import json
import re
from typing import Any

from cb_trace.errors import CbTraceError

_GIVE = "give a Kineto trace, the file written by export_chrome_trace"
_EXPORT = "export with prof.export_chrome_trace"
_UNPACK = "unpack it first"
_UTF_8 = "save it as UTF-8"
_MAGICS = (
    (b"SQLite format 3", "an SQLite file, as Nsight Systems exports", "record with torch.profiler"),
    (b"\x80\x02", "a pickle, which is never read", _EXPORT),
    (b"\x80\x04", "a pickle, which is never read", _EXPORT),
    (b"\xff\xfe\0\0", "UTF-32 text", _UTF_8),
    (b"\0\0\xfe\xff", "UTF-32 text", _UTF_8),
    (b"\xff\xfe", "UTF-16 text", _UTF_8),
    (b"\xfe\xff", "UTF-16 text", _UTF_8),
    (b"\x1f\x8b", "compressed twice", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed twice", _UNPACK),
    (b"PK\x03\x04", "a zip inside another container", _UNPACK),
    (b"\xfd7zXZ", "compressed with xz", "unpack it, or compress it with gzip or zstd"),
    (b"BZh", "compressed with bzip2", "unpack it, or compress it with gzip or zstd"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself", "run git lfs pull"),
)
_WIDE = (
    (re.compile(rb"[{\[]\0\0\0|\0\0\0[{\[]"), "UTF-32 text"),
    (re.compile(rb"[{\[]\0|\0[{\[]"), "UTF-16 text"),
)


def check_text(name: str, head: bytes) -> None:
    """Look at the first bytes that are no white space.

    :raises CbTraceError: they are not the beginning of a JSON object or list.
    """
    for pattern, kind in _WIDE:
        if pattern.match(head):
            raise CbTraceError(f"{name} is {kind}", hint=_UTF_8)
    start = head.lstrip(b" \t\r\n")[:1]
    if start not in (b"{", b"[", b""):
        raise _not_json(name, head)


def no_events(name: str, text: bytes, *, whole: bool) -> None:
    """Accept a file whose events are ``null``: it has none.

    :param text: the file's text; ``whole`` is False where it goes on.
    :raises CbTraceError: it is another file than that.
    """
    if not text.strip():
        raise CbTraceError(f"{name} is empty", hint="record the trace again")
    if re.search(rb'"nodes"\s*:\s*\[', text) and b'"traceEvents"' not in text:
        raise CbTraceError(
            f"{name} is an execution trace (ExecutionTraceObserver), not a Kineto trace",
            hint="give the file written by export_chrome_trace",
        )
    if not whole:
        size = len(text) >> 20
        raise CbTraceError(
            f"{name} is not a trace: no traceEvents in its first {size} MB", hint=_GIVE
        )
    value = _parsed(name, text)
    if value.get("traceEvents") is not None or "traceEvents" not in value:
        raise CbTraceError(
            f"{name} is JSON but not a trace: it has no traceEvents list", hint=_GIVE
        )


def _parsed(name: str, text: bytes) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CbTraceError(
            f"{name} is not a trace: no traceEvents, and not whole JSON ({error})"[:300],
            hint="record the trace again",
        ) from error
    return value


def _not_json(name: str, head: bytes) -> CbTraceError:
    for magic, kind, hint in _MAGICS:
        if head.startswith(magic):
            return CbTraceError(f"{name} is {kind}", hint=hint)
    if head[257:262] == b"ustar":
        return CbTraceError(f"{name} is a tar archive", hint=_UNPACK)
    if _is_protobuf_trace(head):
        return CbTraceError(
            f"{name} is a native Perfetto trace (protobuf), not Kineto JSON",
            hint="export with a name that ends in .json or .json.gz",
        )
    if head[8:12] == b"DUCK":
        return CbTraceError(f"{name} is a DuckDB file", hint="use it with cb-trace compare")
    return CbTraceError(f"{name} is not JSON: it starts with {head.lstrip()[:8]!r}", hint=_GIVE)


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
