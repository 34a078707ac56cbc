"""Rows 1 to 13 of the facts on how trace files break: reading the file."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path

import duckdb
import pytest
import zstandard

from cb_trace.errors import CbTraceError
from cb_trace.trace import LoadReport, source
from cb_trace.trace.document import BLOCK, Document
from tests.kineto import annotation, kernel, launch, op, write_trace
from tests.trace.conftest import Loader

SOUND = [op("aten::mm", 10, 20), launch(12, 5, 1), kernel("gemm", 20, 7, 1)]
TEXT = json.dumps({"schemaVersion": 1, "traceEvents": SOUND}).encode()


def reasons(report: LoadReport) -> dict[str, int]:
    return {drop.reason: drop.events for drop in report.drops}


def broken(path: Path, event: str) -> Path:
    """A trace whose first event is written as given, between sound ones."""
    events = ",\n".join([json.dumps(SOUND[0]), event, *map(json.dumps, SOUND[1:])])
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [\n{events}\n]}}', encoding="utf-8")
    return path


def names(profile: duckdb.DuckDBPyConnection) -> list[str]:
    rows = profile.execute("SELECT name FROM op ORDER BY start_ns, op_id").fetchall()
    return [name for (name,) in rows]


def event(name: str = "x", ts: str = "11", dur: str = "1", args: str = "{}") -> str:
    return (
        f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, '
        f'"ts": {ts}, "dur": {dur}, "args": {args}}}'
    )


# --- row 1 to 5: one broken event -------------------------------------------------------------


MENDED = {
    "row_1": (event(r"C:\work\new\"q\""), "illegal escape", 'C:\\work\new"q"'),
    "row_2_control": (event("a\x01b"), "raw control characters", "a\x01b"),
    "row_2_newline": (event("a\nb"), "raw control characters", "a\nb"),
    "row_4": (event(args='{"memory bandwidth (GB/s)": +inf}'), "bare inf", "x"),
    "row_5_opening": (event().replace('"tid"', 'tid"'), "missing quote", "x"),
    "row_5_closing": (event().replace('"tid"', '"tid'), "missing quote", "x"),
    "row_5_both": (event().replace('"tid"', "tid"), "missing quote", "x"),
    "row_5_comma": (event().replace('1, "tid"', '1 "tid"'), "missing comma", "x"),
    "twice": (event().replace('"pid": 1', '"pid": 1, "pid": 2'), "duplicate keys", "x"),
}


@pytest.mark.parametrize("case", MENDED)
def test_a_broken_event_is_mended_and_counted(
    case: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    text, reason, name = MENDED[case]
    report = load(broken(tmp_path / "t.json", text))
    assert names(profile) == ["aten::mm", name]
    assert [drop.events for drop in report.drops if reason in drop.reason] == [1]
    assert (report.repaired, report.dropped, report.kernels, report.slices) == (1, 0, 1, 4)


def test_row_1_legal_escapes_are_left_alone(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(broken(tmp_path / "t.json", event(r"a\nb\\c\"d\u0041")))
    assert names(profile)[1] == 'a\nb\\c"dA'
    assert report.repaired == 0


def test_row_2_raw_quotes_drop_one_event(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(broken(tmp_path / "t.json", event('exec "print(1)"\n<string>')))
    assert names(profile) == ["aten::mm"]
    assert reasons(report) | {"unreadable event": 1} == reasons(report)
    assert (report.dropped, report.kernels) == (1, 1)


def test_row_3_other_encodings_keep_the_event(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = broken(tmp_path / "t.json", event("PLACE"))
    path.write_bytes(path.read_bytes().replace(b"PLACE", b"a\xff\xfeb"))
    report = load(path)
    assert names(profile) == ["aten::mm", "a\ufffd\ufffdb"]
    assert reasons(report) == {"repaired: not UTF-8": 1}


@pytest.mark.parametrize("time", ["ts", "dur"])
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "inf", "1e999"])
def test_row_4_no_number_in_a_time_drops_the_event(
    number: str, time: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(broken(tmp_path / "t.json", event(**{time: number})))
    assert names(profile) == ["aten::mm"]
    assert reasons(report)["event without a usable time"] == 1
    assert report.dropped == 1


def test_row_5_bare_array_of_the_legacy_profiler(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "t.json"
    host = {"name": " aten::mm ", "ph": "X", "ts": 1, "dur": 9, "tid": 0, "pid": "CPU functions"}
    device = {"name": "gemm ", "ph": "X", "ts": 4, "dur": 3, "tid": 0, "pid": "CUDA functions"}
    path.write_text(json.dumps([host, {**device, "args": {}}]))
    report = load(path)
    assert names(profile) == ["aten::mm"]
    found = profile.execute("SELECT name, dur_ns, launch_id FROM kernel").fetchall()
    assert found == [("gemm", 3000, None)]
    assert "no launch link in this trace" in report.notes


# --- row 6 to 13: containers and shapes -------------------------------------------------------


def multi_member() -> bytes:
    third = len(TEXT) // 3
    parts = (TEXT[:third], TEXT[third : 2 * third], TEXT[2 * third :])
    return b"".join(gzip.compress(part) for part in parts)


def in_zstd() -> bytes:
    return b"".join(zstandard.ZstdCompressor().compress(part) for part in (TEXT[:50], TEXT[50:]))


def in_zip(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run/trace.json.gz", gzip.compress(TEXT))
        archive.writestr("readme.txt", "…")
    return path.read_bytes()


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.bin"])
@pytest.mark.parametrize("wrap", ["plain", "gzip", "multi", "padded", "zstd", "zip", "mark"])
def test_row_6_containers_are_told_by_content(
    wrap: str, name: str, tmp_path: Path, load: Loader
) -> None:
    containers: dict[str, Callable[[], bytes]] = {
        "plain": lambda: TEXT,
        "gzip": lambda: gzip.compress(TEXT),
        "multi": multi_member,
        "padded": lambda: gzip.compress(TEXT) + bytes(700_000),
        "zstd": in_zstd,
        "zip": lambda: in_zip(tmp_path / "made.zip"),
        "mark": lambda: b"\xef\xbb\xbf" + TEXT,
    }
    (tmp_path / name).write_bytes(containers[wrap]())
    report = load(tmp_path / name)
    assert (report.kernels, report.slices, report.summary()) == (
        1, 3, "no steps in this trace: the whole trace is one step",
    )  # fmt: skip


def large(events: int) -> bytes:
    """Events whose numbers do not compress to nothing."""
    rows = [op(f"aten::op{i * 7919 % 104_729}", i, 1) for i in range(events)]
    return json.dumps({"traceEvents": [*SOUND, *rows]}).encode()


def test_row_7_damage_in_mid_stream_keeps_what_decodes(tmp_path: Path, load: Loader) -> None:
    packed = bytearray(gzip.compress(large(20_000)))
    packed[len(packed) // 2 :] = packed[: len(packed) // 2]
    (tmp_path / "t.json.gz").write_bytes(packed)
    report = load(tmp_path / "t.json.gz")
    assert 8_000 < report.slices < 12_000
    assert report.damage is not None
    assert "gzip data damaged" in report.damage
    assert "several ranks wrote one file" in report.damage
    assert report.truncated


def test_row_7_a_wrong_checksum_loses_nothing(tmp_path: Path, load: Loader) -> None:
    packed = bytearray(gzip.compress(large(3_000)))
    packed[-6] ^= 1
    (tmp_path / "t.json.gz").write_bytes(packed)
    report = load(tmp_path / "t.json.gz")
    assert report.slices == 3_003
    assert report.damage == "gzip data damaged: incorrect data check"
    assert (report.truncated, report.dropped) == (False, 0)


def test_row_7_nothing_decodable_is_an_error(tmp_path: Path, load: Loader) -> None:
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(TEXT)[:12] + b"\xff" * 400)
    with pytest.raises(CbTraceError, match=r"t\.json\.gz"):
        load(tmp_path / "t.json.gz")


@pytest.mark.parametrize("join", [b"", b"\n", b"\n\n\0\n"])
def test_row_8_joined_documents_are_refused(join: bytes, tmp_path: Path, load: Loader) -> None:
    (tmp_path / "t.json").write_bytes(TEXT + join + TEXT)
    with pytest.raises(CbTraceError, match="several JSON documents"):
        load(tmp_path / "t.json")


def test_row_8_other_bytes_after_the_document_are_counted(tmp_path: Path, load: Loader) -> None:
    (tmp_path / "t.json").write_bytes(TEXT + b"\nrest")
    report = load(tmp_path / "t.json")
    assert (report.slices, report.lost_bytes) == (3, 4)


def test_row_9_metadata_only_is_a_valid_empty_result(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    meta = {"name": "process_name", "ph": "M", "ts": 1, "pid": 1, "tid": 0, "args": {"name": "p"}}
    report = load(write_trace(tmp_path / "t.json", [meta]))
    assert report.notes == ("no events in this trace, only metadata",)
    found = profile.execute("SELECT slices, first_ns, span_ns FROM trace").fetchall()
    assert found == [(0, 0, 0)]
    (tmp_path / "none.json").write_text('{"traceEvents": []}')
    assert load(tmp_path / "none.json", trace_id=1).slices == 0


@pytest.mark.parametrize(
    ("name", "header", "rank"),
    [
        ("t.json", {}, 0),
        ("run_rank-12.json", {}, 12),
        ("worker3.pt.trace.json", {}, 3),
        ("rank3.json", {"distributedInfo": {"rank": 5, "world_size": 8}}, 5),
        ("rank3.json", {"distributedInfo": "none"}, 3),
    ],
)
def test_row_10_rank_from_header_else_name_else_0(
    name: str, header: dict[str, object], rank: int, tmp_path: Path, load: Loader
) -> None:
    assert load(write_trace(tmp_path / name, SOUND, **header)).rank == rank


def test_row_11_the_text_is_never_held_whole() -> None:
    """What cutting holds is some blocks, whether the file is 30 MB or 200 GB."""
    event_text = json.dumps(op("aten::mm", 1, 1, **{"Input Dims": [[8, 8]] * 20})).encode() + b",\n"
    piece, pieces = event_text * (BLOCK // 4 // len(event_text)), 32
    text = chain([b'{"traceEvents": ['], repeat(piece, pieces), [b"{}]}"])
    tracemalloc.start()
    try:
        size = sum(len(block) for block in Document("t.json").blocks(text))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 0.99 * pieces * len(piece)
    assert peak < 5 * BLOCK < size


@pytest.mark.parametrize("lost", [1, 30, 90, 200])
def test_row_12_a_truncated_tail_keeps_whole_events(
    lost: int, tmp_path: Path, load: Loader
) -> None:
    events = [*SOUND, op("last", 50, 1, note="x" * 100)]
    text = json.dumps({"traceEvents": events}).encode()[: -2 - lost]
    for name, data in (("t.json", text), ("t.json.gz", gzip.compress(text)[:-9])):
        (tmp_path / name).write_bytes(data)
        report = load(tmp_path / name, trace_id=int(name.endswith("gz")))
        assert (report.slices, report.kernels, report.truncated) == (3, 1, True)
        assert reasons(report)["truncated tail"] == 1
        assert report.lost_bytes > 0
    # the plain file: all that is lost is the last event's text
    start = text.rindex(b'{"ph"')
    assert load(tmp_path / "t.json", trace_id=2).lost_bytes == len(text) - start


@pytest.mark.parametrize("args", ["[1, 2]", '"text"', "null", "7", '{"a": {"b": [{"name": 1}]}}'])
def test_row_13_args_of_any_type(
    args: str, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    report = load(broken(tmp_path / "t.json", event(args=args)))
    assert names(profile) == ["aten::mm", "x"]
    assert (report.repaired, report.dropped, report.kernels) == (0, 0, 1)


def test_row_13_async_pairs_and_flows_are_no_slices(tmp_path: Path, load: Loader) -> None:
    pairs = [
        {"ph": ph, "name": "io", "cat": "x", "id": 1, "pid": 1, "tid": 1, "ts": 5}
        for ph in "besfiC"
    ]
    assert load(write_trace(tmp_path / "t.json", [*SOUND, *pairs])).slices == 3


# --- the header -------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_header_facts_by_allow_list(
    after: bool, tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    header = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "cuda_runtime_version": 13000,
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg": [{"ranks": []}]},
        "baseTimeNanoseconds": 1790857026000000000,
        "host_name": "secret.example",
        "PT_PROFILER_JOB_NAME": "secret job",
    }
    events = {"traceEvents": SOUND}
    document = {**events, **header} if after else {**header, **events}
    (tmp_path / "t.json").write_text(json.dumps(document))
    report = load(tmp_path / "t.json")
    assert report.header.device_names == ("NVIDIA H200",)
    assert (report.rank, report.world_size, report.header.backend) == (3, 8, "nccl")
    assert report.header.cuda_version == "13.0"
    assert (report.slices, report.truncated, report.lost_bytes) == (3, False, 0)
    found = profile.execute("SELECT origin_ns, rank, world_size FROM trace").fetchall()
    assert found == [(1790857026000000000, 3, 8)]
    assert "secret" not in repr(report)


def test_row_1_windows_paths_in_the_header(tmp_path: Path, load: Loader) -> None:
    header = r'"distributedInfo": {"rank": 4}, "traceName": "C:\Users\x\t.json"'
    events = json.dumps(SOUND)
    for trace_id, text in enumerate(
        (f'{{{header}, "traceEvents": {events}}}', f'{{"traceEvents": {events}, {header}}}')
    ):
        (tmp_path / "t.json").write_text(text)
        report = load(tmp_path / "t.json", trace_id=trace_id)
        assert (report.slices, report.rank, report.truncated) == (3, 4, False)
        assert (report.lost_bytes, report.dropped) == (0, 0)


def test_identifiers_go_on_over_several_traces(
    tmp_path: Path, load: Loader, profile: duckdb.DuckDBPyConnection
) -> None:
    path = write_trace(tmp_path / "t.json", [*SOUND, annotation("ProfilerStep#1", 1, 90)])
    for trace_id in (0, 1):
        load(path, trace_id=trace_id)
    for table, key in (("op", "op_id"), ("kernel", "kernel_id"), ("launch", "launch_id"),
                       ("thread", "thread"), ("annotation", "annotation_id")):  # fmt: skip
        rows, keys = profile.execute(
            f"SELECT count(*), count(DISTINCT {key}) FROM {table}"
        ).fetchall()[0]
        assert rows == keys > 1
    joined = profile.execute(
        "SELECT k.trace_id, l.trace_id, o.trace_id FROM kernel k JOIN launch l USING (launch_id) "
        "JOIN op o ON o.op_id = k.op_id ORDER BY 1"
    ).fetchall()
    assert joined == [(0, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize("cut", [2, 3, 5])
def test_row_7_a_second_header_ends_what_is_read(cut: int, tmp_path: Path, load: Loader) -> None:
    """Behind it the bytes decode without complaint, to text that nobody wrote."""
    packed = gzip.compress(large(5_000), 6, mtime=0)
    begun = packed[: len(packed) // cut]
    (tmp_path / "t.json.gz").write_bytes(begun + packed[: len(packed) // 2])
    report = load(tmp_path / "t.json.gz")
    assert (report.damage, report.truncated) == (
        "gzip data damaged (several ranks wrote one file at once?)", True,
    )  # fmt: skip
    alone = tmp_path / "begun.json.gz"
    alone.write_bytes(begun)
    assert report.slices == load(alone, trace_id=1).slices
    assert reasons(report) == {"truncated tail": 1}


@pytest.mark.parametrize("at", range(-12, 3, 2))
def test_row_6_members_may_end_anywhere_in_a_read(
    at: int, tmp_path: Path, load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(TEXT[: len(TEXT) // 2]) + gzip.compress(TEXT[len(TEXT) // 2 :])
    (tmp_path / "t.json.gz").write_bytes(packed)
    second = packed.index(b"\x1f\x8b\x08", 1)
    monkeypatch.setattr(source, "_READ", second + at)
    report = load(tmp_path / "t.json.gz")
    assert (report.slices, report.damage, report.truncated) == (3, None, False)
