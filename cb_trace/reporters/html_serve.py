"""The report on loopback, with SQL over the profile and the trace for Perfetto.

Answers to this machine's own name only: a page elsewhere whose name is made to resolve to loopback
(DNS rebinding) is refused, and a form of another page cannot send JSON.
"""

from __future__ import annotations

import json
import mimetypes
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cb_trace.errors import CbTraceError
from cb_trace.reporters.html_columns import texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LOOPBACK = "127.0.0.1"
TRACE_PATH = "/trace/annotated.json.gz"
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


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if not self._is_ours():
            self.send_error(403)
        elif path == "/":
            self._send(self.server.site.page.encode(), "text/html; charset=utf-8")
        elif path == TRACE_PATH:
            self._send_trace()
        elif path.startswith("/perfetto/") and (file := self._perfetto_file(path)):
            self._send_file(file)
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        is_json = self.headers.get("Content-Type") == "application/json"
        if not self._is_ours() or not is_json or not 0 < length <= _LONGEST_REQUEST:
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
        self._send(json.dumps(result).encode(), "application/json")

    def _is_ours(self) -> bool:
        named = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        mine = {f"{host}:{self.server.server_port}" for host in (LOOPBACK, "localhost")}
        return named in mine and (origin is None or urlsplit(origin).netloc == named)

    def _send_trace(self) -> None:
        try:
            with self.server.lock:
                file = self.server.site.trace()
        except CbTraceError as error:
            self.send_error(404, explain=str(error))
            return
        self._send_file(file)

    def _perfetto_file(self, path: str) -> Path | None:
        folder = self.server.site.perfetto
        if folder is None:
            return None
        inside = path.removeprefix("/perfetto/") or "index.html"
        file = (folder / inside).resolve()
        return file if file.is_relative_to(folder.resolve()) and file.is_file() else None

    def _send_file(self, file: Path) -> None:
        kind = "application/wasm" if file.suffix == ".wasm" else mimetypes.guess_type(file.name)[0]
        self._head(file.stat().st_size, kind or "application/octet-stream")
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, self.wfile)

    def _send(self, content: bytes, kind: str) -> None:
        self._head(len(content), kind)
        self.wfile.write(content)

    def _head(self, length: int, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _statement(body: bytes) -> str | None:
    try:
        given = json.loads(body)
    except ValueError:
        return None
    sql = given.get("sql") if isinstance(given, Mapping) else None
    return sql if isinstance(sql, str) else None
