"""The command line: one command a file of ``commands``, loaded when it is asked for."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TextIO

import click

from cb_trace.commands.options import SETTINGS, reader_gone
from cb_trace.errors import CbTraceError
from cb_trace.imports import uncollected
from cb_trace.interrupts import Terminated, of_interrupt, stopping_queries
from cb_trace.version import VERSION

INTERRUPTED, TERMINATED = 130, 143  # 128 and the signal's number, as a shell has it
# What a name, a right, a disk or a limit of the machine is the cause of, wherever it comes up.
_NO_BUG_OF_OURS = {
    errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC,
    errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE,
}  # fmt: skip

# In the order of the work; the summary stands here so that --help imports no command.
COMMANDS = {
    "profile": "Record a workload, replay its modules, store the result (the main job).",
    "capture": "Record a workload into a bundle, without replay.",
    "replay": "Replay the modules of a recorded bundle.",
    "ingest": "Make a profile from a bundle or from Kineto traces.",
    "compare": "Show per module: cost in the step, cost alone, and the error.",
    "diff": "Show what changed from one profile to another, module by module.",
    "query": "Run a named query or SQL on a profile.",
    "whatif": "Predict the step under changes: a module faster, gone, fused or overlapped.",
    "hta": "Ask HolisticTraceAnalysis for a second opinion on a profile.",
    "report": "Write the profile as one HTML page that needs no network.",
    "serve": "Serve that page here, with SQL over the profile and the trace for Perfetto.",
    "perfetto": "Write the trace with the modules' figures in it, and links to it.",
    "doctor": "Say what this machine can record, and how trustworthy.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with uncollected():
            command: click.Command = import_module(f"cb_trace.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough: `… | head`
            reader_gone()
            return 0
        return result


@click.group(
    cls=_Commands,
    context_settings=SETTINGS,
    epilog="Start with: cb-trace profile nanogpt --preset tiny -o nanogpt.duckdb",
)
@click.version_option(VERSION, "--version", prog_name="cb-trace", message="%(prog)s %(version)s")
def group() -> None:
    """What each nn.Module of a PyTorch model costs, in the step and alone, and why they differ.

    Results go to stdout, progress and notes to stderr. Exit status: 0 fine, 1 a threshold was
    crossed, 2 usage or unreadable input.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; a user's mistake becomes one line."""
    for stream in _standard_streams():
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show µ still works
    try:
        with stopping_queries():
            status = group.main(
                list(arguments) or ["--help"], prog_name="cb-trace", standalone_mode=False
            )
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", "", INTERRUPTED)
    except Terminated:
        return _complain("terminated", "", TERMINATED)
    except SystemExit as error:  # only a user's own code does this: no success of ours
        given = "" if error.code is None else repr(error.code)
        return _complain(
            f"the workload's own code called sys.exit({given})",
            "nothing was written; let it return instead",
            CbTraceError.exit_code,
        )
    except Exception as error:
        return _explain(error)
    return status if isinstance(status, int) else 0


def _standard_streams() -> tuple[TextIO, TextIO]:
    """Both, with nobody behind one that was closed before the start (``>&-``)."""
    sys.stdout = sys.stdout or _nobody()
    sys.stderr = sys.stderr or _nobody()
    return sys.stdout, sys.stderr


def _nobody() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")  # for as long as the process lives


def main() -> None:
    """Entry point of ``cb-trace``."""
    sys.exit(run(sys.argv[1:]))


def _explain(error: Exception) -> int:
    if of_interrupt(error):
        return _complain("interrupted", "", INTERRUPTED)
    if isinstance(error, CbTraceError):
        return _complain(error.message, error.hint, error.exit_code)
    if isinstance(error, click.ClickException):
        return _complain(error.format_message(), _usage_hint(error), CbTraceError.exit_code)
    if isinstance(error, OSError) and error.errno in _NO_BUG_OF_OURS:
        named = f": {error.filename}" if error.filename else ""
        return _complain(f"{error.strerror}{named}", "", CbTraceError.exit_code)
    raise error


def _usage_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"see '{context.command_path} -h'" if context else ""


def _complain(message: str, hint: str, status: int) -> int:
    from cb_trace.reporters.safe_text import plain

    lines = f"cb-trace: {plain(' '.join(message.split()))}\n" + f"  {plain(hint)}\n" * bool(hint)
    with suppress(OSError):  # nobody to tell: the status says it
        print(lines, end="", file=sys.stderr, flush=True)
    return status
