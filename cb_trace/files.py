"""Files: what one is, what it holds to the byte, and how a profile names it.

Standard library only, as ``bundle.py``; apart from it, since its records take 40 ms to define and
a trace of others needs none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from cb_trace.errors import CbTraceError
from cb_trace.parts import scratch_folder

MANIFEST = "manifest.json"


def is_bundle(path: Path) -> bool:
    """Whether a path is a bundle: a folder or a zip with a manifest at its root."""
    if path.is_dir():
        return (path / MANIFEST).is_file()
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return MANIFEST in archive.namelist()


def check_output(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuse an output before the work, not after.

    :param sources: files that are read for it; not even ``force`` makes one of them the output.
    :raises CbTraceError: it exists and ``force`` is off; it is a folder, a device or a source; or
        its folder is missing or cannot be written.
    """
    if target.is_dir():
        raise CbTraceError(f"{target} is a folder", hint="name a file with -o")
    for source in sources:
        if is_same(target, source):
            raise CbTraceError(f"{source} is its own target", hint="name another file with -o")
    if target.exists() and not force:
        raise CbTraceError(f"{target} exists", hint="add --force, or in Python force=True")
    if target.exists() and not target.is_file():  # a file would take its place: of /dev/null, say
        raise CbTraceError(f"{target} is a pipe or a device", hint="name a file with -o")
    if not target.parent.is_dir():
        raise CbTraceError(f"no such folder: {target.parent}", hint="create it first")
    if not os.access(target.parent, os.W_OK):
        raise CbTraceError(
            f"cannot write {target}: no right to write in its folder", hint="choose another with -o"
        )


def is_same(target: Path, source: Path) -> bool:
    """Whether two paths lead to one file; a member of a zip is that zip."""
    if not target.exists():
        return False
    held = next(path for path in (source, *source.absolute().parents) if path.exists())
    return target.samefile(held)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Give a real file for a path that may lead through a zip (``a.zip/context.json.gz``).

    A member is unpacked to a temporary file for as long as the context lasts.

    :raises CbTraceError: nothing is there.
    """
    archive = next((p for p in path.parents if p.is_file() and zipfile.is_zipfile(p)), None)
    if archive is None:
        if not path.is_file():
            raise CbTraceError(f"no such file: {path}", hint="check the path")
        yield path
        return
    member = path.relative_to(archive).as_posix()
    with scratch_folder() as folder:
        target = folder / PurePosixPath(member).name
        with zipfile.ZipFile(archive) as source:
            if member not in source.namelist():
                raise CbTraceError(f"{archive} holds no {member}", hint="record it again")
            try:
                with source.open(member) as packed, target.open("wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 20)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
                raise CbTraceError(f"{archive} is damaged at {member}: {error}") from error
        yield target


@contextmanager
def original_trace(file: Path, sha256: str | None, profile: Path) -> Iterator[Path]:
    """Give the trace that a profile was made from, as :func:`readable` does.

    :raises CbTraceError: it is gone, or what has its name now is another file.
    """
    with ExitStack() as opened:
        try:
            found = opened.enter_context(readable(file))
        except CbTraceError as error:
            raise CbTraceError(
                f"the trace of {profile} is gone: it was expected at {file}",
                hint="put it back there, or ingest it again",
            ) from error
        if sha256 is not None and file_sha256(found) != sha256:
            raise CbTraceError(
                f"{file} is not the trace this profile was made from",
                hint="put the original back, or ingest this one",
            )
        yield found


def stored_path(file: Path, profile: Path) -> str:
    """How a profile names a file: relative to the profile's folder, so both can be moved."""
    return Path(os.path.relpath(file.resolve(), profile.resolve().parent)).as_posix()


def located_path(stored: str, profile: Path) -> Path:
    """Inverse of :func:`stored_path`; the file need not exist."""
    return Path(os.path.normpath(profile.resolve().parent / stored))
