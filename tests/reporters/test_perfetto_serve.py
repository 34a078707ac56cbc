"""The server gives one file, once, to one origin, and nothing else."""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest

from cb_trace.errors import CbTraceError
from cb_trace.reporters.perfetto_serve import open_server, serve_once

UI = "https://ui.perfetto.dev"


def test_one_file_once(tmp_path: Path) -> None:
    file = tmp_path / "any name.json.gz"
    file.write_bytes(b"trace")
    server = open_server(file, UI, ("127.0.0.1", 0))
    port = int(server.server_address[1])
    thread = threading.Thread(target=serve_once, args=(server, lambda: None))
    thread.start()
    assert ask(port, "GET", "/any%20name.json.gz")[0] == 404
    assert ask(port, "GET", "/../secret")[0] == 404
    assert ask(port, "GET", "/annotated.json.gz", host="evil.example:80")[0] == 404
    assert ask(port, "GET", "/annotated.json.gz", origin="https://evil.example")[0] == 404
    status, headers, _ = ask(port, "OPTIONS", "/annotated.json.gz")
    assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")
    status, headers, body = ask(port, "GET", "/annotated.json.gz", origin=UI)
    assert (status, body) == (200, b"trace")
    assert headers["Access-Control-Allow-Origin"] == UI
    thread.join(timeout=10)
    assert not thread.is_alive()


def ask(
    port: int, method: str, path: str, host: str | None = None, origin: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    given = {name: value for name, value in (("Host", host), ("Origin", origin)) if value}
    connection.request(method, path, headers=given)
    response = connection.getresponse()
    answer = response.status, dict(response.headers.items()), response.read()
    connection.close()
    return answer


def test_port_that_is_taken(tmp_path: Path) -> None:
    with open_server(tmp_path, UI, ("127.0.0.1", 0)) as first:
        address = ("127.0.0.1", int(first.server_address[1]))
        with pytest.raises(CbTraceError, match="cannot listen"):
            open_server(tmp_path, UI, address)
