"""Hand one file to the Perfetto UI: served on loopback, once, to that UI's origin only."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cb_trace.errors import CbTraceError
from cb_trace.reporters.perfetto_links import SERVED_ADDRESS, SERVED_NAME

PATIENCE = 15.0  # seconds in which a page that may fetch the file has done so


class _Server(HTTPServer):
    """Ends after one download."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], file: Path, origin: str) -> None:
        super().__init__(address, _Handler)
        self.file = file
        self.origin = origin
        self.asked = False
        self.done = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_OPTIONS(self) -> None:
        self.server.asked = True
        self.send_response(204)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET")
        # Chrome asks before a public page may reach a private address.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def do_GET(self) -> None:
        if not self._is_ours():
            self.send_error(404)
            return
        self.server.asked = True
        self.send_response(200)
        self._allow()
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.file.stat().st_size))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        with self.server.file.open("rb") as stream:
            shutil.copyfileobj(stream, self.wfile)
        self.server.done = True

    def _is_ours(self) -> bool:
        # A page of another name that resolves to loopback must not read it (DNS rebinding).
        named = self.headers.get("Host", "")
        host, port = self.server.server_address[:2]
        return named == f"{host!s}:{port}" and urlsplit(self.path).path == f"/{SERVED_NAME}"

    def _allow(self) -> None:
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Vary", "Origin")

    def log_message(self, *_: object) -> None:
        pass


def open_server(file: Path, origin: str, address: tuple[str, int] = SERVED_ADDRESS) -> _Server:
    """Start listening; the file is fetched as :data:`SERVED_NAME`.

    :raises CbTraceError: the port is taken. The UI fetches plain HTTP from this port only.
    """
    try:
        return _Server(address, file, origin)
    except OSError as error:
        raise CbTraceError(
            f"cannot listen on {address[0]}:{address[1]}: {error.strerror}",
            hint="stop what uses the port (trace_processor?), or open the file in the UI by hand",
        ) from error


def serve_once(server: _Server, waiting: Callable[[], None], patience: float = PATIENCE) -> None:
    """Answer requests until the file was fetched.

    :param waiting: called once where nobody asks for ``patience`` seconds.
    """
    server.timeout = patience
    told = False
    with server:
        while not server.done:
            server.handle_request()
            if not server.asked and not told:
                told = True
                waiting()
