"""A finished profile is added to by a copy that takes its place, or stays as it was."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import duckdb
import pytest

from cb_trace.errors import CbTraceError
from cb_trace.store import amend, append, create, open_profile
from tests.frames import frame
from tests.store.profiles import base_rows, write_profile

ROW = {"trace_id": 0, "rounded": True, "overlap_ratio": 0.5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_profile(tmp_path / "p.duckdb", base_rows())


def test_rows_are_added_and_everything_else_stays(path: Path) -> None:
    with open_profile(path) as connection:
        before = connection.execute("FROM compare ORDER BY ALL").fetchall()
    with amend(path) as draft:
        append(draft.connection, "hta_overlap", frame("hta_overlap", ROW))
    with open_profile(path) as connection:
        assert connection.execute("FROM hta_overlap").fetchall() == [(0, True, 0.5)]
        assert connection.execute("FROM compare ORDER BY ALL").fetchall() == before
    assert list(path.parent.iterdir()) == [path]
    # Older clients still open it: 65 is the storage version of DuckDB 1.2.
    assert int.from_bytes(path.read_bytes()[12:20], "little") <= 65


def test_an_error_leaves_the_profile_and_nothing_else(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ValueError, match="hta_idle"), amend(path) as draft:
        append(draft.connection, "hta_idle", frame("hta_overlap", ROW))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def killed_writer(path: Path) -> None:
    with amend(path) as draft:
        append(draft.connection, "hta_overlap", frame("hta_overlap", ROW))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_leaves_the_profile(path: Path) -> None:
    before = path.read_bytes()
    writer = multiprocessing.get_context("spawn").Process(target=killed_writer, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert path.read_bytes() == before


def test_what_another_program_wrote_meanwhile_is_kept(path: Path) -> None:
    with pytest.raises(CbTraceError, match="changed by another program"), amend(path):
        replace(path)
    with open_profile(path) as connection:
        assert connection.execute("SELECT run_id FROM run").fetchall() == [("new",)]


def replace(path: Path) -> None:
    with create(path, force=True) as other:
        append(other.connection, "run", frame("run", {"run_id": "new", "schema_version": 1}))


def test_a_view_of_a_stranger_reaches_no_file(path: Path) -> None:
    with amend(path) as draft, pytest.raises(duckdb.PermissionException):
        draft.connection.execute("SELECT * FROM read_text('/etc/hostname')").fetchall()


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match="no such profile"), amend(tmp_path / "absent.duckdb"):
        pass


def test_a_profile_from_before_the_tables_gets_them(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("DROP TABLE hta_overlap")
    with amend(path) as draft:
        append(draft.connection, "hta_overlap", frame("hta_overlap", ROW))
    with open_profile(path) as connection:
        assert connection.execute("SELECT count(*) FROM hta_overlap").fetchall() == [(1,)]
