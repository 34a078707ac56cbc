"""Tables of what HolisticTraceAnalysis says (hta_schema.sql): part of :mod:`cb_trace.columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cb_trace.column_types import Schema

# ``rounded``: HTA rounded all times to whole microseconds, as it does unless told not to.
HTA_TEMPORAL: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "span_ns": "BIGINT", "compute_ns": "BIGINT",
    "non_compute_ns": "BIGINT", "idle_ns": "BIGINT",
}  # fmt: skip
HTA_IDLE: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "stream": "BIGINT", "category": "VARCHAR",
    "intervals": "BIGINT", "ns": "BIGINT",
}  # fmt: skip
HTA_KERNEL_TYPE: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "kernel_type": "VARCHAR", "ns": "BIGINT",
}  # fmt: skip
HTA_KERNEL: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "kernel_type": "VARCHAR", "name": "VARCHAR",
    "kernels": "BIGINT", "sum_ns": "BIGINT", "min_ns": "BIGINT", "max_ns": "BIGINT",
}  # fmt: skip
HTA_OVERLAP: Schema = {"trace_id": "INTEGER", "rounded": "BOOLEAN", "overlap_ratio": "DOUBLE"}
HTA_EVENT: Schema = {
    "trace_id": "INTEGER", "event_index": "BIGINT", "kernel_id": "BIGINT", "category": "VARCHAR",
    "name": "VARCHAR", "correlation": "BIGINT", "stream": "BIGINT", "start_ns": "BIGINT",
    "dur_ns": "BIGINT", "linked": "BOOLEAN",
}  # fmt: skip
HTA_CRITICAL_PATH: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "step": "INTEGER", "position": "BIGINT",
    "kind": "VARCHAR", "bound_by": "VARCHAR", "ns": "BIGINT", "event_index": "BIGINT",
    "category": "VARCHAR", "name": "VARCHAR", "stream": "BIGINT", "kernel_id": "BIGINT",
    "op_id": "BIGINT", "launch_id": "BIGINT", "module_id": "INTEGER",
}  # fmt: skip
HTA_CHECK: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "metric": "VARCHAR", "unit": "VARCHAR",
    "ours": "BIGINT", "hta": "BIGINT", "bound": "BIGINT", "agrees": "BOOLEAN", "reason": "VARCHAR",
}  # fmt: skip
HTA_FAILURE: Schema = {
    "trace_id": "INTEGER", "rounded": "BOOLEAN", "analysis": "VARCHAR", "reason": "VARCHAR",
}  # fmt: skip

HTA_TABLES: dict[str, Schema] = {
    "hta_temporal": HTA_TEMPORAL,
    "hta_idle": HTA_IDLE,
    "hta_kernel_type": HTA_KERNEL_TYPE,
    "hta_kernel": HTA_KERNEL,
    "hta_overlap": HTA_OVERLAP,
    "hta_event": HTA_EVENT,
    "hta_critical_path": HTA_CRITICAL_PATH,
    "hta_check": HTA_CHECK,
    "hta_failure": HTA_FAILURE,
}
