"""What a caller may ask of the loader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Which part of a trace to load, and what its file does not say.

    ``window_ns`` counts from the trace's first event; ``steps`` is an inclusive range of step
    numbers: the number in the name (``ProfilerStep#3``), else the position from 0.
    ``step_pattern`` is a regular expression (RE2) searched for in the names of user annotations;
    given, it alone names the steps. ``rank`` overrides header and file name.
    """

    window_ns: tuple[int, int] | None = None
    steps: tuple[int, int] | None = None
    step_pattern: str | None = None
    rank: int | None = None
