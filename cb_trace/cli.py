"""Entry point of ``cb-trace``; :mod:`cb_trace.command_line` is what it runs.

Apart from it, so that DuckDB can start while the command line is imported.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from cb_trace.imports import SWITCH_S, lazily

if TYPE_CHECKING:
    from cb_trace.command_line import COMMANDS, group, run

# torch and HTA, and what would have children
_ENDS_ITSELF = {"torch", "multiprocessing.pool", "multiprocessing.process"}

__all__ = ["COMMANDS", "group", "main", "run"]

__getattr__ = lazily(
    __name__, {name: f"cb_trace.command_line.{name}" for name in ("COMMANDS", "group", "run")}
)


def main() -> None:
    """Run the command line of this process and end it."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["ingest"] and not {"-h", "--help"} & set(arguments):
        from cb_trace import engine

        sys.setswitchinterval(SWITCH_S)
        engine.begin()
    from cb_trace.command_line import run

    _leave(run(arguments))


def _leave(status: int) -> NoReturn:
    """End the process; at once where nothing is loaded that wants to end by itself.

    Python would take apart first what the system takes back as a whole: 0.05 s with polars.
    """
    if not _ENDS_ITSELF & set(sys.modules):
        with suppress(OSError):  # else Python says so
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    sys.exit(status)
