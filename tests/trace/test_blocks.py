"""Cutting into blocks: what is loaded must not depend on where the text was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cb_trace.errors import CbTraceError
from cb_trace.trace import document
from cb_trace.trace.document import Document
from tests.kineto import Event, kernel, launch, op
from tests.trace.conftest import Loader


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "BLOCK", 2000)
    monkeypatch.setattr(document, "_LEAST", 500)


def events(count: int, **args: Any) -> list[Event]:
    found = []
    for i in range(1, count + 1):
        found += [op(f"op{i}", 100 * i, 50, **args), launch(100 * i + 10, 5, i)]
        found += [kernel(f"k{i}", 100 * i + 30, 7, i)]
    return found


def write(path: Path, rows: list[Event], indent: int | None = None, **after: Any) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows, **after}, indent=indent)
    path.write_text(text)
    return path


def linked(profile: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return profile.execute(
        "SELECT k.name, o.name FROM kernel k JOIN op o USING (op_id) ORDER BY k.start_ns"
    ).fetchall()


ALL = [(f"k{i}", f"op{i}") for i in range(1, 41)]


@pytest.mark.parametrize("indent", [None, 1])
def test_many_blocks_load_as_one(
    indent: int | None, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(write(tmp_path / "t.json", events(40), indent))
    assert linked(profile) == ALL
    assert (report.slices, report.repaired, report.dropped) == (120, 0, 0)
    assert not report.truncated
    ids = profile.execute("SELECT count(DISTINCT op_id), count(*) FROM op").fetchall()
    assert ids == [(40, 40)]


@pytest.mark.parametrize("time", ["ts", "dur"])
def test_a_boolean_time_in_one_of_many_blocks_drops_one_event(
    time: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    rows: list[Event] = [*events(20), {**op("odd", 2050, 1), time: True}, *events(40)[60:]]
    report = load(write(tmp_path / "t.json", rows))
    assert linked(profile) == ALL
    assert (report.slices, report.dropped) == (120, 1)
    assert [drop.reason for drop in report.drops] == ["event without a usable time"]


def test_a_cut_inside_an_event_is_mended(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    lure = [{"name": "x" * 20, "ph": "X"}, {"name": "y" * 20, "ph": "X"}] * 12
    report = load(write(tmp_path / "t.json", events(40, lure=lure)))
    assert linked(profile) == ALL
    assert (report.slices, report.dropped) == (120, 0)


def test_broken_events_at_every_cut(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = write(tmp_path / "t.json", events(40))
    path.write_text(path.read_text().replace('"op', '"\\op'))
    report = load(path)
    assert [name for _, name in linked(profile)] == [f"\\op{i}" for i in range(1, 41)]
    assert (report.repaired, report.dropped) == (40, 0)


def test_an_event_larger_than_a_block(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    rows = events(40)
    rows[60]["args"]["Call stack"] = "s" * 9000
    report = load(write(tmp_path / "t.json", rows))
    assert linked(profile) == ALL
    assert (report.slices, report.dropped) == (120, 0)


def test_a_large_header_after_the_events(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    info = [{"job": "secret", "items": [i] * 20} for i in range(200)]
    ranks = {"rank": 5, "world_size": 8}
    path = write(tmp_path / "t.json", events(40), INFO=info, distributedInfo=ranks)
    report = load(path)
    assert linked(profile) == ALL
    assert (report.slices, report.dropped, report.truncated) == (120, 0, False)
    assert report.rank == 5


def test_joined_documents_are_found_in_any_block(tmp_path: Path, load: Loader) -> None:
    text = write(tmp_path / "t.json", events(40)).read_text()
    (tmp_path / "t.json").write_text(text + "\n" + text)
    with pytest.raises(CbTraceError, match="several JSON documents"):
        load(tmp_path / "t.json")


@pytest.mark.parametrize("kept", range(3000, 3600, 60))
def test_truncation_at_any_byte_keeps_every_whole_event(
    kept: int, tmp_path: Path, load: Loader
) -> None:
    text = write(tmp_path / "t.json", events(40)).read_text()[:kept]
    (tmp_path / "t.json").write_text(text)
    report = load(tmp_path / "t.json")
    whole = text.count('}}, {"ph"') + text.endswith(("}}", "}},", "}}, "))
    assert (report.slices, report.truncated) == (whole, True)


def test_blocks_are_handed_out_before_the_end() -> None:
    text = json.dumps({"traceEvents": events(200)}).encode()
    read = 0

    def pieces() -> Iterator[bytes]:
        nonlocal read
        for at in range(0, len(text), 500):
            read += 500
            yield text[at : at + 500]

    next(Document("t.json").blocks(pieces()))
    assert read < len(text) // 4
