"""The copy changes no event: on hand-made files, damaged ones, and every real one."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.errors import CbTraceError
from cb_trace.reporters import trace_copy
from cb_trace.reporters.trace_copy import CopyReport, copy_trace
from tests.kineto import kernel, launch, op, write_trace

OURS = {"ph": "M", "name": "ours"}
WHOLE = CopyReport(mended=0, dropped=0, truncated=False)


def copied(source: Path) -> tuple[dict[str, Any], CopyReport]:
    out = io.BytesIO()
    report = copy_trace(source, out, [json.dumps(OURS).encode()])
    document: dict[str, Any] = json.loads(out.getvalue())
    return document, report


def written(folder: Path, text: bytes) -> Path:
    file = folder / "trace.json"
    file.write_bytes(text)
    return file


EVENTS = [op("aten::mm", 1.0, 5.0), launch(2.0, 1.0, 7), kernel("gemm", 4.0, 9.5, 7)]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_events_stay_and_ours_come_last(tmp_path: Path, name: str) -> None:
    document, report = copied(write_trace(tmp_path / name, EVENTS))
    assert document["traceEvents"] == [*EVENTS, OURS]
    assert report == WHOLE


def test_the_text_of_events_is_not_touched(tmp_path: Path) -> None:
    """Numbers keep their digits: reading 12.340 as a double and writing it would lose one."""
    event = b'{"ph": "X",  "ts": 7915433212345.340, "dur": 1e3, "name": "a\\u00e9\\/\xc3\xa9"}'
    out = io.BytesIO()
    copy_trace(written(tmp_path, b'{"traceEvents": [' + event + b"]}"), out, [])
    assert event in out.getvalue()


def test_header_is_filtered_before_and_after_the_events(tmp_path: Path) -> None:
    text = (
        b'{"schemaVersion": 1, "env": {"TOKEN": "s3cret"}, "traceEvents": [], '
        b'"displayTimeUnit": "ms", "host_name": "s3cret", "traceName": "/s3cret/t.json"}'
    )
    out = io.BytesIO()
    copy_trace(written(tmp_path, text), out, [])
    assert b"s3cret" not in out.getvalue()
    assert json.loads(out.getvalue()) == {
        "schemaVersion": 1,
        "traceEvents": [],
        "displayTimeUnit": "ms",
    }


def test_only_the_outer_event_array_counts(tmp_path: Path) -> None:
    text = b'{"x": {"traceEvents": [1]}, "traceEvents": [{"a": [{"b": []}]}], "schemaVersion": 1}'
    document, _ = copied(written(tmp_path, text))
    assert document == {"traceEvents": [{"a": [{"b": []}]}, OURS], "schemaVersion": 1}


@pytest.mark.parametrize(
    "text",
    [
        b'[{"ph": "X", "name": "a"}]',
        b'\xef\xbb\xbf[{"ph": "X", "name": "a"},\n]',
        b'[{"ph": "X", "name": "a"}',  # the format allows it; we say that it is cut
    ],
)
def test_bare_array(tmp_path: Path, text: bytes) -> None:
    document, report = copied(written(tmp_path, text))
    assert document == {"traceEvents": [{"ph": "X", "name": "a"}, OURS]}
    assert report.truncated == (not text.endswith(b"]"))


def test_truncated_file_keeps_its_whole_events(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "t.json", EVENTS)
    text = file.read_bytes()
    document, report = copied(written(tmp_path, text[: text.index(b'"gemm"') + 3]))
    assert document["traceEvents"] == [*EVENTS[:2], OURS]
    assert report.truncated


def test_truncated_gzip_keeps_what_was_packed(tmp_path: Path) -> None:
    events = [op(f"aten::op{n}", n, 1.0, detail=str(n * 7919)) for n in range(5000)]
    whole = write_trace(tmp_path / "t.json.gz", events).read_bytes()
    document, report = copied(written(tmp_path, whole[: len(whole) // 2]))
    kept = document["traceEvents"][:-1]
    assert 1000 < len(kept) < 5000
    assert kept == events[: len(kept)]
    assert report.truncated


def test_second_gzip_member_is_read(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS}).encode()
    document, report = copied(
        written(tmp_path, gzip.compress(text[:90]) + gzip.compress(text[90:]))
    )
    assert document["traceEvents"] == [*EVENTS, OURS]
    assert report == WHOLE


@pytest.mark.parametrize(
    ("odd", "value"),
    [
        (b'{"ph": "X", "name": "\xff\xfe"}', "\xff\xfe"),
        (b'{"ph": "X", "name": "a\nb\x01"}', "a\nb\x01"),
        (b'{"ph": "X", "name": "a\\qb"}', "a\\qb"),
    ],
)
def test_bytes_that_json_forbids_are_escaped(tmp_path: Path, odd: bytes, value: str) -> None:
    document, report = copied(written(tmp_path, b'{"traceEvents": [{"a": 1}, ' + odd + b"]}"))
    assert document["traceEvents"] == [{"a": 1}, {"ph": "X", "name": value}, OURS]
    assert report.mended > 0
    assert report.dropped == 0


def test_numbers_that_json_lacks_become_text(tmp_path: Path) -> None:
    text = b'{"traceEvents": [{"name": "NaN", "args": {"x": NaN, "y": -Infinity}}, {"a": 1}]}'
    document, report = copied(written(tmp_path, text))
    args = {"x": "NaN", "y": "-Infinity"}
    assert document["traceEvents"] == [{"name": "NaN", "args": args}, {"a": 1}, OURS]
    assert report.mended == 1


def test_event_that_is_no_json_is_left_out_and_counted(tmp_path: Path) -> None:
    """traces.md section 7: quotes of names were not escaped before 2026."""
    text = (
        b'{"traceEvents": [{"ph": "X", "name": "a"}, {"ph": "X", "name": "op"tor"}, '
        b'{"ph": "X", "name": "b"}]}'
    )
    document, report = copied(written(tmp_path, text))
    assert [event["name"] for event in document["traceEvents"]] == ["a", "b", "ours"]
    assert report.dropped == 1


@pytest.mark.parametrize(
    "text",
    [b"", b"not json", b'{"nodes": []}', b'{"traceEvents": 3}', b'{"traceEvents"', b"\x1f\x8b"],
)
def test_what_is_no_trace(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(CbTraceError, match="no Kineto trace"):
        copied(written(tmp_path, text))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), max_size=8),
    block=st.integers(1, 64),
    ascii_only=st.booleans(),
)
def test_any_events_at_any_window(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    block: int,
    ascii_only: bool,
) -> None:
    text = json.dumps({"traceEvents": events, "schemaVersion": 1}, ensure_ascii=ascii_only)
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_bytes(text.encode("utf-8", "replace"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_copy, "BLOCK_BYTES", block)
        document, report = copied(file)
    assert document == {**json.loads(file.read_bytes()), "traceEvents": [*_read(file), OURS]}
    assert report == WHOLE


def _read(file: Path) -> list[Any]:
    found: list[Any] = json.loads(file.read_bytes())["traceEvents"]
    return found


PRODUCERS = [
    "h200/gpt_compiled",
    "h200/dlrm_overlap_graph",
    "public/b200_eager_pdl",
    "public/h100_transformer_3steps",
    "public/mi300_resnet18_train",
    "public/v100_dlrm_8ranks/worker1",
]


@pytest.mark.parametrize("name", PRODUCERS)
def test_real_traces(shared_traces: Path, name: str) -> None:
    check_unchanged(shared_traces / f"{name}.json.gz")


@pytest.mark.slow
def test_every_real_trace(shared_traces: Path) -> None:
    for file in sorted(shared_traces.rglob("*.json.gz")):
        check_unchanged(file)


def check_unchanged(file: Path) -> None:
    with gzip.open(file) as stream:
        original = json.load(stream)
    document, report = copied(file)
    events = original["traceEvents"] if isinstance(original, dict) else original
    assert document["traceEvents"] == [*events, OURS], file.name
    assert report == WHOLE, file.name
