"""Event-by-event repair of a block that did not parse (traces.md rows 1-5, 13).

Slow, and only for the block that needs it. What comes out is a list of sound JSON objects; every
repair and every loss is counted by its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

UNREADABLE = "unreadable event"
NOT_OBJECT = "event that is no object"
OVERSIZED = "oversized event"
DUPLICATE_KEYS = "repaired: duplicate keys"
MISSING_COMMA = "repaired: missing comma"
CONTROL = "repaired: raw control characters"
ENCODING = "repaired: not UTF-8"

_OVERSIZE = 4 << 20
_NEXT_EVENT = re.compile(
    r'(?:(?<=\})\s*,?\s*|\n\s*)(?=\{\s*"?(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"?\s*:)'
)
_ILLEGAL_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_BARE_NUMBER = re.compile(
    r"(?<=[:\[,])(\s*)[+-]?(?:inf|infinity|nan)\b(?=\s*[,\]}])", re.IGNORECASE
)
_NO_OPENING_QUOTE = re.compile(r'([{,]\s*)([A-Za-z_][\w ]*)"\s*:')
_NO_CLOSING_QUOTE = re.compile(r'([{,]\s*)"([A-Za-z_][\w ]*)\s*:(?=\s*["\d\[{tfn-])')
_NO_QUOTES = re.compile(r"([{,]\s*)([A-Za-z_][\w ]*)\s*:")
_NO_COMMA = re.compile(r'(["\d\]}]|true|false|null)(\s+)("[A-Za-z_][^"\n]{0,60}"\s*:)')
_EXTRA_COMMA = re.compile(r",(\s*[,}\]])")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f]")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


@dataclass(slots=True)
class Salvaged:
    """The sound events of a block as JSON texts, and what became of the rest.

    ``rest`` is an event that has no end yet; ``after`` follows the bracket that closed the
    events, where the block held it.
    """

    events: list[bytes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rest: bytes = b""
    after: bytes | None = None


def salvage(block: bytes, *, last: bool = False) -> Salvaged:
    """Read a block event by event, mending what can be mended.

    An event that has no end in the block is left over as ``rest``, since the next block may hold
    its end; in the ``last`` block, or where it has grown too large, it is broken.
    """
    text = block.decode("utf-8", "replace")
    out, at = Salvaged(), 0
    decoder, duplicates = _decoder()
    replaced = "\ufffd" in text and b"\xef\xbf\xbd" not in block
    while (at := _skip_separators(text, at)) < len(text):
        if text[at] == "]" and closes_events(text[at + 1 :]):
            out.after = text[at + 1 :].encode()
            return out
        duplicates.clear()
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            resume = _resume(text, at)
            patient = not last and len(text) - at < 2 * _OVERSIZE
            if resume is None or (patient and ran_out(error, text)):
                out.rest = text[at:].encode()
                return out
            _mend(text[at:resume], out)
            at = resume
            continue
        if not _ends_well(text, end):
            out.counts[MISSING_COMMA] += 1
        _keep(value, text[at:end], out, duplicates, replaced=replaced)
        at = end
    return out


def mend_last(block: bytes) -> Salvaged:
    """Try to mend a block that is one last, perhaps incomplete, event."""
    out = Salvaged()
    _mend(block.decode("utf-8", "replace"), out, required=False)
    return out


def ran_out(error: Exception, text: str) -> bool:
    """Whether a decoder failed only because the text ended."""
    return isinstance(error, json.JSONDecodeError) and (
        error.pos >= len(text) or error.msg.startswith("Unterminated string")
    )


def cut_short(text: bytes) -> bool:
    """Whether text that holds no whole event only lacks its end, as where a file was cut off.

    What begins no event, or is closed and still cannot be read, was damaged. A closing bracket
    ends the events, whatever follows it.
    """
    event = text.decode("utf-8", "replace").strip()
    if event[:1] != "{" or event[-1] not in "}]":
        return event[:1] in ("", "]", "{")
    for repaired in (event, escapes(event)):
        try:
            json.JSONDecoder(strict=False).raw_decode(repaired)
        except (ValueError, RecursionError) as error:
            if ran_out(error, repaired):
                return True
    return False


def closes_events(after: str) -> bool:
    """Whether a bracket ended the list of events, seen from the text after it.

    If it ended a list inside an event, what follows closes more than one object.
    """
    start = after.lstrip()[:1]
    if start not in (",", "}"):
        return start in ("", "{", "[", "\0")
    text = '{"":0' + after
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError) as error:
        return ran_out(error, text) or _NEXT_EVENT.search(after) is None
    return text[end:].lstrip()[:1] not in ("}", ",", "]", ":")


def _keep(
    value: Any, text: str, out: Salvaged, duplicates: list[str], *, replaced: bool = False
) -> None:
    if not isinstance(value, dict):
        out.counts[NOT_OBJECT] += 1
        return
    if len(text) > _OVERSIZE:
        out.counts[OVERSIZED] += 1
        return
    if duplicates:
        out.counts[DUPLICATE_KEYS] += 1
    if _CONTROL_CHARACTERS.search(text) and _has_raw_control(text):
        out.counts[CONTROL] += 1
    if replaced and "\ufffd" in text:
        out.counts[ENCODING] += 1
    try:
        out.events.append(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        out.counts[UNREADABLE] += 1


def _mend(text: str, out: Salvaged, *, required: bool = True) -> None:
    """Apply the repairs one after the other until the text is an object."""
    reasons: list[str] = []
    decoder, duplicates = _decoder()
    for reason, repair in _REPAIRS:
        mended = repair(text)
        if mended == text:
            continue
        text = mended
        reasons.append(reason)
        duplicates.clear()
        try:
            value, end = decoder.raw_decode(text.strip())
        except (ValueError, RecursionError):
            continue
        if text.strip()[end:].strip(" \t\r\n,"):
            continue
        out.counts.update(reasons)
        _keep(value, text, out, duplicates)
        return
    if required:
        out.counts[UNREADABLE] += 1
    else:
        out.rest = text.encode()


def escapes(text: str) -> str:
    """Double a backslash only where no legal escape follows (row 1)."""
    return _ILLEGAL_ESCAPE.sub(lambda m: m.group() if m.group(1) else "\\\\", text)


def _bare_numbers(text: str) -> str:
    """Spell a bare inf as JSON decoders know it: null in args, a dropped event in ts (row 4)."""
    return _BARE_NUMBER.sub(r"\1NaN", text)


def _quotes(text: str) -> str:
    text = _NO_OPENING_QUOTE.sub(r'\1"\2":', text)
    return _NO_CLOSING_QUOTE.sub(r'\1"\2":', text)


def _bare_keys(text: str) -> str:
    return _NO_QUOTES.sub(r'\1"\2":', text)


def _commas(text: str) -> str:
    return _EXTRA_COMMA.sub(r"\1", _NO_COMMA.sub(r"\1,\2\3", text))


_REPAIRS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("repaired: illegal escape", escapes),
    ("repaired: bare inf or NaN", _bare_numbers),
    ("repaired: missing quote", _quotes),
    (MISSING_COMMA, _commas),
    ("repaired: missing quote", _bare_keys),
)


def _decoder() -> tuple[json.JSONDecoder, list[str]]:
    """A lenient decoder, and the list it adds every key to that an object holds twice."""
    duplicates: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key, item in items:
            if key in value:
                duplicates.append(key)
            else:  # the first value holds, as in the fast path
                value[key] = item
        return value

    return json.JSONDecoder(strict=False, object_pairs_hook=pairs), duplicates


def _has_raw_control(text: str) -> bool:
    """Whether a string holds a raw control character; white space between tokens is no fault."""
    return any(_CONTROL_CHARACTERS.search(token) for token in _STRING.findall(text))


def _skip_separators(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _ends_well(text: str, end: int) -> bool:
    """Whether a separator follows an event that is not the last of the block."""
    following = text[end : end + 64].lstrip()
    return following[:1] in ("", ",", "]")


def _resume(text: str, at: int) -> int | None:
    found = _NEXT_EVENT.search(text, at + 1)
    return found.start() if found else None
