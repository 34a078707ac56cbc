"""``cb-trace perfetto``: the trace with the modules' figures, for the Perfetto UI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import FilePath, force_option, free_target, say
from cb_trace.errors import CbTraceError
from cb_trace.reporters.perfetto_links import PUBLIC_UI, deep_link, origin_of

if TYPE_CHECKING:
    from cb_trace.reporters.perfetto import Annotated


@click.command(
    name="perfetto", epilog="Example: cb-trace perfetto nanogpt.duckdb -m transformer.h.0 --open"
)
@click.argument("profile", type=FilePath)
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="PATH",
    help="Link to this module; may be given again. [default: the root]",
)
@click.option(
    "-o", "output", type=FilePath, help="File to write. [default: PROFILE.annotated.json.gz]"
)
@force_option
@click.option(
    "--open", "opened", is_flag=True, help="Serve the file to the UI once and open the browser."
)
@click.option(
    "--perfetto-ui", "ui", default=PUBLIC_UI, show_default=True, help="Address of a Perfetto UI."
)
def command(
    *,
    profile: Path,
    modules: tuple[str, ...],
    output: Path | None,
    force: bool,
    opened: bool,
    ui: str,
) -> None:
    """Write the trace with the modules' figures in it, and print links to modules.

    Kineto's events stay as they are. Added are a process "cb-trace" with one row a module depth,
    arrows from each module call to the kernels it launched, the signed error as a counter, and a
    process with the isolated replays.
    """
    from cb_trace.reporters.perfetto import annotate
    from cb_trace.store import open_profile

    if not ui.startswith(("https://", "http://")):
        raise CbTraceError(f"--perfetto-ui wants an address, not {ui!r}", hint=f"as in {PUBLIC_UI}")
    target = output or profile.with_name(f"{profile.stem}.annotated.json.gz")
    with open_profile(profile) as connection:
        free_target(target, force=force)
        written = annotate(connection, profile, target, modules=modules)
    _report(written, target)
    links = [deep_link(ui, link) for link in written.links]
    for link, address in zip(written.links, links, strict=True):
        click.echo(f"{link.path or '(root)'}\t{address}" if len(links) > 1 else address)
    if opened:
        _open(target, ui, links)
    else:
        say("the links work while 'cb-trace perfetto --open' serves the file")


def _report(written: Annotated, target: Path) -> None:
    say(f"Wrote {target}: {written.calls:,} module calls beside the trace's own events")
    copy = written.copy
    if copy.truncated:
        say("note: the trace is cut off; it was taken up to its last whole event")
    if copy.dropped:
        say(f"note: {copy.dropped:,} places of the trace were no JSON and were left out")
    if copy.mended:
        say(f"note: {copy.mended:,} events held bytes that JSON forbids; they are escaped")
    if written.early_kernels:
        say(f"note: {written.early_kernels:,} kernels start before their module; no arrow to them")


def _open(target: Path, ui: str, links: list[str]) -> None:
    import webbrowser

    from cb_trace.reporters.perfetto_serve import open_server, serve_once

    server = open_server(target, origin_of(ui))
    if not links or not webbrowser.open(links[0]):
        say("open the link above in a browser")
    say(
        "waiting for the browser to fetch the trace (Ctrl-C ends it); if it asks whether the page "
        "may reach this device, allow it, or the page stays empty"
    )
    serve_once(server)
