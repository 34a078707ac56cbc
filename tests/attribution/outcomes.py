"""Attribution of a hand-made trace in a form that a test can spell out."""

from __future__ import annotations

from typing import Any

import polars as pl

from cb_trace.attribution import Attributed, Evidence, TraceEvents, attribute, foreign_modules
from tests.frames import frame
from tests.kineto import Event, kernel, launch

Outcome = tuple[str | None, str, str]  # module path, phase, method or reason


def tree(*paths: str) -> pl.DataFrame:
    """A module table of these paths, ids counting from 0."""
    rows: list[dict[str, Any]] = [{"module_id": at, "path": p} for at, p in enumerate(paths)]
    return frame("module", *rows)


def work(name: str, at_us: float, correlation: int, **where: Any) -> list[Event]:
    """A launch and its kernel of 10 µs, named alike."""
    return [
        launch(at_us, 1, correlation, **where),
        kernel(name, 1000 + correlation * 20, 10, correlation),
    ]


def outcomes(events: TraceEvents, module: pl.DataFrame | None = None) -> dict[str, Outcome]:
    """Kernel name → outcome; with a module tree our own recording, without it a foreign trace."""
    known = foreign_modules(events, run_id="r") if module is None else module
    attributed = attribute(events, known, root_glue=module is not None)
    check(events, attributed)
    rows = attributed.kernel_module.join(events.kernel.select("kernel_id", "name"), on="kernel_id")
    rows = rows.join(known.select("module_id", "path"), on="module_id", how="left")
    how = pl.coalesce("reason", "method")
    return {n: (p, ph, h) for n, p, ph, h in rows.select("name", "path", "phase", how).iter_rows()}


def parts(
    events: TraceEvents, module: pl.DataFrame, evidence: Evidence
) -> dict[str, list[tuple[str | None, str, str, int]]]:
    """Kernel name → module path, phase, method or reason, and ns of each of its rows."""
    attributed = attribute(events, module, evidence=evidence)
    check(events, attributed)
    rows = attributed.kernel_module.join(events.kernel.select("kernel_id", "name"), on="kernel_id")
    rows = rows.join(module.select("module_id", "path"), on="module_id", how="left")
    rows = rows.select("name", "path", "phase", pl.coalesce("reason", "method"), "ns")
    found: dict[str, list[tuple[str | None, str, str, int]]] = {}
    for name, *row in rows.iter_rows():
        found.setdefault(name, []).append(tuple(row))
    return {name: sorted(rows, key=lambda row: row[0] or "") for name, rows in found.items()}


def check(events: TraceEvents, attributed: Attributed) -> None:
    """The invariants: every kernel whole, in share and in ns; no module, then a reason."""
    rows, kernel = attributed.kernel_module, events.kernel
    parts = rows.group_by("kernel_id").agg(pl.col("ns").sum(), pl.col("share").sum())
    whole = kernel.select("kernel_id", "dur_ns").join(parts, on="kernel_id", how="full")
    assert whole.filter(pl.col("ns").ne_missing(pl.col("dur_ns"))).is_empty()
    assert whole.filter(pl.col("share").ne_missing(1.0)).is_empty()
    assert rows.filter(pl.col("module_id").is_null() != pl.col("reason").is_not_null()).is_empty()
    assert rows.filter((pl.col("method") == "none") != pl.col("module_id").is_null()).is_empty()
    assert rows["confidence"].is_in(["exact", "matched", "split", "none"]).all()
    unsure = rows.filter((pl.col("confidence") == "none") != pl.col("module_id").is_null())
    assert unsure.is_empty()
    calls = attributed.module_call
    own = rows.filter(~pl.col("method").str.starts_with("graph_"))  # those have a capture's calls
    held = own.join(calls, on=["call_id", "module_id"], how="semi")
    assert held.height == own["call_id"].count()
