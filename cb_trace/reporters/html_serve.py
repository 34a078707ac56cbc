"""The report on loopback, with SQL over the profile and the trace for Perfetto.

Answers to this machine's own name only: a page elsewhere whose name is made to resolve to loopback
(DNS rebinding) is refused, and a form of another page cannot send JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cb_trace.errors import CbTraceError
from cb_trace.reporters.html_columns import texts
from cb_trace.reporters.perfetto_ui import LOOPBACK, TRACE_PATH, LoopbackHandler, ui_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_ROWS = 1000
_LONGEST_REQUEST = 1 << 20
_SECONDS = 20  # a statement that takes longer is stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served. ``trace`` writes the annotated trace when it is first asked for."""

    page: str
    connection: DuckDBPyConnection
    trace: Callable[[], Path]
    perfetto: Path | None = None  # the folder of a built Perfetto UI


class ReportServer(ThreadingHTTPServer):
    """Serves one site until it is shut down."""

    daemon_threads = True

    def __init__(self, port: int, site: Site) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.site = site
        self.lock = threading.Lock()  # one statement, one trace at a time

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self.server_port}/"


def open_report_server(port: int, site: Site) -> ReportServer:
    """Start listening; port 0 takes a free one.

    :raises CbTraceError: the port is taken.
    """
    try:
        server = ReportServer(port, site)
    except OSError as error:
        raise CbTraceError(
            f"cannot listen on {LOOPBACK}:{port}: {error.strerror}", hint="choose another --port"
        ) from error
    site.connection.execute("SET lock_configuration = true")
    return server


def answer(connection: DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Columns and rows of a statement on a read-only profile, or what is wrong with it."""
    import duckdb

    cursor = connection.cursor()
    timer = threading.Timer(_SECONDS, cursor.interrupt)
    timer.start()
    try:
        result = cursor.execute(sql)
        names = [column[0] for column in result.description or ()]
        rows = result.fetchmany(MOST_ROWS + 1)
    except duckdb.Error as error:
        return {"error": str(error)}
    finally:
        timer.cancel()
        cursor.close()
    shown = [list(texts({str(n): v for n, v in enumerate(row)}).values()) for row in rows]
    return {"columns": names, "rows": shown[:MOST_ROWS], "cut": len(rows) > MOST_ROWS}


class _Handler(LoopbackHandler):
    server: ReportServer

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        path, folder = unquote(urlsplit(self.path).path), self.server.site.perfetto
        if not self.is_ours():
            self.send_error(403)
        elif path == "/":
            self.send_text(self.server.site.page.encode(), "text/html; charset=utf-8")
        elif path == TRACE_PATH:
            self.send_trace(self._trace)
        elif (
            folder is not None
            and path.startswith("/perfetto/")
            and (file := ui_file(folder, path.removeprefix("/perfetto/")))
        ):
            self.send_whole(file)
        else:
            self.send_error(404)

    def _trace(self) -> Path:
        with self.server.lock:
            return self.server.site.trace()

    def do_POST(self) -> None:  # noqa: N802
        length = int(self.headers.get("Content-Length") or 0)
        is_json = self.headers.get("Content-Type") == "application/json"
        if not self.is_ours() or not is_json or not 0 < length <= _LONGEST_REQUEST:
            self.send_error(403)
            return
        if urlsplit(self.path).path != "/sql":
            self.send_error(404)
            return
        sql = _statement(self.rfile.read(length))
        with self.server.lock:
            result = (
                {"error": "no SQL"} if sql is None else answer(self.server.site.connection, sql)
            )
        self.send_text(json.dumps(result).encode(), "application/json")


def _statement(body: bytes) -> str | None:
    try:
        given = json.loads(body)
    except ValueError:
        return None
    sql = given.get("sql") if isinstance(given, Mapping) else None
    return sql if isinstance(sql, str) else None
