"""``cb-trace report``: one profile, or two, as one HTML page; or the icicle for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cb_trace.commands.options import SETTINGS, FilePath, force_option, say
from cb_trace.errors import CbTraceError
from cb_trace.files import check_output

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = {"html": ".report.html", "speedscope": ".speedscope.json", "svg": ".svg", "png": ".png"}


@click.command(
    name="report",
    epilog="Example: cb-trace report nanogpt.duckdb -o report.html --open",
    context_settings=SETTINGS,
)
@click.argument("profile", type=FilePath)
@click.argument("new", type=FilePath, required=False)
@click.option(
    "-o",
    "output",
    type=FilePath,
    help="File to write. [default: PROFILE.report.html, or NEW.diff.html]",
)
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
    new: Path | None,
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
    measured. With NEW, the page of what changed from PROFILE to NEW: matched by module path, with
    intervals, and what differs between the recordings themselves on top.
    """
    if new is not None and output_format != "html":
        raise CbTraceError(f"two profiles have no {output_format}", hint="leave --format out")
    ending = ".diff.html" if new else FORMATS[output_format]
    target = output or (new or profile).with_name((new or profile).stem + ending)
    document = _document(profile, new, rank, target, force=force)
    _write(document, target, output_format, {"deployment": deployment, "phase": phase})
    say(f"Wrote {target}: {target.stat().st_size / 1000:,.0f} KB")
    if opened:
        click.launch(str(target))


def _document(
    profile: Path, new: Path | None, rank: int | None, target: Path, *, force: bool
) -> Mapping[str, Any]:
    from cb_trace.reporters.html_data import read_report
    from cb_trace.reporters.html_diff import Side, read_diff_report
    from cb_trace.store import open_profile

    sources = [profile] if new is None else [profile, new]
    with open_profile(profile) as connection:
        if new is None:
            check_output(target, force=force, sources=sources)
            return read_report(connection, profile, rank=rank)
        with open_profile(new) as other:
            check_output(target, force=force, sources=sources)
            return read_diff_report(Side(connection, profile), Side(other, new), rank=rank)


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
