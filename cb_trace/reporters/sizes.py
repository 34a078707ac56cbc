"""Sizes as a person reads them: decimal units, as in the queries (MB: 10⁶ bytes)."""

from __future__ import annotations

import re

_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_BYTES = re.compile(r"\b(\d{4,})(?: bytes)?\b")


def size(count: float) -> str:
    """A number of bytes with its unit; three digits or more."""
    value, unit = float(count), 0
    while abs(value) >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {_UNITS[unit]}"


def with_sizes(text: str) -> str:
    """A sentence on bytes with its numbers of bytes as sizes; any other text as it is.

    Bundles hold such notes in whole bytes.
    """
    if " bytes" not in text:
        return text
    return _BYTES.sub(lambda found: size(int(found[1])), text)
