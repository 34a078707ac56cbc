"""A profile appears whole or not at all, and older DuckDB clients can open it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import duckdb
import polars as pl
import pytest

from cb_trace.errors import CbTraceError
from cb_trace.store import append, beside, create, open_profile, writing_ahead
from cb_trace.store.template import BLOCK_SIZE
from tests.frames import frame
from tests.store.profiles import base_rows, write_profile


def test_the_file_is_written_for_older_clients(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    with duckdb.connect(path, read_only=True) as connection:
        tags = connection.execute(
            "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'p'"
        ).fetchall()
        block = connection.execute("SELECT block_size FROM pragma_database_size()").fetchall()
    assert tags == [("v1.2.0+",)]
    assert block == [(BLOCK_SIZE,)]
    # The header's storage version: 64 is the first, 65 that of 1.2; 1.2 refuses what is above.
    assert int.from_bytes(path.read_bytes()[12:20], "little") <= 65


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="drop"), create(path, force=True) as draft:
        append(draft.connection, "drop", frame("run", {"run_id": "new"}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def killed_writer(path: Path) -> None:
    with create(path, force=True) as draft:
        append(draft.connection, "run", frame("run", {"run_id": "new"}))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_leaves_the_old_file(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    before = path.read_bytes()
    writer = multiprocessing.get_context("spawn").Process(target=killed_writer, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert [p for p in tmp_path.iterdir() if not p.name.startswith(".")] == [path]


def test_it_is_there_only_at_the_end_and_replaces_with_force(tmp_path: Path) -> None:
    path = tmp_path / "p.duckdb"
    with create(path) as draft:
        append(draft.connection, "run", frame("run", {"run_id": "first", "schema_version": 1}))
        assert not path.exists()
    with create(path, force=True) as draft:
        append(draft.connection, "run", frame("run", {"run_id": "second", "schema_version": 1}))
    with open_profile(path) as connection:
        assert connection.execute("SELECT run_id FROM run").fetchall() == [("second",)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("there.duckdb", "exists (add --force"),
        ("folder", "is a folder"),
        ("absent/p.duckdb", "no such folder"),
        ("there.duckdb/p.duckdb", "no such folder"),
    ],
)
def test_a_target_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "there.duckdb").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CbTraceError) as caught, create(tmp_path / name):
        pass
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_takes_no_file_is_refused_in_one_line() -> None:
    with pytest.raises(CbTraceError, match=r"cannot write /proc/p\.duckdb") as caught:
        create(Path("/proc/p.duckdb")).__enter__()
    assert "\n" not in str(caught.value)


def test_a_frame_must_have_the_columns_of_its_table(tmp_path: Path) -> None:
    good = frame("drop", {"trace_id": 0, "reason": "x", "events": 1, "ns": 2})
    bad = [
        good.drop("ns"),
        good.with_columns(pl.col("ns").cast(pl.Float64)),
        good.with_columns(extra=1),
        good.select("reason", "trace_id", "events", "ns"),
    ]
    with create(tmp_path / "p.duckdb") as draft:
        for wrong in bad:
            with pytest.raises(ValueError, match="drop"):
                append(draft.connection, "drop", wrong)
        append(draft.connection, "drop", good)
        assert draft.connection.table("drop").fetchall() == [(0, "x", 1, 2)]


def test_rows_written_beside_other_work_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "p.duckdb"
    with create(path) as draft, writing_ahead(draft.connection) as writer:
        for number in range(5):
            writer.append("note", frame("note", {"run_id": "r", "reason": f"reason {number}"}))
            writer.write()
        writer.settle()
        with beside(draft.connection) as reader:
            assert reader.execute("SELECT count(*) FROM note").fetchall() == [(5,)]
    with duckdb.connect(path, read_only=True) as connection:
        reasons = connection.execute("SELECT reason FROM note").fetchall()
    assert reasons == [(f"reason {number}",) for number in range(5)]


def test_many_rows_are_there_at_once(tmp_path: Path) -> None:
    many = frame("note", {"run_id": "r", "reason": "one of many"})
    many = many[[0] * 100_001]
    with create(tmp_path / "p.duckdb") as draft, writing_ahead(draft.connection) as writer:
        writer.append("note", many)
        with beside(draft.connection) as reader:
            assert reader.execute("SELECT count(*) FROM note").fetchall() == [(100_001,)]


def test_rows_that_do_not_fit_are_told_when_the_writing_ends(tmp_path: Path) -> None:
    path = tmp_path / "p.duckdb"
    with (
        pytest.raises(ValueError, match="drop"),
        create(path) as draft,
        writing_ahead(draft.connection) as writer,
    ):
        writer.append("drop", frame("run", {"run_id": "r"}))
    assert list(tmp_path.iterdir()) == []
