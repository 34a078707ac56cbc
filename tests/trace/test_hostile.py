"""Files made to mislead or to exhaust: each loads with its events told apart, or is refused."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import duckdb
import pytest

from cb_trace.errors import CbTraceError
from cb_trace.trace import decode, document
from tests.kineto import Event, kernel, launch, module_slice, op, write_trace
from tests.trace.conftest import Loader

SOUND = [op("aten::mm", 10, 20), launch(12, 5, 3), kernel("gemm", 20, 7, 3)]
EVENTS = json.dumps(SOUND)
OTHER = json.dumps([kernel("other", 5, 5, 9)])
TEXT = f'{{"traceEvents": {EVENTS}}}'


def kernels(profile: duckdb.DuckDBPyConnection) -> list[str]:
    rows = profile.execute("SELECT name FROM kernel ORDER BY start_ns").fetchall()
    return [name for (name,) in rows]


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "events_twice": (f'{{"traceEvents": {EVENTS}, "traceEvents": {OTHER}}}', "two traceEvents"),
    "empty_first": (f'{{"traceEvents": [], "traceEvents": {EVENTS}}}', "two traceEvents"),
    "list_of_ranks": (f'[{{"distributedInfo": {{"rank": 0}}, "traceEvents": {EVENTS}}}]',
                      "is a list of traces"),
    "utf_32": (TEXT.encode("utf-32"), "is UTF-32 text"),
    "utf_32_big": (b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"), "is UTF-32 text"),
    "utf_32_bare": (TEXT.encode("utf-32-le"), "is UTF-32 text"),
    "utf_16": (TEXT.encode("utf-16"), "is UTF-16 text"),
    "utf_16_bare": (TEXT.encode("utf-16-be"), "is UTF-16 text"),
    "gzip_twice": (gzip.compress(gzip.compress(TEXT.encode())), "is compressed twice"),
    "xz": (lzma.compress(TEXT.encode()), "is compressed with xz"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
    "tar": (b"t.json".ljust(257, b"\0") + b"ustar\x0000", "is a tar archive"),
    "html": (b"<!DOCTYPE html>", "is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_mislead_is_refused_by_name(case: str, tmp_path: Path, load: Loader) -> None:
    given, message = REFUSED[case]
    (tmp_path / "t.json").write_bytes(given if isinstance(given, bytes) else given.encode())
    with pytest.raises(CbTraceError, match=message) as caught:
        load(tmp_path / "t.json")
    assert caught.value.hint
    assert "\n" not in caught.value.message


READ = {
    "nested": f'{{"meta": {{"traceEvents": {OTHER}}}, "traceEvents": {EVENTS}}}',
    "in_a_string": f'{{"traceName": "\\"traceEvents\\": [", "traceEvents": {EVENTS}}}',
    "nested_after": f'{{"traceEvents": {EVENTS}, "meta": {{"traceEvents": {OTHER}}}}}',
    "in_args": f'{{"traceEvents": {json.dumps([op("x", 1, 2, traceEvents=[1]), *SOUND])}}}',
    "broken_header": f'{{"traceName": "a"b", "traceEvents": {EVENTS}}}',
    "deep_header": f'{{"a": {"[" * 9000}{"]" * 9000}, "traceEvents": {EVENTS}}}',
    "many_nested": '{"a": {"traceEvents": [' * 20 + EVENTS[1:] + "}}" * 20,
    "blanks": f'{{"traceEvents": {EVENTS[:-1]}, {" " * 9_000_000}]}}',
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_the_file_s_own_events_are_read(
    case: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    (tmp_path / "t.json").write_text(READ[case])
    load(tmp_path / "t.json")
    assert kernels(profile) == ["gemm"]


def test_an_event_without_end_is_not_read_for_ever(
    tmp_path: Path, load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_EVENT_LIMIT", 9 << 20)
    with gzip.open(tmp_path / "t.json.gz", "wb", 1) as stream:
        stream.write(TEXT[:-2].encode() + b', {"ph": "X", "name": "')
        stream.write(b"a" * (30 << 20))
    with pytest.raises(CbTraceError, match=r"t\.json\.gz holds 9 MB without the end of an event"):
        load(tmp_path / "t.json.gz")


@pytest.mark.parametrize("phase", ["x", "XX", "", 5, None])
def test_an_event_of_no_known_phase_is_counted(
    phase: object, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    odd = {**kernel("odd", 40, 5, 0), "ph": phase}
    report = load(write_trace(tmp_path / "t.json", [*SOUND, odd]))
    assert kernels(profile) == ["gemm"]
    assert {drop.reason: drop.events for drop in report.drops} == {"event of no known phase": 1}
    assert (report.slices, report.dropped) == (3, 1)


@pytest.mark.parametrize("category", ["KERNEL", None, "npu_kernel"])
def test_device_work_of_no_known_category_is_counted(
    category: object, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    odd: Event = {**kernel("odd", 40, 5, 0), "cat": category}
    sync: Event = {**kernel("Stream Sync", 40, 5, 0), "cat": "cuda_sync"}
    report = load(write_trace(tmp_path / "t.json", [*SOUND, odd, sync]))
    assert kernels(profile) == ["gemm"]
    found = {drop.reason: (drop.events, drop.ns) for drop in report.drops}
    assert found == {"rows of an accelerator that is not read": (1, 5000)}


BOOLEANS = {
    "correlation": {"correlation": True},
    "stream": {"stream": False},
    "device": {"device": True, "stream": 7},
    "bytes": {"bytes": True, "stream": 7},
}


@pytest.fixture(params=["one block", "several blocks"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "several blocks":
        monkeypatch.setattr(document, "BLOCK", 600)
        monkeypatch.setattr(document, "_LEAST", 300)


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize("case", BOOLEANS)
def test_a_boolean_is_no_integer(
    case: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    odd = kernel("void f<true, false>", 40, 5, 0)
    odd["args"] = BOOLEANS[case]
    late = [op("late", 100 + i, 1) for i in range(20)]
    report = load(write_trace(tmp_path / "t.json", [launch(1, 1, 1), *SOUND, odd, *late]))
    found = profile.execute(
        f"SELECT {case}, launch_id FROM kernel WHERE start_ns = 40000"
    ).fetchall()
    # without one of its own, the stream is that of the track
    assert found == [({"stream": 7, "device": 0}.get(case), None)]
    counts = {drop.reason: drop.events for drop in report.drops}
    assert counts["argument that is no integer"] == 1
    assert (report.slices, report.dropped) == (25, 0)


@pytest.mark.usefixtures("_blocks")
def test_a_boolean_is_no_number_of_a_sequence_or_a_frame(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    made = op("made", 1, 1, **{"Sequence number": 1, "External id": 1, "Fwd thread id": 1})
    odd = op("odd", 3, 1, **{"Sequence number": True, "External id": True, "Fwd thread id": True})
    frames = [
        module_slice("A_0", 100, 50, 1, None),
        module_slice("B_0", 110, 10, 2, True),
        module_slice("C_0", 130, 10, True, None),
        module_slice("D_0", 145, 2, 4, 1),
    ]
    late = [op("late", 200 + i, 1) for i in range(20)]
    report = load(write_trace(tmp_path / "t.json", [made, odd, *frames, *late]))
    columns = "sequence_number, external_id, forward_thread"
    ops = profile.execute(f"SELECT {columns} FROM op WHERE name <> 'late' ORDER BY start_ns")
    assert ops.fetchall() == [(1, 1, 1), (None, None, None)]
    parents = "SELECT name, parent_python_id FROM python_module ORDER BY name"
    assert profile.execute(parents).fetchall() == [
        ("A_0", None),
        ("B_0", None),
        ("C_0", None),
        ("D_0", 0),
    ]
    assert [(d.reason, d.events) for d in report.drops] == [("argument that is no integer", 5)]


def test_a_number_too_large_for_its_column_is_counted(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(write_trace(tmp_path / "t.json", [kernel("k", 1, 1, 0, stream=2**64 - 1)]))
    assert profile.execute("SELECT stream FROM kernel").fetchall() == [(None,)]
    assert ("argument that is no integer", 1) in [(d.reason, d.events) for d in report.drops]
