"""Two profiles of hand, base and new, with round differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.reporters.profiles import RUN, STEP_NS, run_row, write_profile

# Of both: h.0.mlp +80 µs, h.0.attn +1 µs (within its 1 %), h.0.extra is new (50), old is gone (20).
BASE_US, NEW_US = 1_020, 1_131


def write_pair(
    folder: Path, write: Callable[..., Path] = write_profile, **new_run: Any
) -> tuple[Path, Path]:
    """Write ``base.duckdb`` and ``new.duckdb``; ``new_run`` changes the run of the new one."""
    base = write(
        folder / "base.duckdb",
        run=[_run(BASE_US, settings='{"batch": 4}')],
        module=[_module(11, "old", parent=0)],
        partition=[_part(11, "busy", 20)],
    )
    new = write(
        folder / "new.duckdb",
        run=[_run(NEW_US, **{"settings": '{"batch": 4}', **new_run})],
        module=[_module(12, "h.0.extra", parent=2)],
        partition=[_part(12, "busy", 50), _part(4, "idle_gap", 80), _part(3, "idle_gap", 1)],
    )
    return base, new


def _run(step_us: int, **changes: Any) -> dict[str, Any]:
    ns = step_us * 1000
    bare = {
        "step_bare_ns": ns, "step_bare_low_ns": ns - 10_000, "step_bare_high_ns": ns + 10_000
    }  # fmt: skip
    return run_row(**{**bare, **changes})


def _module(number: int, path: str, *, parent: int) -> dict[str, Any]:
    return {
        "module_id": number, "run_id": RUN, "path": path, "class": "Adapter", "parent_id": parent,
        "depth": path.count(".") + 1, "ordinal": number,
    }  # fmt: skip


def _part(module: int, kind: str, us: int) -> dict[str, Any]:
    given = {"run_id": RUN, "phase": "forward", "deployment": "eager"}
    return {**given, "module_id": module, "kind": kind, "ns": us * 1000}


assert STEP_NS == 1_000_000  # what the figures above start from
