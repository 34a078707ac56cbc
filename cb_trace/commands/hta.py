"""``cb-trace hta``: HolisticTraceAnalysis as a second opinion on a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import (
    SETTINGS,
    FilePath,
    format_option,
    needs_reading_half,
    say,
    show_progress,
)

if TYPE_CHECKING:
    from cb_trace.hta import SecondOpinion

DEFAULT_TIMEOUT_S = 3600


@click.command(name="hta", epilog="Example: cb-trace hta trace.duckdb", context_settings=SETTINGS)
@click.argument("profile", type=FilePath)
@click.option("--all", "everything", is_flag=True, help="List the figures that agree as well.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(min=1),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long HTA may take over one reading of one trace.",
)
@format_option
def command(*, profile: Path, everything: bool, timeout_s: int, output_format: str) -> None:
    """Ask HolisticTraceAnalysis about the traces of PROFILE, store it, list where it differs.

    HTA's breakdowns and critical path go to the hta_* tables of the profile, joined to our kernels
    and modules. The traces must still be where they were when the profile was made: HTA is asked
    about those that are, and what it said of the others stays. HTA is slow: minutes for a million
    events.
    """
    second_opinion_on(profile, output_format, everything=everything, timeout_s=timeout_s)


def second_opinion_on(
    profile: Path,
    output_format: str = "table",
    *,
    everything: bool = False,
    timeout_s: int = DEFAULT_TIMEOUT_S,
) -> None:
    """Add HTA's opinion to a profile; say what HTA failed at, list where it differs."""
    needs_reading_half()
    from cb_trace.hta import second_opinion

    with show_progress() as show:
        opinion = second_opinion(profile, timeout_s=timeout_s, progress=show)
    _report(opinion)
    _show(profile, output_format, everything=everything)


def _report(opinion: SecondOpinion) -> None:
    for absent in opinion.absent:
        say(f"note: HTA was not asked: {absent}")
    again = set(opinion.checks.filter(~opinion.checks["rounded"])["trace_id"])
    for trace_id, rounded, analysis, reason in opinion.failures.iter_rows():
        way = "" if rounded else ", unrounded as well"
        then = "; tried unrounded" if rounded and trace_id in again else ""
        say(f"note: HTA, trace {trace_id}: {analysis} failed{way}: {reason}{then}")
    wanted = opinion.traces + len(opinion.absent)
    asked = f"traces asked: {opinion.traces}" + (f" of {wanted}" if opinion.absent else "")
    if opinion.checks.is_empty():  # 0 of 0 would read as agreement
        say(f"{asked}; HTA gave no figure to compare")
        return
    agreed = int(opinion.checks["agrees"].sum())
    say(f"{asked}; HTA agrees on {agreed} of {opinion.checks.height} figures")


def _show(profile: Path, output_format: str, *, everything: bool) -> None:
    from cb_trace.commands.query import render
    from cb_trace.reporters.result import Result
    from cb_trace.store import named_query, open_profile

    with open_profile(profile) as connection:
        connection.execute("SET VARIABLE everything = $value", {"value": int(everything)})
        done = connection.execute(named_query("hta_disagreements").sql)
        columns = [column[0] for column in done.description or ()]
        result = Result(columns, list(done.fetchall()))
    if result.rows or output_format != "table":
        render(result, "hta_disagreements", output_format)
