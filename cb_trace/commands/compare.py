"""``cb-trace compare``: the module tree with its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from cb_trace.commands.options import SETTINGS, FilePath, first_of, format_option, put_out, ratio_of
from cb_trace.errors import ThresholdCrossedError
from cb_trace.imports import importing
from cb_trace.reporters.comparison import Selection, Sort, read_comparison

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Comparison, ModuleRow

_FOR_TABLES = ("cb_trace.reporters.table", "rich.console", "rich.table")


@click.command(
    epilog="Example: cb-trace compare nanogpt.duckdb --depth 2 --sort error",
    name="compare",
    context_settings=SETTINGS,
)
@click.argument("profile", type=FilePath)
@click.option("-m", "--module", metavar="PATH", help="Show this module and what it holds.")
@click.option("--depth", type=click.IntRange(min=0), help="Levels of modules below the first.")
@click.option(
    "--sort",
    type=click.Choice(get_args(Sort)),
    default="cost",
    show_default=True,
    help="Order of the modules that one parent holds.",
)
@click.option("--deployment", type=click.Choice(["eager", "graph"]), help="Way of running.")
@click.option("--rank", type=click.IntRange(min=0), help="Of several ranks, this one.")
@click.option("--phase", metavar="NAME", help="forward, backward, … [default: step, else forward]")
@click.option(
    "--fail-above",
    metavar="R",
    help="Exit 1 if a shown module's error exceeds R (0.1, or 10%) on either side, beyond noise.",
)
@format_option
def command(
    *,
    profile: Path,
    module: str | None,
    depth: int | None,
    sort: Sort,
    deployment: str | None,
    phase: str | None,
    rank: int | None,
    fail_above: str | None,
    output_format: str,
) -> None:
    """Show per module: cost in the step, cost alone, and the error between them.

    Cost is the module's part of the bare step, children included. Isolated is the module alone,
    back to back, with the inputs it had in the step. Error is isolated over cost, less 1; ~0 says
    that the two cannot be told apart from noise.
    """
    limit = None if fail_above is None else ratio_of(fail_above)
    from cb_trace.store import open_profile

    ahead = _FOR_TABLES if output_format == "table" else ()
    selection = Selection(
        module=module, depth=depth, sort=sort, deployment=deployment, phase=phase, rank=rank
    )
    with open_profile(profile) as connection, importing(*ahead):
        comparison = read_comparison(connection, selection)
    _render(comparison, output_format)
    if limit is not None:
        _judge([row for row in comparison.rows if row.exceeds(limit)], fail_above or "")


def _render(comparison: Comparison, output_format: str) -> None:
    from cb_trace.reporters import rows, table

    texts = {
        "json": rows.comparison_json,
        "csv": rows.comparison_csv,
        "markdown": rows.comparison_markdown,
    }
    put_out(comparison, output_format, table.print_comparison, texts)


def _judge(crossed: list[ModuleRow], limit: str) -> None:
    if not crossed:
        return
    from cb_trace.reporters.table import error_text

    worst = sorted(crossed, key=lambda row: -abs(row.error_ratio or 0))
    named = first_of([f"{row.path or row.class_name} {error_text(row)}" for row in worst])
    raise ThresholdCrossedError(
        f"error above {limit} in {len(worst)} of the modules shown: {named}"
    )
