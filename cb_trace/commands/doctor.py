"""``cb-trace doctor``: what this machine can record, and how trustworthy."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import console

if TYPE_CHECKING:
    from cb_trace.commands.machine import Finding


@click.command(name="doctor", epilog="Example: cb-trace doctor --format json")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the result.",
)
def command(*, output_format: str) -> None:
    """Say what this machine can record, and how trustworthy its figures will be.

    Holds no host name, user or path: safe to paste into an issue.
    """
    from cb_trace.commands.machine import findings

    found = list(findings())
    if output_format == "json":
        document = {"schema_version": 1, "findings": [asdict(item) for item in found]}
        click.echo(json.dumps(document, indent=1))
    else:
        _print(found)


def _print(found: list[Finding]) -> None:
    from rich.text import Text

    from cb_trace.reporters.table import frame, print_table

    table = frame()
    for head in ("", "found", "state", "remark"):
        table.add_column(head, overflow="fold")
    for item in found:
        style = "" if item.state == "ok" else "bold"
        cells = (item.topic, item.value, item.state, item.remark)
        table.add_row(*(Text(cell, style=style) for cell in cells))
    print_table(table, console())
