"""``cb-trace doctor``: what this machine can record, and how trustworthy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import SETTINGS, FilePath, console, force_option, say, show_progress
from cb_trace.files import check_output

if TYPE_CHECKING:
    from cb_trace.accounts import CeilingRecord
    from cb_trace.commands.machine import Finding


@click.command(
    name="doctor", epilog="Example: cb-trace doctor --format json", context_settings=SETTINGS
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the result.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also measure what the device can do at best: matrices, memory, launches.",
)
@click.option(
    "-o",
    "output",
    type=FilePath,
    metavar="FILE",
    help="With --measure: write the ceilings there, for 'profile --ceilings FILE'.",
)
@force_option
def command(*, output_format: str, measure: bool, output: Path | None, force: bool) -> None:
    """Say what this machine can record, and how trustworthy its figures will be.

    Holds no host name, user or path: safe to paste into an issue.
    """
    from cb_trace.commands.machine import findings

    if output is not None and not measure:
        raise click.UsageError("-o is where ceilings go: add --measure")
    rows, ceilings = _measured(output, force=force) if measure else ([], [])
    found = [*findings(), *rows]
    if output_format == "json":
        document = {"schema_version": 1, "findings": [asdict(item) for item in found]}
        if measure:
            document["ceilings"] = [asdict(ceiling) for ceiling in ceilings]
        click.echo(json.dumps(document, indent=1))
    else:
        _print(found)
    if output is not None:
        say(f"Wrote {output}")


def _measured(output: Path | None, *, force: bool) -> tuple[list[Finding], list[CeilingRecord]]:
    """Measure before the other findings: their probe runs a profiler, which slows launches."""
    from cb_trace.commands.measuring import ceiling_findings, measured

    if output is not None:
        check_output(output, force=force)
    with show_progress() as show:
        device_name, ceilings = measured(show)
    if output is not None:
        from cb_trace.capture.ceilings import write_ceilings

        write_ceilings(output, device_name, ceilings)
    return list(ceiling_findings(device_name, ceilings)), ceilings


def _print(found: list[Finding]) -> None:
    from rich.text import Text

    from cb_trace.reporters.grid import frame, print_table

    table = frame()
    for head in ("", "found", "state", "remark"):
        table.add_column(head, overflow="fold")
    for item in found:
        style = "" if item.state == "ok" else "bold"
        cells = (item.topic, item.value, item.state, item.remark)
        table.add_row(*(Text(cell, style=style) for cell in cells))
    print_table(table, console())
