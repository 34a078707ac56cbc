"""Deep links into the Perfetto UI: select one slice, pin rows, open groups.

The UI selects by time and track, never by slice id, and reads times as whole nanoseconds of the
file's own axis. It fetches plain HTTP from one address only, ``http://127.0.0.1:9001``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

PUBLIC_UI = "https://ui.perfetto.dev"
SERVED_ADDRESS = ("127.0.0.1", 9001)
SERVED_NAME = "annotated.json.gz"  # whatever the file is called: links in a profile name this
_SPECIAL = set(r"\^$.|?*+()[]{}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The slice a link leads to, and the rows to pin beside it."""

    path: str
    ts_ns: int
    dur_ns: int
    pid: int
    tid: int
    row: str
    streams: tuple[str, ...] = ()


def served_url() -> str:
    """Where ``cb-trace perfetto --open`` serves a file."""
    host, port = SERVED_ADDRESS
    return f"http://{host}:{port}/{SERVED_NAME}"


def deep_link(ui: str, target: Target, trace: str | None = None) -> str:
    """The link that opens a trace in a Perfetto UI with ``target`` selected.

    :param trace: where the UI fetches the trace; by default where ``--open`` serves it.
    """
    pinned = [_exactly(target.row), *(_starting(name) for name in target.streams)]
    commands = [
        {"id": "dev.perfetto.PinTracksByRegex", "args": [pattern]} for pattern in pinned
    ] + [{"id": "dev.perfetto.ExpandTracksByRegex", "args": ["^cb-trace"]}]
    fields: Sequence[tuple[str, str | int]] = (
        ("url", trace or served_url()),
        ("ts", target.ts_ns),
        ("dur", target.dur_ns),
        ("pid", target.pid),
        ("tid", target.tid),
        ("startupCommands", json.dumps(commands, separators=(",", ":"))),
    )
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in fields)
    return f"{ui.rstrip('/')}/#!/?{query}"


def origin_of(ui: str) -> str:
    """Scheme, host and port of a UI's address: what a browser sends as ``Origin``."""
    parts = urlsplit(ui)
    return f"{parts.scheme}://{parts.netloc}"


def _exactly(name: str) -> str:
    # Perfetto appends the thread's number to its name.
    return f"^{_escaped(name)}( [0-9]+)?$"


def _starting(name: str) -> str:
    return f"^{_escaped(name.strip())}( |$)"


def _escaped(name: str) -> str:
    return "".join("\\" + c if c in _SPECIAL else c for c in name)
