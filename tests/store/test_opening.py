"""What is not a profile of this version is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.errors import CbTraceError
from cb_trace.store import open_profile
from tests.store.profiles import base_rows, write_profile


def refused(path: Path) -> str:
    with pytest.raises(CbTraceError) as caught:
        open_profile(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_absent_folder_or_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": []}')
    (tmp_path / "empty").touch()
    assert "no such profile" in refused(tmp_path / "absent.duckdb")
    assert "is a folder" in refused(tmp_path)
    assert "no DuckDB file" in refused(tmp_path / "t.json")
    assert "no DuckDB file" in refused(tmp_path / "empty")
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe or a device" in refused(tmp_path / "pipe")


def test_a_cut_profile(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    path.write_bytes(path.read_bytes()[:5000])
    assert "cannot open" in refused(path)


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE run (speed INTEGER)")
    assert "no profile of cb-trace" in refused(path)


@pytest.mark.parametrize(("step", "words"), [(1, "upgrade"), (-1, "ingest its bundle again")])
def test_another_schema(tmp_path: Path, step: int, words: str) -> None:
    rows = base_rows()
    rows["run"][0]["schema_version"] = SCHEMA_VERSION + step
    assert words in refused(write_profile(tmp_path / "p.duckdb", rows))


def test_a_view_of_a_stranger_reads_no_file_of_mine(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    with duckdb.connect(path) as connection:
        connection.execute(f"CREATE OR REPLACE VIEW compare AS FROM read_text('{secret}')")
    with open_profile(path) as connection, pytest.raises(duckdb.PermissionException):
        connection.execute("FROM compare")


def test_it_is_read_only_and_many_may_read(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    with open_profile(path) as one, open_profile(path) as two:
        assert one.execute("SELECT count(*) FROM run").fetchall() == [(1,)]
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            two.execute("DELETE FROM run")
