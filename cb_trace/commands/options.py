"""Options that several commands share, and where their output goes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str], None]
Found = TypeVar("Found")

# Of the group and of every command: click keeps the first help option that it makes of a command,
# so its names must not come from the context that a command happens to be called in first.
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
FORMATS = ("table", "json", "csv", "markdown")
_SPAN = re.compile(r"([0-9]*\.?[0-9]+)\s*([sm]?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Off a terminal nothing is cut to fit: the reader is a file, a pager or a program.
UNBOUNDED_WIDTH = 4000

FilePath = click.Path(path_type=Path)

format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print the result.",
)
force_option = click.option("--force", is_flag=True, help="Overwrite what is there.")


def seconds(text: str) -> float:
    """A span of time: ``60``, ``60s``, ``2m``.

    :raises click.BadParameter: it is none, or not above 0.
    """
    found = _SPAN.fullmatch(text.strip())
    span = float(found[1]) * (60 if found[2] == "m" else 1) if found else 0.0
    if not 0 < span < float("inf"):
        raise click.BadParameter(f"{text!r} is no time above 0, such as 60s or 2m")
    return span


budget_option = click.option(
    "--budget",
    type=seconds,
    metavar="TIME",
    help="For all isolated measurements together, 60s say; spread by share of the step.",
)


def assignments(given: tuple[str, ...], what: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a mapping.

    :raises CbTraceError: no ``=``, or a key that is no name.
    """
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(key):
            raise CbTraceError(
                f"{what} wants KEY=VALUE, not {text!r}", hint=f"as in {what} batch=4"
            )
        pairs[key] = value
    return pairs


def default_device() -> str:
    """``cuda`` where there is one, else ``cpu``; imports torch."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def needs_recording_half() -> None:
    """:raises CbTraceError: torch is not installed."""
    if not installed("torch"):
        raise CbTraceError(
            "recording needs torch, which is not installed", hint="pip install torch"
        )
    quieten_profiler()


def quieten_profiler() -> None:
    """Keep Kineto's progress lines (written below Python) off stderr; to be called before torch."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def needs_reading_half() -> None:
    """:raises CbTraceError: polars or DuckDB is not installed."""
    missing = [name for name in ("polars", "duckdb", "pyarrow") if not installed(name)]
    if missing:
        raise CbTraceError(
            f"a profile needs {' and '.join(missing)}, which this machine does not have",
            hint="record a bundle here (-o NAME.zip) and run 'cb-trace ingest' on it elsewhere",
        )


def installed(name: str) -> bool:
    """Whether a package can be imported, without importing it."""
    return find_spec(name) is not None


def say(text: str) -> None:
    """A line of progress or a note, on stderr."""
    from cb_trace.reporters.safe_text import plain

    click.echo(plain(text), err=True)


def console() -> Console:
    """The terminal that results go to; plain text of any width where it is none."""
    from rich.console import Console

    class Patient(Console):
        def on_broken_pipe(self) -> None:  # rich would end the program, with a threshold's status
            raise BrokenPipeError

    terminal = Patient(highlight=False, markup=False, emoji=False)
    if terminal.is_terminal:
        return terminal
    return Patient(highlight=False, markup=False, emoji=False, no_color=True, width=UNBOUNDED_WIDTH)


def reader_gone() -> None:
    """Write to nobody from here on: who read the output has seen enough (``… | head``)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def put_out(
    found: Found,
    output_format: str,
    show: Callable[[Found, Console], None],
    texts: Mapping[str, Callable[[Found], str]],
) -> None:
    """Print a result as ``format_option`` has it; what comes after, a verdict say, comes anyway."""
    try:
        if output_format == "table":
            show(found, console())
        else:
            click.echo(texts[output_format](found), nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        reader_gone()


def ratio_of(text: str) -> float:
    """A ratio, or a percentage, as a limit is given.

    :raises CbTraceError: it is neither, or below 0.
    """
    number, scale = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        value = float(number) / scale
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise CbTraceError(
            f"--fail-above wants a ratio or a percentage, not {text!r}", hint="0.1 or 10%"
        )
    return value


def first_of(named: Sequence[str], most: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


@contextmanager
def show_progress() -> Iterator[Progress]:
    """One line that is written over, on a terminal only.

    No spinner: a thread that redraws would run beside what is being timed.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def show(text: str) -> None:
        from cb_trace.reporters.safe_text import plain

        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{plain(text, width)}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()
