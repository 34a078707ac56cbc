"""Parts: one whose process is gone is cleared away, one that is written or locked stays."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from cb_trace.capture.output import bundle_at
from cb_trace.parts import folder_beside, scratch_folder, whole

SPAWN = multiprocessing.get_context("spawn")


def ended(work: Callable[..., None], *arguments: object) -> int:
    """The number of a process that has done its work and is gone."""
    process = SPAWN.Process(target=work, args=arguments)
    process.start()
    process.join()
    assert process.pid is not None
    return process.pid


def killed_recorder(target: Path) -> None:
    tempfile.tempdir = str(target.parent)
    with bundle_at(target) as folder, scratch_folder() as scratch:
        (folder / "context.json.gz").touch()
        (scratch / "raw.json").touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["a.zip", "a"])
def test_the_next_one_removes_what_a_killed_one_left(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(killed_recorder, tmp_path / name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    with folder_beside(tmp_path / "b.zip"):
        assert len(list(tmp_path.iterdir())) == 3  # another target's
    with folder_beside(tmp_path / name) as mine, scratch_folder() as scratch:
        assert set(tmp_path.iterdir()) == {mine, scratch.parent}
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_makes_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.zip"
    with folder_beside(target) as first, folder_beside(target) as second:
        assert set(tmp_path.iterdir()) == {first, second}
    assert list(tmp_path.iterdir()) == []


def nothing() -> None: ...


def holding(file: Path, there: Connection) -> None:
    with file.open("wb") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX)
        there.send("locked")
        there.recv()


def test_what_is_locked_stays_though_no_process_here_has_its_number(tmp_path: Path) -> None:
    """As one of another machine or container would, on a disk that both write to."""
    number = ended(nothing)
    part = tmp_path / f".a.zip.{number}-00.part"
    part.mkdir()
    here, there = SPAWN.Pipe()
    holder = SPAWN.Process(target=holding, args=(part / "lock", there))
    holder.start()
    assert here.recv() == "locked"
    with folder_beside(tmp_path / "a.zip"):
        assert part.is_dir()
    here.send("done")
    holder.join()
    with folder_beside(tmp_path / "a.zip"):
        assert not part.exists()


def killed_writer(target: Path) -> None:
    with whole(target) as part:
        part.write_text("new")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    ended(killed_writer, target)
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    with whole(target) as part:
        part.write_text("new")
        assert set(tmp_path.iterdir()) == {target, part}
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]
