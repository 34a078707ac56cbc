"""Hand one file to the Perfetto UI: served on loopback, once, to that UI's origin only."""

from __future__ import annotations

from collections.abc import Callable
from http.server import HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cb_trace.errors import CbTraceError
from cb_trace.reporters.perfetto_links import SERVED_ADDRESS, SERVED_NAME
from cb_trace.reporters.perfetto_ui import LoopbackHandler

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


class _Handler(LoopbackHandler):
    server: _Server

    def do_OPTIONS(self) -> None:  # noqa: N802 - the library's name
        self.server.asked = True
        self.send_response(204)
        self.send_header("Access-Control-Allow-Methods", "GET")
        # Chrome asks before a public page may reach a private address.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def do_GET(self) -> None:  # noqa: N802
        named = urlsplit(self.path).path == f"/{SERVED_NAME}"
        if not (named and self.is_ours(self.server.origin)):
            self.send_error(404)
            return
        self.server.asked = True
        self.send_whole(self.server.file)
        self.server.done = True

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Vary", "Origin")
        super().end_headers()


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
