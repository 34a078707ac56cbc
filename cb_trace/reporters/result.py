"""A plain table of values, whatever it is shown as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """A table of values: what a query gives."""

    columns: list[str]
    rows: list[Sequence[object]]
