"""What is no trace is refused by its name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from cb_trace.errors import CbTraceError
from tests.trace.conftest import Loader
from tests.trace.test_reading import TEXT


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"  \n ", "is empty"),
        (b"hello", "is not JSON: it starts with b'hello'"),
        (b'{"schema": "1.0", "nodes": [{"id": 1}]}', "is an execution trace"),
        (b'{"a": 1}', "has no traceEvents list"),
        (b'{"traceEvents": {"a": 1}}', "has no traceEvents list"),
        (b'{"schemaVersion": 1, "dev', "not whole JSON"),
        (b"\n\x03\x40\x01\x02\n\x02\x40\x05", "native Perfetto trace"),
        (b"SQLite format 3\0", "SQLite"),
        (b"\x80\x04\x95", "pickle"),
        (b"PK\x03\x04 but no zip", "damaged zip"),
    ],
)
def test_what_is_no_trace_is_named(data: bytes, message: str, tmp_path: Path, load: Loader) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(CbTraceError, match=message) as caught:
        load(tmp_path / "t.json")
    assert "t.json" in caught.value.message
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path, load: Loader) -> None:
    with pytest.raises(CbTraceError, match=r"cannot read .*none\.json"):
        load(tmp_path / "none.json")


def test_a_zip_of_several_traces_is_refused(tmp_path: Path, load: Loader) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.json", TEXT)
        archive.writestr("b.json", TEXT)
    with pytest.raises(CbTraceError, match="holds 2 traces"):
        load(tmp_path / "t.zip")
