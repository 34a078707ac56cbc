"""``cb-trace capture``: record without replay."""

from __future__ import annotations

from pathlib import Path

import click

from cb_trace.commands.options import SETTINGS, force_option, say
from cb_trace.commands.recording import (
    Request,
    is_bundle_name,
    record_bundle,
    recording_options,
)
from cb_trace.errors import CbTraceError


@click.command(
    name="capture",
    epilog="Example: cb-trace capture deepfm --preset tiny -o deepfm.zip",
    context_settings=SETTINGS,
)
@click.argument("provider")
@recording_options
@click.option(
    "-o",
    "output",
    metavar="FILE",
    help="Bundle to write: a .zip, or a folder ending in /. [default: from provider and preset]",
)
@force_option
def command(*, request: Request, output: str | None, force: bool) -> None:
    """Record a workload's full pass into a bundle; 'replay' adds the isolated figures later."""
    target = output or request.file_name(".zip")
    if not is_bundle_name(target):
        raise CbTraceError(
            f"capture writes a bundle, not {target}",
            hint="end the name in .zip, or in / for a folder",
        )
    record_bundle(request, Path(target), force=force)
    say(f"next: cb-trace replay {target}, or cb-trace ingest {target}")
