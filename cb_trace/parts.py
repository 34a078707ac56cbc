"""Files and folders in the making: hidden, with the writer's number in their name, cleared away.

Standard library only, for both halves. The next process that writes to the same place removes what
a killed one left; one on another machine, or in another container, is known by the lock it holds.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = "lock"  # in a folder; a profile is locked by DuckDB itself
_WRITER = re.compile(r"\.(\d+)-[0-9a-f]+\.part$")


def part_beside(target: Path) -> Path:
    """A new name for a target in the making; what a killed process left of one is removed."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        if _abandoned(left):
            remove_part(left)
    return target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A file to write that takes its target's place when the block ends well."""
    part = part_beside(target)
    try:
        yield part
        part.replace(target)
    finally:
        remove_part(part)


@contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """A folder on the disk of a target, for this process alone and gone afterwards.

    :raises OSError: it cannot be made.
    """
    part = part_beside(target)
    try:
        part.mkdir(mode=0o700)
        with (part / _LOCK).open("wb") as stream:
            with suppress(ImportError, OSError):  # a disk without locks: nobody will take it away
                import fcntl

                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield part
    finally:
        remove_part(part)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder in the system's place for such, gone afterwards."""
    with folder_beside(Path(tempfile.gettempdir()) / "cb-trace") as part:
        folder = part / "scratch"
        folder.mkdir()
        yield folder


def remove_part(part: Path) -> None:
    """Remove a part, and what DuckDB puts beside one."""
    for leftover in (part, part.with_name(f"{part.name}.wal")):
        with suppress(OSError):  # not there, or a folder
            leftover.unlink()
    for folder in (part, Path(f"{part}.tmp")):
        shutil.rmtree(folder, ignore_errors=True)


def _abandoned(part: Path) -> bool:
    """Whether the process that wrote a part is gone; one on another machine holds a lock."""
    writer = _WRITER.search(part.name)
    if writer is None or os.name != "posix":  # elsewhere signal 0 would end the process
        return False
    try:
        os.kill(int(writer[1]), 0)
    except ProcessLookupError:
        return not _locked(part / _LOCK if part.is_dir() else part)
    except (OSError, OverflowError):
        return False
    return False


def _locked(file: Path) -> bool:
    try:
        import fcntl

        with file.open("r+b") as stream:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:  # killed before it had one
        return False
    except (ImportError, OSError):
        return True
    return False
