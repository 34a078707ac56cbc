"""Start HTA's process on one trace and bring back what it found."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.parts import scratch_folder

if TYPE_CHECKING:
    import polars as pl

ANALYSES = ("temporal", "idle", "kernels", "overlap", "critical_path")

_WORKER = Path(__file__).with_name("worker.py")
_GZIP = b"\x1f\x8b"
# Settings of the user's shell that would change HTA's figures.
_HTA_SETTINGS = ("HTA_", "CRITICAL_PATH_")


@dataclass(frozen=True, slots=True)
class Reading:
    """What HTA made of one trace.

    :ivar rounded: HTA rounded all times to whole microseconds, as it does unless told not to.
    :ivar failures: ``(analysis, reason)``; ``load`` means that there is nothing else.
    :ivar tables: the frames that the worker wrote, by name.
    """

    rounded: bool
    failures: tuple[tuple[str, str], ...]
    tables: dict[str, pl.DataFrame]
    overlap_ratio: float | None = None
    critical_path_step: str | None = None

    @property
    def failed(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.failures)

    @property
    def loaded(self) -> bool:
        return "load" not in self.failed


def not_read(reason: str, *, rounded: bool = True) -> Reading:
    """A reading that came to nothing."""
    return Reading(rounded, (("load", reason),), {})


def read(trace: Path, *, rounded: bool, analyses: tuple[str, ...], timeout_s: int) -> Reading:
    """Run HTA in a process of its own, in a folder that is gone afterwards.

    Never raises for what HTA or the trace does: that is a failure in the reading.
    """
    suffix = suffix_of(trace)
    if suffix is None:
        return not_read("HTA reads JSON, plain or gzip, and nothing else", rounded=rounded)
    with scratch_folder() as folder:
        given = folder / f"trace{suffix}"
        given.symlink_to(trace.resolve())
        request = {"trace": str(given), "rounded": rounded, "analyses": analyses}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        problem = _run(folder, timeout_s)
        return not_read(problem, rounded=rounded) if problem else _collect(folder, rounded=rounded)


def suffix_of(trace: Path) -> str | None:
    """The ending that HTA wants to see, by the content; None for what it cannot read."""
    with trace.open("rb") as stream:
        head = stream.read(64)
    if head.startswith(_GZIP):
        return ".json.gz"
    return ".json" if head.strip()[:1] in (b"{", b"[") else None


def _run(folder: Path, timeout_s: int) -> str | None:
    """Run the worker; the reason when it did not end well."""
    # -P: neither the current folder nor the worker's own is searched for modules.
    command = [sys.executable, "-P", "-W", "ignore", str(_WORKER), str(folder / "request.json")]
    try:
        done = subprocess.run(
            command, cwd=folder, env=_environment(folder), timeout=timeout_s, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"HTA ran for more than {timeout_s} s and was stopped"
    if done.returncode < 0:
        return f"HTA's process died of signal {-done.returncode} (9: often out of memory)"
    if done.returncode or not (folder / "summary.json").is_file():
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return f"HTA's process failed: {lines[-1][:200] if lines else done.returncode}"
    return None


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_HTA_SETTINGS)}
    # HTA would also read ~/.hta; packages installed for the user must stay in reach.
    moved = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONUSERBASE": site.getuserbase()}
    return kept | moved | {"PYTHONHASHSEED": "0"}


def _collect(folder: Path, *, rounded: bool) -> Reading:
    import polars as pl

    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Reading(
        rounded=rounded,
        failures=tuple((name, reason) for name, reason in summary["failures"]),
        tables={f.stem: pl.read_parquet(f, memory_map=False) for f in folder.glob("*.parquet")},
        overlap_ratio=summary.get("overlap_ratio"),
        critical_path_step=summary.get("critical_path_step"),
    )
