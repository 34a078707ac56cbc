"""A plain table of values, whatever it is shown as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOISE = "~0"


@dataclass(frozen=True, slots=True)
class Result:
    """A table of values: what a query gives."""

    columns: list[str]
    rows: list[Sequence[object]]
    noise: frozenset[tuple[int, int]] = frozenset()  # row and column of figures that may be 0

    def shown(self) -> list[list[object]]:
        """The rows as people read them: ``~0`` where a figure cannot be told from 0."""
        return [
            [NOISE if (at, place) in self.noise else value for place, value in enumerate(row)]
            for at, row in enumerate(self.rows)
        ]
