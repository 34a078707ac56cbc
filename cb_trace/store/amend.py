"""Add to a finished profile: work on a copy that takes the profile's place when whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace.errors import CbTraceError
from cb_trace.interrupts import interruptible
from cb_trace.parts import part_beside, remove_part
from cb_trace.store.draft import Draft
from cb_trace.store.opening import open_profile
from cb_trace.store.template import run_script

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@contextmanager
def amend(profile: Path) -> Iterator[Draft]:
    """Open a copy of a profile for writing; it replaces the profile if the block ends well.

    Until then, and after an error or a kill, the profile is as it was.

    :raises CbTraceError: it is no profile, its folder cannot be written, or the profile was
        replaced meanwhile.
    """
    open_profile(profile).close()
    before = _identity(profile)
    part = part_beside(profile)
    try:
        connection = _copy(profile, part)
        try:
            run_script(connection, "hta_schema.sql")
            yield Draft(connection, profile)
            connection.execute("CHECKPOINT")
        finally:
            connection.close()
        if _identity(profile) != before:
            raise CbTraceError(f"{profile} was changed by another program", hint="try again")
        part.replace(profile)
    finally:
        remove_part(part)


def _identity(profile: Path) -> tuple[int, int, int]:
    found = profile.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy(profile: Path, part: Path) -> DuckDBPyConnection:
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": f"{part}.tmp",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    try:
        shutil.copyfile(profile, part)
        connection = interruptible(duckdb.connect(part, config=config))
        # A stranger's view must reach no other file, here as in a read-only profile. Not in the
        # configuration: it would forbid the temporary folder.
        connection.execute("SET enable_external_access = false")
        return connection
    except (OSError, duckdb.Error) as error:
        cause = str(error).splitlines()[0]
        raise CbTraceError(
            f"cannot write beside {profile}: {cause}", hint="copy it to a folder you can write to"
        ) from error
