"""Deep links: whole nanoseconds, escaped patterns, the one address the UI fetches from."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from cb_trace.reporters.perfetto_links import PUBLIC_UI, Target, deep_link, origin_of

TARGET = Target(
    path="h.0",
    ts_ns=7_915_433_212_345_678,
    dur_ns=61_500,
    pid=1_000_000_001,
    tid=3,
    row="forward, depth 2",
    streams=("stream 7 ",),
)


def fields(link: str) -> dict[str, list[str]]:
    assert link.startswith(f"{PUBLIC_UI}/#!/?")
    return parse_qs(urlsplit(link).fragment.removeprefix("!/?"))


def test_link_selects_by_time_and_row() -> None:
    found = fields(deep_link(PUBLIC_UI, TARGET))
    assert found["url"] == ["http://127.0.0.1:9001/annotated.json.gz"]
    assert found["ts"] == ["7915433212345678"]
    assert found["dur"] == ["61500"]
    assert (found["pid"], found["tid"]) == (["1000000001"], ["3"])


def test_link_pins_the_row_and_the_stream_and_opens_the_process() -> None:
    commands = json.loads(fields(deep_link(PUBLIC_UI, TARGET))["startupCommands"][0])
    assert commands == [
        {"id": "dev.perfetto.PinTracksByRegex", "args": ["^forward, depth 2( [0-9]+)?$"]},
        {"id": "dev.perfetto.PinTracksByRegex", "args": ["^stream 7( |$)"]},
        {"id": "dev.perfetto.ExpandTracksByRegex", "args": ["^cb-trace"]},
    ]


def test_a_site_may_serve_its_own_ui() -> None:
    assert deep_link("http://localhost:8000/ui/", TARGET).startswith(
        "http://localhost:8000/ui/#!/?"
    )
    assert origin_of("http://localhost:8000/ui/") == "http://localhost:8000"
