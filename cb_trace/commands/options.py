"""Options that several commands share, and where their output goes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str], None]
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FORMATS = ("table", "json", "csv", "markdown")
_SPAN = re.compile(r"([0-9]*\.?[0-9]+)\s*([sm]?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNFIT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
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


def recording_options(function: Decorated) -> Decorated:
    """Options of what is recorded: the workload and the device."""
    for option in reversed(_RECORDING):
        function = option(function)
    return function


_RECORDING = (
    click.option("--preset", metavar="NAME", help="A size that the provider names."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the workload; may be given again.",
    ),
    click.option(
        "--device", metavar="NAME", help="cpu, cuda or cuda:N. [default: cuda where there is one]"
    ),
    click.option(
        "--dtype",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        show_default=True,
        help="Autocast to this type.",
    ),
    click.option(
        "--phase",
        type=click.Choice(["forward", "train"]),
        default="forward",
        show_default=True,
        help="A step is the forward alone, or a training step.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["eager", "compile", "cudagraph", "compile+cudagraph"]),
        default="eager",
        show_default=True,
        help="How the step runs: as it is, through torch.compile, as a CUDA graph, or both.",
    ),
    click.option(
        "--wrap",
        multiple=True,
        metavar="METHOD",
        help="A method that counts as a call of its module, as forward does; may be given again.",
    ),
    click.option(
        "--shrink-tables",
        type=click.IntRange(min=1),
        metavar="ROWS",
        help="Build no embedding table with more rows: for models larger than the device.",
    ),
    click.option(
        "--full-batch",
        type=click.IntRange(min=1),
        metavar="N",
        help="Repeat the inputs until the batch is N.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of model and data."),
    click.option(
        "--steps",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        help="Steps recorded under the profiler.",
    ),
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


def workload_settings(
    given: tuple[str, ...], shrink_tables: int | None, full_batch: int | None
) -> dict[str, str]:
    """All settings of a workload: those given by ``--set``, and what is done to make it fit.

    :raises CbTraceError: as :func:`assignments`.
    """
    fit = {"shrink_tables": shrink_tables, "full_batch": full_batch}
    made = {name: str(number) for name, number in fit.items() if number is not None}
    return assignments(given, "--set") | made


def default_device() -> str:
    """``cuda`` where there is one, else ``cpu``; imports torch."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def default_name(
    provider: str,
    preset: str | None,
    settings: Mapping[str, str],
    ending: str,
    *,
    phase: str = "forward",
    mode: str = "eager",
) -> Path:
    """A file name that tells recordings apart: ``nanogpt-tiny-train-batch4.duckdb``."""
    words = [provider.rpartition(":")[2], preset or ""]
    words += [word for word in (phase, mode) if word not in ("forward", "eager")]
    words += [f"{key}{value}" for key, value in settings.items()]
    name = "-".join(_UNFIT_IN_FILE_NAMES.sub("_", word).strip(".") for word in words if word)
    return Path(f"{name}{ending}")


def free_target(target: Path, *, force: bool) -> None:
    """Refuse an output before the work, not after.

    :raises CbTraceError: it exists and ``force`` is off, is a folder, or its folder is missing.
    """
    if target.is_dir():
        raise CbTraceError(f"{target} is a folder", hint="name a file with -o")
    if target.exists() and not force:
        raise CbTraceError(f"{target} exists", hint="add --force to overwrite it")
    if not target.parent.is_dir():
        raise CbTraceError(f"no such folder: {target.parent}", hint="create it first")
    if not os.access(target.parent, os.W_OK):
        raise CbTraceError(f"cannot write in {target.parent}", hint="choose another with -o")


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

    terminal = Console(highlight=False, markup=False, emoji=False)
    if terminal.is_terminal:
        return terminal
    return Console(highlight=False, markup=False, emoji=False, no_color=True, width=UNBOUNDED_WIDTH)


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
