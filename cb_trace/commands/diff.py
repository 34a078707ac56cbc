"""``cb-trace diff``: what changed between two profiles, module by module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from cb_trace.commands.options import SETTINGS, FilePath, first_of, format_option, put_out, ratio_of
from cb_trace.errors import CbTraceError, ThresholdCrossedError
from cb_trace.reporters.comparison import Selection
from cb_trace.reporters.difference import TIMED, Order, read_difference

if TYPE_CHECKING:
    from cb_trace.reporters.difference import Difference


@click.command(
    name="diff",
    epilog="Example: cb-trace diff main.duckdb branch.duckdb --fail-above 5%",
    context_settings=SETTINGS,
)
@click.argument("base", type=FilePath)
@click.argument("new", type=FilePath)
@click.option("-m", "--module", metavar="PATH", help="Show this module and what it holds.")
@click.option("--depth", type=click.IntRange(min=0), help="Levels of modules below the first.")
@click.option(
    "--sort",
    type=click.Choice(get_args(Order)),
    default="change",
    show_default=True,
    help="Order of the modules that one parent holds.",
)
@click.option("--deployment", type=click.Choice(["eager", "graph"]), help="Way of running.")
@click.option("--phase", metavar="NAME", help="forward, backward, … [default: as in compare]")
@click.option("--rank", type=click.IntRange(min=0), help="Of several ranks, this one, of both.")
@click.option(
    "--fail-above",
    metavar="R",
    help="Exit 1 if the step or a shown module costs more by over R (0.05, or 5%), beyond noise.",
)
@format_option
def command(
    *,
    base: Path,
    new: Path,
    module: str | None,
    depth: int | None,
    sort: Order,
    deployment: str | None,
    phase: str | None,
    rank: int | None,
    fail_above: str | None,
    output_format: str,
) -> None:
    """Show per module what it cost in BASE, costs in NEW, and the change.

    Modules are matched by path. The change is new less base, so + takes more; it is within noise
    where the intervals of the two figures meet. What differs between the recordings themselves
    (device, dtype, batch, …) is said first.
    """
    limit = None if fail_above is None else ratio_of(fail_above)
    from cb_trace.store import open_profile

    selection = Selection(module=module, depth=depth, deployment=deployment, phase=phase, rank=rank)
    with open_profile(base) as old, open_profile(new) as young:
        found = read_difference(old, young, selection, sort)
    _render(found, output_format)
    if limit is not None:
        _judge(found, limit, fail_above or "")


def _render(difference: Difference, output_format: str) -> None:
    from cb_trace.reporters import difference_text as text

    texts = {
        "json": text.difference_json,
        "csv": text.difference_csv,
        "markdown": text.difference_markdown,
    }
    put_out(difference, output_format, text.print_difference, texts)


def _judge(difference: Difference, limit: float, told: str) -> None:
    from cb_trace.reporters.difference_text import signed_percent

    if any(mismatch.what == TIMED for mismatch in difference.mismatches):
        raise CbTraceError(
            "--fail-above cannot hold a bare step against one under the profiler",
            hint="record both with cb-trace",
        )
    grown = [("the step", difference.step)] if difference.step.grew_beyond(limit) else []
    grown += [
        (r.path or r.class_name, r.cost) for r in difference.rows if r.cost.grew_beyond(limit)
    ]
    if not grown:
        return
    worst = sorted(grown, key=lambda one: -(one[1].ratio or 0.0))
    named = first_of([f"{name} {signed_percent(change.ratio)}" for name, change in worst])
    raise ThresholdCrossedError(f"cost grew by over {told}: {named}")
