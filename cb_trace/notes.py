"""What a reader of the figures must know, as every stage may have to say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader of the figures must know; ``path`` where it is about one module."""

    reason: str
    detail: str = ""
    path: str | None = None
    count: int = 1
