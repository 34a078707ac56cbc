"""An empty profile, tables and views: made once a machine, then copied.

Its 600 statements (each column has a comment) take 0.4 s, as long as many a trace takes to load.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace import engine
from cb_trace.parts import whole

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Config = dict[str, str | bool | int | float | list[str]]

# Clients from 1.2 on read it, the DuckDB command line among them (views.md section 6).
STORAGE_VERSION = "v1.2.0"
# Measured: an empty profile takes 78 KB with 64 KB blocks, 274 KB with the default 256 KB. Blocks
# of 16 KB save a little more but hold no dictionary: 1 M kernels take 51 MB instead of 7 MB.
BLOCK_SIZE = 65536
SCRIPTS = (
    "schema.sql", "figures_schema.sql", "causal_schema.sql", "work_schema.sql", "hta_schema.sql",
    "view_steps.sql", "views.sql", "view_kernel_diff.sql", "view_roofline.sql",
    "view_overheads.sql", "view_compile.sql",
)  # fmt: skip


def empty_profile(part: Path) -> DuckDBPyConnection:
    """Write an empty profile to ``part``, which does not exist, and open it.

    It is copied from the user's cache folder where it lies there, else made, and kept there if
    that folder can be written. Its name there is that of all it is made from.

    :raises duckdb.Error: the file cannot be written.
    :raises OSError: likewise.
    """
    kept = _kept()
    if kept is not None:
        with suppress(engine.module().Error, OSError):  # none there, or damaged
            shutil.copyfile(kept, part)
            return _open(part)
        part.unlink(missing_ok=True)
    _make(part)
    if kept is not None:
        _keep(part, kept)
    return _open(part)


def _open(part: Path) -> DuckDBPyConnection:
    """Open a file that is thrown away if its writer is killed: without a log, without syncing.

    With both, loading 132 k events takes 0.25 s longer. Whoever keeps the file syncs it once.
    """
    connection = engine.connect(f"{part}.tmp")
    try:
        name = str(part).replace("'", "''")
        connection.execute(f"ATTACH '{name}' AS profile (RECOVERY_MODE no_wal_writes); USE profile")
    except BaseException:
        connection.close()
        raise
    return connection


def script(name: str) -> str:
    """The text of a script of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def run_script(connection: DuckDBPyConnection, name: str) -> None:
    """Run a script of this package in one transaction."""
    connection.execute(f"BEGIN;\n{script(name)}\nCOMMIT;")


def _make(part: Path) -> None:
    config: Config = {
        "storage_compatibility_version": STORAGE_VERSION,
        "default_block_size": str(BLOCK_SIZE),
        "autoinstall_known_extensions": False,
    }
    with engine.module().connect(part, config=config) as connection:
        for name in SCRIPTS:
            run_script(connection, name)
        connection.execute("CHECKPOINT")


def _kept() -> Path | None:
    """Where this version's empty profile is kept; None where the user has no home."""
    made_of = (engine.module().__version__, STORAGE_VERSION, str(BLOCK_SIZE), *map(script, SCRIPTS))
    key = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(caches) / "cb-trace" / f"empty-{key}.duckdb"


def _keep(part: Path, kept: Path) -> None:
    """Keep a copy, whole or not at all, in place of those of other versions."""
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        for older in kept.parent.glob("empty-*.duckdb"):
            older.unlink(missing_ok=True)
        with whole(kept) as draft:
            shutil.copyfile(part, draft)
