"""Column-wise JSON for the report page: short, and safe inside HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from cb_trace.reporters.safe_text import plain

Column = list[Any]
Maker = Callable[[Any], Any]
LONGEST_NAME = 1000  # characters; a longer one keeps both ends
_US_DIGITS = 3  # whole nanoseconds
_RATIO_DIGITS = 6
_EXACT_IN_JSON = 2**53  # a script reads numbers as doubles


class Interned:
    """Columns stored once: those of two deployments are often the same."""

    def __init__(self) -> None:
        self.columns: list[Column] = []
        self._known: dict[str, int] = {}

    def add(self, column: Column) -> int:
        """The number of a column that equals this one."""
        key = json.dumps(column, ensure_ascii=False)
        if key not in self._known:
            self._known[key] = len(self.columns)
            self.columns.append(column)
        return self._known[key]


class Words:
    """Texts that recur, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def code(self, text: str | None) -> int | None:
        """The number of a text; None for None."""
        if text is None:
            return None
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(plain(text, LONGEST_NAME))
        return self._known[text]


def columns(rows: Sequence[Mapping[str, Any]], given: Mapping[str, Maker]) -> dict[str, Column]:
    """Each named column of the rows, its values made by a function."""
    return {name: [make(row.get(name)) for row in rows] for name, make in given.items()}


def micro(value: float | Decimal | None) -> float | int | None:
    """Microseconds to the nanosecond, whole ones without a point."""
    return _rounded(value, _US_DIGITS)


def ratio(value: float | Decimal | None) -> float | int | None:
    """A ratio to six digits."""
    return _rounded(value, _RATIO_DIGITS)


def figure(value: int | float | Decimal | None) -> float | int | None:
    """A large figure (FLOPs, bytes): a whole one as it is, else six significant digits."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) and abs(value) <= _EXACT_IN_JSON:
        return value
    return float(f"{float(value):.6g}")


def text(value: object) -> str | None:
    """Text that is safe to show; a time as ISO 8601."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return plain(str(value), LONGEST_NAME)


def texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of mixed values, each safe to show."""
    return {name: _value(value) for name, value in row.items()}


def script_json(document: Mapping[str, Any]) -> str:
    """JSON that an HTML ``script`` element may hold: no ``<``, so no tag and no comment in it."""
    encoded = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return encoded.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def without_gaps(names: Iterable[str], table: Mapping[str, Column]) -> dict[str, Column]:
    """The named columns that hold any value."""
    return {name: table[name] for name in names if any(v is not None for v in table[name])}


def _value(value: object) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float | Decimal):
        return _rounded(value, _RATIO_DIGITS)
    return text(value)


def _rounded(value: float | Decimal | None, digits: int) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    short = round(float(value), digits)
    return int(short) if short == int(short) else short
