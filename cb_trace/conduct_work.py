"""The conductor's part for counted work: manifest records and the context's kernels → tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from cb_trace import store
from cb_trace.accounts import CostRecord
from cb_trace.analysis.boundedness import kernel_class, uncounted_time
from cb_trace.bundle import Manifest
from cb_trace.bundle_frames import table_frame
from cb_trace.datasheet import datasheet
from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = dict[str, Any]


def append_work(connection: DuckDBPyConnection, manifest: Manifest) -> None:
    """Fill parameter, cost, uncounted_op, memory, ceiling and kernel_class of one of our own
    recordings.

    To be called when its context trace, if there is one, is attributed.

    :raises CbTraceError: the manifest names an unknown module, or a number fits no column.
    """
    run_id = manifest.run.run_id
    ids = {module.path: place for place, module in enumerate(manifest.modules)}
    try:
        for table, rows in (
            ("parameter", _parameters(manifest, ids)),
            ("cost", _costs(manifest, ids)),
            ("memory", _memories(manifest, ids)),
            ("ceiling", _ceilings(manifest)),
        ):
            store.append(connection, table, table_frame(table, rows))
        uncounted = table_frame("uncounted_op", _uncounted(manifest, ids))
    except (KeyError, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        cause = str(error).splitlines()[0]
        raise CbTraceError(
            f"the manifest contradicts itself: {cause}", hint="record the bundle again"
        ) from error
    _append_kernels(connection, run_id, uncounted, manifest.run.device_name)


def _append_kernels(
    connection: DuckDBPyConnection, run_id: str, uncounted: pl.DataFrame, device_name: str
) -> None:
    """What only the context trace can say; the first rank's, as in the other figures."""
    context = connection.execute(
        "SELECT min(trace_id) FROM trace WHERE run_id = ? AND role = 'context'", [run_id]
    ).fetchall()[0][0]
    if context is None:
        store.append(connection, "uncounted_op", uncounted)
        return

    def rows(table: str) -> pl.DataFrame:
        return pl.DataFrame(connection.table(table).filter(f"trace_id = {int(context)}"))

    kernel, module = rows("kernel"), pl.DataFrame(connection.table("module"))
    placed = pl.DataFrame(connection.table("kernel_module")).join(
        kernel.select("kernel_id"), on="kernel_id", how="semi"
    )
    steps, known = rows("step").height, datasheet(device_name)
    classes = kernel_class(
        kernel,
        placed,
        module,
        steps=steps,
        processors=known.processors if known else None,
        run_id=run_id,
    )
    store.append(connection, "kernel_class", classes)
    spent = uncounted_time(
        uncounted,
        kernel=kernel,
        launch=rows("launch"),
        op=rows("op"),
        kernel_module=placed,
        module=module,
        steps=steps,
    )
    store.append(connection, "uncounted_op", spent)


def _parameters(manifest: Manifest, ids: dict[str, int]) -> Iterator[Row]:
    for record in manifest.parameters:
        for path in (record.path, *record.shared_with):
            yield {
                "run_id": manifest.run.run_id,
                "name": record.name,
                "module_id": ids[path],
                "bytes": record.bytes,
            }


def _costs(manifest: Manifest, ids: dict[str, int]) -> Iterator[Row]:
    for record in manifest.costs:
        dtype, most = _dominant(record)
        yield {
            "run_id": manifest.run.run_id, "module_id": ids[record.path], "phase": record.phase,
            "call_index": record.call_index, "calls": record.calls, "flops": record.flops,
            "flops_extended": record.flops_extended, "dtype": dtype,
            "dtype_ratio": most / record.flops if record.flops else None,
            "uncounted_ops": sum(record.uncounted.values()),
            "bytes_compulsory": record.bytes_compulsory,
            "bytes_requested": record.bytes_requested,
        }  # fmt: skip


def _dominant(record: CostRecord) -> tuple[str | None, int]:
    """The precision of most FLOPs, and how many those are."""
    split = record.flops_by_dtype
    dtype = max(split, key=lambda name: (split[name], name), default=None)
    return dtype, split[dtype] if dtype is not None else 0


def _uncounted(manifest: Manifest, ids: dict[str, int]) -> Iterator[Row]:
    calls: dict[tuple[str, str, str], int] = {}
    for record in manifest.costs:
        for name, count in record.uncounted.items():
            key = (record.path, record.phase, name)
            calls[key] = calls.get(key, 0) + count * record.calls
    for (path, phase, name), count in calls.items():
        yield {"run_id": manifest.run.run_id, "module_id": ids[path], "phase": phase,
               "name": name, "calls": count}  # fmt: skip


def _memories(manifest: Manifest, ids: dict[str, int]) -> Iterator[Row]:
    for record in manifest.memories:
        yield {
            "run_id": manifest.run.run_id, "module_id": ids[record.path], "phase": record.phase,
            "scope": record.scope, "peak_bytes": record.peak_bytes,
            "saved_for_backward_bytes": record.saved_for_backward_bytes,
            "output_bytes": record.output_bytes,
        }  # fmt: skip


def _ceilings(manifest: Manifest) -> Iterator[Row]:
    run_id = manifest.run.run_id
    for record in manifest.ceilings:
        yield {"run_id": run_id, "source": "measured", "kind": record.kind, "dtype": record.dtype,
               "shape": record.shape, "value": float(record.value), "unit": record.unit,
               "chosen": record.chosen}  # fmt: skip
    known = datasheet(manifest.run.device_name)
    if known is None:
        return
    peaks = [("matmul", dtype, peak, "flop/s") for dtype, peak in known.flops_per_s.items()]
    for kind, dtype, value, unit in (*peaks, ("memory", None, known.bytes_per_s, "byte/s")):
        yield {"run_id": run_id, "source": known.source, "kind": kind, "dtype": dtype,
               "value": value, "unit": unit, "chosen": True}  # fmt: skip
