"""``cb-trace whatif``: what a change of a module would make of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import click

from cb_trace.commands.options import SETTINGS, FilePath, format_option

_COLUMNS = (
    "change", "deployment", "step_us", "then_us", "then_low_us", "then_high_us", "saved_us",
    "saved_low_us", "saved_high_us",
)  # fmt: skip


@click.command(
    name="whatif",
    epilog="Example: cb-trace whatif nanogpt.duckdb --set h.0.mlp=0.5x --remove h.0.attn",
    context_settings=SETTINGS,
)
@click.argument("profile", type=FilePath)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=FACTOR",
    help="Multiply the module's time, on host and device: 0.5x, or 50%.",
)
@click.option("--remove", multiple=True, metavar="PATH", help="Take the module out.")
@click.option(
    "--fuse",
    multiple=True,
    metavar="PATH",
    help="Make one kernel of the module's kernels, call by call.",
)
@click.option(
    "--overlap",
    multiple=True,
    metavar="PATH",
    help="Run the module on a stream of its own, beside the one before it.",
)
@click.option(
    "--overheads",
    "others",
    multiple=True,
    type=FilePath,
    metavar="PROFILE",
    help="Also predict the eager step with the host overheads of this recording, pooled if given "
    "several times.",
)
@format_option
def command(
    *,
    profile: Path,
    settings: tuple[str, ...],
    remove: tuple[str, ...],
    fuse: tuple[str, ...],
    overlap: tuple[str, ...],
    others: tuple[Path, ...],
    output_format: str,
) -> None:
    """Predict the step under changes of modules, each alone and all together.

    The recorded step is simulated, scaled to the bare one, for every way of running that was timed.
    Bounds come from the recorded steps, the bare step, and what a change leaves open: how far the
    kernels of a fused module shrink, how much two that overlap take from one another. What is saved
    by --remove is the module's marginal cost, as in compare.
    """
    from cb_trace.commands.query import render
    from cb_trace.reporters.result import Result
    from cb_trace.whatif import Wish, parse_setting, what_if, with_overheads_of

    wishes = [parse_setting(text) for text in settings]
    wishes += [Wish("remove", path) for path in remove]
    wishes += [Wish("fuse", path) for path in fuse]
    wishes += [Wish("overlap", path) for path in overlap]
    outcomes = what_if(profile, wishes) if wishes or not others else []
    if others:
        outcomes.append(with_overheads_of(profile, others))
    rows: list[Sequence[object]] = [
        (
            found.change,
            found.deployment,
            *(None if ns is None else ns / 1e3 for ns in astuple(found)[2:]),
        )
        for found in outcomes
    ]
    saved = list(_COLUMNS).index("saved_us")
    noise = [(at, saved) for at, found in enumerate(outcomes) if found.within_noise]
    render(Result(list(_COLUMNS), rows, frozenset(noise)), "whatif", output_format)
