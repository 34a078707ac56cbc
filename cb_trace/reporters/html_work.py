"""Roofline and memory for the report page, where the profile has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cb_trace.reporters.html_columns import Words, columns, figure, micro, ratio, texts
from cb_trace.reporters.sql_files import fetch

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Connection

_RATES = ("flops_per_s", "flops_extended_per_s", "bytes_per_s")
_COUNTS = ("flops", "flops_extended", "bytes_compulsory", "bytes_requested", "intensity")
_RATIOS = ("mfu_ratio", "mfu_cost_ratio", "matmul_ratio", "bandwidth_ratio", "copy_ratio")
_BYTES = (
    "parameter_bytes",
    "buffer_bytes",
    "peak_context_bytes",
    "peak_isolated_bytes",
    "saved_context_bytes",
    "saved_isolated_bytes",
    "output_bytes",
)


def roofline_columns(
    connection: Connection, run_id: str, index: Mapping[str, int], words: Words
) -> dict[str, Any] | None:
    """Work and bounds by module, phase and deployment; None where nothing was counted."""
    rows = _rows(connection, "roofline", run_id)
    if not rows:
        return None
    code = words.code
    given = dict.fromkeys(("deployment", "phase", "bound", "bound_why", "flag", "dtype"), code)
    numbers = dict.fromkeys((*_RATES, *_COUNTS), figure) | dict.fromkeys(_RATIOS, ratio)
    return {
        "module": [index.get(row["path"]) for row in rows],
        **columns(rows, given | numbers | {"busy_us": micro}),
        "ceilings": [texts(row) for row in fetch(connection, "report_ceilings", run_id=run_id)],
    }


def memory_columns(
    connection: Connection, run_id: str, index: Mapping[str, int], words: Words
) -> dict[str, Any] | None:
    """Bytes by module and phase; None where nothing was measured."""
    rows = [row for row in _rows(connection, "memory_by_module", run_id) if row["path"] in index]
    peaks = ("peak_context_bytes", "peak_isolated_bytes", "output_bytes")
    if not any(row.get(name) is not None for row in rows for name in peaks):
        return None
    return {
        "module": [index[row["path"]] for row in rows],
        **columns(rows, {"phase": words.code, **dict.fromkeys(_BYTES, figure)}),
    }


def _rows(connection: Connection, view: str, run_id: str) -> list[dict[str, Any]]:
    """The rows of a view that a profile may lack."""
    present = {row["view_name"] for row in fetch(connection, "report_views")}
    name = {"roofline": "report_roofline", "memory_by_module": "report_memory"}[view]
    return fetch(connection, name, run_id=run_id) if view in present else []
