"""``cb-trace capture``: record without replay."""

from __future__ import annotations

from pathlib import Path

import click

from cb_trace.commands.options import (
    default_name,
    force_option,
    recording_options,
    say,
    workload_settings,
)
from cb_trace.commands.recording import Request, is_bundle_name, record_bundle
from cb_trace.errors import CbTraceError


@click.command(
    name="capture", epilog="Example: cb-trace capture deepfm --preset tiny -o deepfm.zip"
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
def command(
    *,
    provider: str,
    preset: str | None,
    settings: tuple[str, ...],
    device: str | None,
    dtype: str,
    phase: str,
    mode: str,
    wrap: tuple[str, ...],
    shrink_tables: int | None,
    full_batch: int | None,
    seed: int,
    steps: int,
    output: str | None,
    force: bool,
) -> None:
    """Record a workload's full pass into a bundle; 'replay' adds the isolated figures later."""
    request = Request(
        provider=provider,
        preset=preset,
        settings=workload_settings(settings, shrink_tables, full_batch),
        device=device,
        dtype=dtype,
        seed=seed,
        steps=steps,
        phase=phase,
        mode=mode,
        wrap=wrap,
        replay=False,
    )
    name = default_name(provider, preset, request.settings, ".zip", phase=phase, mode=mode)
    target = output or str(name)
    if not is_bundle_name(target):
        raise CbTraceError(
            f"capture writes a bundle, not {target}",
            hint="end the name in .zip, or in / for a folder",
        )
    record_bundle(request, Path(target), force=force)
    say(f"next: cb-trace replay {target}, or cb-trace ingest {target}")
