"""Options that name a part of a trace: a window of time, a range of steps, a step's name."""

from __future__ import annotations

import re
from decimal import Decimal

import click

_UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|ms|us|µs|ns)")
_STEPS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class _Window(click.ParamType):  # type: ignore[type-arg]  # generic only since 8.5
    """``START:END``, each a number with its unit, to integer nanoseconds without a float."""

    name = "start:end"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        start, colon, end = str(value).partition(":")
        times = [_TIME.fullmatch(text.strip()) for text in (start, end)]
        if not colon or times[0] is None or times[1] is None:
            self.fail(f"{value!r} is not START:END with units, like 200ms:350ms or 1.5s:2s")
        first, last = (int(Decimal(t[1]) * _UNITS_NS[t[2]]) for t in times if t)
        if first >= last:
            self.fail(f"{value!r} is empty: the start must lie before the end")
        return first, last


class _Steps(click.ParamType):  # type: ignore[type-arg]
    """``3-5`` or ``3``: an inclusive range of step numbers."""

    name = "first-last"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        match = _STEPS.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not FIRST-LAST or a step number, like 3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            self.fail(f"{value!r} is empty: the first step must not come after the last")
        return first, last


WINDOW = _Window()
STEPS = _Steps()

step_pattern_option = click.option(
    "--step-pattern",
    metavar="REGEX",
    help="User annotations whose name holds this are the steps, and no others.",
)
