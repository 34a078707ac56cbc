"""Names out of traces and models, made safe to show: they are untrusted and may be of any length.

Control characters can move a terminal's cursor, and bidirectional ones can make text read
backwards; both are shown as escapes.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile(r"[ -\x5b\x5d-~]*")
_MARKDOWN = re.compile(r"[\\`*\[\]<>&|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(text: str, width: int | None = None) -> str:
    """Text without control characters, cut in the middle where it is longer than ``width``."""
    if width is not None:
        text = shortened(text, width)
    if _PLAIN.fullmatch(text):
        return text
    shown = "".join(_visible(c) for c in text)
    return shown if width is None else shortened(shown, width)


def shortened(text: str, width: int) -> str:
    """Both ends of a text too long to show whole."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def markdown_cell(text: str) -> str:
    """Text as a cell of a Markdown table, with nothing in it that Markdown or HTML reads."""
    return _MARKDOWN.sub(lambda m: _ENTITIES.get(m[0], "\\" + m[0]), plain(text))


def csv_cell(text: str) -> str:
    """Text as a CSV field; one that a spreadsheet would run as a formula is quoted."""
    shown = plain(text)
    return "'" + shown if shown[:1] in {"=", "+", "-", "@"} else shown


def _visible(char: str) -> str:
    if char == "\\":
        return char
    kind = unicodedata.category(char)
    if kind[0] == "C" or kind in {"Zl", "Zp"}:
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return char
