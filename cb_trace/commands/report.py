"""``cb-trace report``: the profile as one HTML page, or its icicle for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cb_trace.commands.options import FilePath, force_option, free_target, say

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = {"html": ".report.html", "speedscope": ".speedscope.json", "svg": ".svg", "png": ".png"}


@click.command(
    name="report", epilog="Example: cb-trace report nanogpt.duckdb -o report.html --open"
)
@click.argument("profile", type=FilePath)
@click.option("-o", "output", type=FilePath, help="File to write. [default: PROFILE.report.html]")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(FORMATS)),
    default="html",
    show_default=True,
    help="The page; or the icicle for speedscope.app or for slides.",
)
@click.option("--deployment", type=click.Choice(["eager", "graph"]), help="For svg and png.")
@click.option("--phase", metavar="NAME", help="For svg and png: forward, backward, …")
@click.option("--rank", type=click.IntRange(min=0), help="Of several ranks, this one.")
@force_option
@click.option("--open", "opened", is_flag=True, help="Open what was written in the browser.")
def command(
    *,
    profile: Path,
    output: Path | None,
    output_format: str,
    deployment: str | None,
    phase: str | None,
    rank: int | None,
    force: bool,
    opened: bool,
) -> None:
    """Write the profile as one page that anyone can open.

    The page needs no network and no server: an icicle of the modules, a table of their figures,
    the error of each with its terms, its kernels in the step beside alone, and how it was
    measured.
    """
    from cb_trace.reporters.html_data import read_report
    from cb_trace.store import open_profile

    target = output or profile.with_name(profile.stem + FORMATS[output_format])
    with open_profile(profile) as connection:
        free_target(target, force=force)
        document = read_report(connection, profile, rank=rank)
    _write(document, target, output_format, {"deployment": deployment, "phase": phase})
    say(f"Wrote {target}: {target.stat().st_size / 1000:,.0f} KB")
    if opened:
        click.launch(str(target))


def _write(
    document: Mapping[str, Any], target: Path, output_format: str, way: Mapping[str, str | None]
) -> None:
    from cb_trace.reporters import html, icicle_png, icicle_svg, speedscope
    from cb_trace.reporters.whole_file import write_whole

    if output_format == "png":
        icicle_png.write(icicle_svg.render(document, **way), target)
        return
    text = {
        "html": lambda: html.render_report(document),
        "speedscope": lambda: speedscope.render(document),
        "svg": lambda: icicle_svg.render(document, **way),
    }[output_format]()
    write_whole(target, text.encode())
