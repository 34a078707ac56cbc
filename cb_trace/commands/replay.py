"""``cb-trace replay``: isolated measurements for a bundle that exists."""

from __future__ import annotations

from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import click

from cb_trace.commands.options import (
    SETTINGS,
    FilePath,
    budget_option,
    default_device,
    needs_recording_half,
    say,
    show_progress,
)
from cb_trace.commands.recording import say_replays


@click.command(
    name="replay", epilog="Example: cb-trace replay deepfm.zip", context_settings=SETTINGS
)
@click.argument("bundle", type=FilePath)
@click.option("--device", metavar="NAME", help="A device of the kind that was recorded.")
@click.option("--no-dedup", is_flag=True, help="Measure identical modules each on its own.")
@budget_option
@click.option(
    "-o", "output", metavar="FILE", help="Bundle to write. [default: BUNDLE itself, replaced]"
)
@click.option("--force", is_flag=True, help="Overwrite another bundle that -o names.")
def command(
    *,
    bundle: Path,
    device: str | None,
    no_dedup: bool,
    budget: float | None,
    output: str | None,
    force: bool,
) -> None:
    """Build a bundle's workload again and measure its modules alone.

    The bundle names its provider and settings; one recorded from a live model has none and cannot
    be replayed.
    """
    from cb_trace.bundle import open_bundle

    recorded = open_bundle(bundle).manifest.run
    needs_recording_half()
    from cb_trace.capture.again import replay_bundle
    from cb_trace.capture.options import RecordOptions
    from cb_trace.capture.output import bundle_at

    options = RecordOptions(device=device or default_device(), dedup=not no_dedup)
    if device is None and recorded.device_type == "cpu":
        options = replace(options, device="cpu")
    if budget is not None:
        options = replace(options, replay_seconds=budget)
    target = Path(output) if output else bundle
    with (
        chdir("."),  # wherever the workload goes, we come back
        bundle_at(target, force=force or output is None) as folder,
        show_progress() as show,
    ):
        manifest = replay_bundle(bundle, folder, options, progress=show)
    say_replays(manifest)
    say(f"Wrote {target}")
    say(f"next: cb-trace ingest {target}")
