"""``cb-trace profile``: record, replay, store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cb_trace.commands.ingest import ingest_to
from cb_trace.commands.options import (
    SETTINGS,
    budget_option,
    force_option,
    needs_reading_half,
    say,
)
from cb_trace.commands.recording import (
    Request,
    is_bundle_name,
    record_bundle,
    recording_options,
)
from cb_trace.files import check_output


@click.command(
    name="profile",
    epilog="Example: cb-trace profile nanogpt --preset tiny --set batch=4 -o nanogpt.duckdb",
    context_settings=SETTINGS,
)
@click.argument("provider")
@recording_options
@click.option("--no-dedup", is_flag=True, help="Measure identical modules each on its own.")
@budget_option
@click.option(
    "--knockout",
    is_flag=False,
    flag_value="top:20",
    metavar="[=top:N|PATH,…]",
    help="Also measure what the step loses without a module: the N costliest alone, or these.",
)
@click.option(
    "--speedup",
    "speedups",
    multiple=True,
    metavar="PATH=2x",
    help="Also measure what the step gains where a module runs on half of its batch (3x: a third). "
    "May be given again.",
)
@click.option(
    "--ceilings",
    metavar="[measure|FILE]",
    help="Hold modules against the device's best: measured now, or by 'doctor --measure -o FILE'.",
)
@click.option(
    "-o",
    "output",
    metavar="FILE",
    help="Profile to write, its bundle beside it as .zip; a .zip, or a folder ending in /, "
    "stops at the bundle. [default: from provider, preset and settings]",
)
@force_option
def command(
    *,
    request: Request,
    no_dedup: bool,
    budget: float | None,
    knockout: str | None,
    speedups: tuple[str, ...],
    ceilings: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Record a workload, replay every module alone, and store both as a profile.

    PROVIDER is a workload that ships (nanogpt, deepfm, dlrm), an installed one, or your own
    function as pkg.module:function. Ctrl-C keeps what was measured.
    """
    asked = replace(
        request,
        replay=True,
        dedup=not no_dedup,
        budget_seconds=budget,
        knockout=knockout,
        speedups=speedups,
        ceilings=ceilings,
    )
    target = output or asked.file_name(".duckdb")
    if is_bundle_name(target):
        record_bundle(asked, Path(target), force=force)
        say(f"next: cb-trace ingest {target}")
        return
    needs_reading_half()
    check_output(Path(target), force=force)
    bundle = Path(target).with_suffix(".zip")
    record_bundle(asked, bundle, force=force)
    ingest_to(bundle, Path(target), force=force)
    say(f"next: cb-trace compare {target}")
