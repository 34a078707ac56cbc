"""The vocabulary of the reading half: one typed schema a kind of row, tables included.

Names and types here; meaning and units are the comments of ``store/schema.sql`` (a test holds the
two together). Times are int64 nanoseconds; the time axis of a trace is its own, from ``origin_ns``.

``thread`` always names a row of table ``thread``. A *call* is one execution of a module's forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cb_trace.columns_hta import HTA_TABLES
from cb_trace.columns_work import WORK_TABLES

if TYPE_CHECKING:
    import polars as pl

    from cb_trace.column_types import Schema, SqlType

SCHEMA_VERSION = 1

# --- filled from a bundle's manifest ----------------------------------------------------------

RUN: Schema = {
    "run_id": "VARCHAR",
    "created_at": "TIMESTAMP",
    "workload": "VARCHAR",
    "mode": "VARCHAR",
    "phases": "VARCHAR",  # comma-separated, in order
    "settings": "VARCHAR",  # JSON object
    "dtype": "VARCHAR",
    "seed": "BIGINT",
    "device_type": "VARCHAR",  # cuda, cpu; NULL for a foreign trace that does not say
    "device_name": "VARCHAR",
    "torch_version": "VARCHAR",
    "cuda_version": "VARCHAR",
    "driver_version": "VARCHAR",
    "sm_clock_mhz": "INTEGER",
    "l2_bytes": "BIGINT",
    "tool_version": "VARCHAR",
    "schema_version": "INTEGER",
    "step_bare_ns": "BIGINT",  # of the deployment as recorded (eager first)
    "step_bare_low_ns": "BIGINT",
    "step_bare_high_ns": "BIGINT",
    "step_profiled_ns": "BIGINT",
    "dilation": "DOUBLE",
}
MODULE: Schema = {
    "module_id": "INTEGER",
    "run_id": "VARCHAR",
    "path": "VARCHAR",
    "class": "VARCHAR",
    "parent_id": "INTEGER",
    "depth": "INTEGER",
    "ordinal": "INTEGER",
    "parameters": "BIGINT",
    "parameter_bytes": "BIGINT",
    "buffer_bytes": "BIGINT",
    "signature": "VARCHAR",
    "aliases": "VARCHAR",  # JSON array of further paths
}
STEP_SAMPLE: Schema = {
    "run_id": "VARCHAR",
    "kind": "VARCHAR",  # bare, bare_one_stream, bare_after, profiled, sequence
    "deployment": "VARCHAR",
    "sample": "INTEGER",
    "ns": "BIGINT",
    "turn": "INTEGER",  # the block it was taken in
    "sm_clock_mhz": "INTEGER",  # right after that block; NULL: unknown
    "temperature_c": "INTEGER",
}
REPLAY: Schema = {
    "replay_id": "INTEGER",
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "condition": "VARCHAR",
    "call_index": "INTEGER",
    "calls": "INTEGER",
    "measured_id": "INTEGER",
    "median_ns": "BIGINT",  # bare wall, per call
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
    "samples": "INTEGER",
    "kernel_ns": "BIGINT",  # K per call, mean over profiled calls, bare-scaled on CPU
    "busy_ns": "BIGINT",  # U per call, likewise
    "skipped": "VARCHAR",
    "dropped": "INTEGER",  # samples left out, as the device was throttled
    "unlike": "VARCHAR",  # how it differs in the step from those it would share with
}
REPLAY_SAMPLE: Schema = {
    "replay_id": "INTEGER",
    "sample": "INTEGER",
    "ns": "BIGINT",
    "turn": "INTEGER",
    "sm_clock_mhz": "INTEGER",
    "temperature_c": "INTEGER",
}
NOTE: Schema = {
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "reason": "VARCHAR",
    "detail": "VARCHAR",
    "count": "BIGINT",
}

# --- filled by trace/: one Kineto file --------------------------------------------------------

TRACE: Schema = {
    "trace_id": "INTEGER",
    "run_id": "VARCHAR",
    "role": "VARCHAR",
    "path": "VARCHAR",  # relative to the profile, see bundle.stored_path
    "sha256": "VARCHAR",
    "rank": "INTEGER",
    "world_size": "INTEGER",
    "origin_ns": "BIGINT",  # baseTimeNanoseconds of the header, 0 where absent
    "first_ns": "BIGINT",  # first event of a duration
    "span_ns": "BIGINT",  # first start to last end
    "resolution_ns": "INTEGER",  # 1 or 1000
    "slices": "BIGINT",  # complete (ph X) events in the file, dropped ones not counted
    "repaired": "BIGINT",
    "dropped": "BIGINT",
    "kernels_without_launch": "BIGINT",
}
THREAD: Schema = {
    "thread": "INTEGER",
    "trace_id": "INTEGER",
    "pid": "VARCHAR",
    "tid": "VARCHAR",
    "name": "VARCHAR",
    "process": "VARCHAR",
}
STEP: Schema = {
    "trace_id": "INTEGER",
    "step": "INTEGER",  # 0, 1, … in time order
    "name": "VARCHAR",
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",  # of the range
    "window_ns": "BIGINT",  # to the later of the range's end and its last kernel's end
}
ANNOTATION: Schema = {
    "annotation_id": "BIGINT",
    "trace_id": "INTEGER",
    "layer": "VARCHAR",  # user, gpu
    "name": "VARCHAR",
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
}
PYTHON_MODULE: Schema = {  # `nn.Module: Class_N` slices
    "python_id": "BIGINT",
    "trace_id": "INTEGER",
    "parent_python_id": "BIGINT",  # nearest enclosing nn.Module slice by Python parent id
    "name": "VARCHAR",  # Class_N
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
}
OP: Schema = {
    "op_id": "BIGINT",
    "trace_id": "INTEGER",
    "name": "VARCHAR",
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
    "external_id": "BIGINT",
    "sequence_number": "BIGINT",
    "forward_thread": "BIGINT",  # the profiler's own thread number; > 0 on backward operators
}
LAUNCH: Schema = {
    "launch_id": "BIGINT",
    "trace_id": "INTEGER",
    "category": "VARCHAR",
    "name": "VARCHAR",
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
    "correlation": "BIGINT",
    "op_id": "BIGINT",  # innermost operator around it
    "kernel_name": "VARCHAR",  # where the call itself says it, as HIP's do
    "grid": "VARCHAR",
    "block": "VARCHAR",
}
KERNEL: Schema = {
    "kernel_id": "BIGINT",
    "trace_id": "INTEGER",
    "kind": "VARCHAR",  # kernel, memcpy, memset, cpu
    "category": "VARCHAR",  # as in the file
    "name": "VARCHAR",
    "device": "INTEGER",
    "stream": "BIGINT",
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
    "correlation": "BIGINT",
    "launch_id": "BIGINT",
    "op_id": "BIGINT",
    "step": "INTEGER",  # by its launch, else by its own start; NULL outside every step
    "graph_id": "BIGINT",
    "graph_node_id": "BIGINT",
    "grid": "VARCHAR",  # x,y,z
    "block": "VARCHAR",
    "registers": "INTEGER",
    "shared_memory": "BIGINT",
    "bytes": "BIGINT",
    "external_id": "BIGINT",
    "flaw": "VARCHAR",  # lost timing, negative duration, before launch, … NULL where sound
}
DROP: Schema = {
    "trace_id": "INTEGER",
    "reason": "VARCHAR",
    "events": "BIGINT",
    "ns": "BIGINT",
}

# --- filled from attribution/ -----------------------------------------------------------------

MODULE_CALL: Schema = {
    "call_id": "BIGINT",
    "trace_id": "INTEGER",
    "module_id": "INTEGER",
    "parent_call_id": "BIGINT",
    "step": "INTEGER",
    "call_index": "INTEGER",  # within module, step and phase, from 0
    "phase": "VARCHAR",
    "thread": "INTEGER",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
}
KERNEL_MODULE: Schema = {  # exclusive: the innermost module
    "kernel_id": "BIGINT",
    "module_id": "INTEGER",  # NULL: unattributed
    "call_id": "BIGINT",
    "phase": "VARCHAR",
    "share": "DOUBLE",
    "ns": "BIGINT",  # share × duration; sums to the duration exactly over a kernel's rows
    "method": "VARCHAR",  # range, python, autograd, parameter, step, none, …
    "reason": "VARCHAR",  # why unattributed; NULL where attributed
    "bytes": "BIGINT",  # what the module's part moves, where that is known
    "confidence": "VARCHAR",  # exact, matched, split, none
}
REPLAY_KERNEL: Schema = {
    "replay_id": "INTEGER",  # of the measurement (measured_id)
    "iteration": "INTEGER",
    "position": "INTEGER",  # by start within the iteration, from 0
    "kernel_id": "BIGINT",
}

# --- filled from analysis/ --------------------------------------------------------------------

MODULE_CONTEXT: Schema = {  # per step, inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "calls": "DOUBLE",
    "kernels": "DOUBLE",
    "kernel_ns": "BIGINT",  # K
    "busy_ns": "BIGINT",  # U
    "exposed_ns": "BIGINT",  # X
    "ts_ns": "BIGINT",  # of the first call, on the trace's axis
    "dur_ns": "BIGINT",
    "trace_id": "INTEGER",
    "thread": "INTEGER",
}
GRAPH_CONTEXT: Schema = {  # the same of the profiled runs of the step's graph
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "kernels": "DOUBLE",
    "kernel_ns": "BIGINT",
    "busy_ns": "BIGINT",
    "exposed_ns": "BIGINT",
}
PARTITION: Schema = {  # exclusive: self
    "run_id": "VARCHAR",
    "module_id": "INTEGER",  # NULL for unattributed and profiled_excess
    "phase": "VARCHAR",
    "deployment": "VARCHAR",
    "kind": "VARCHAR",  # busy, idle_(host|gap|sync|copy), unattributed, profiled_excess
    "ns": "BIGINT",
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
}
TERM: Schema = {  # inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "deployment": "VARCHAR",
    "kind": "VARCHAR",  # launch, cache, kernel_choice, fusion, overlap, contention, idle, residual
    "ns": "BIGINT",  # NULL: not measured
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
}
COST_BOUNDS: Schema = {  # inclusive of children
    "run_id": "VARCHAR", "module_id": "INTEGER", "phase": "VARCHAR", "deployment": "VARCHAR",
    "low_ns": "BIGINT", "high_ns": "BIGINT", "idle_low_ns": "BIGINT", "idle_high_ns": "BIGINT",
}  # fmt: skip
VERDICT: Schema = {  # inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "deployment": "VARCHAR",
    "text": "VARCHAR",  # one sentence: which number to believe, and why
}

KNOCKOUT: Schema = {  # from the bundle: the step with and without a module, in turn
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "deployment": "VARCHAR",
    "marginal_ns": "BIGINT",  # median of the paired differences
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
    "samples": "INTEGER",
    "base_ns": "BIGINT",  # median of the step as it is, among the pairs
    "skipped": "VARCHAR",
}
MARGINAL: Schema = {  # inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",  # NULL: of the whole step
    "phase": "VARCHAR",
    "deployment": "VARCHAR",
    "kind": "VARCHAR",  # marginal; of the step: predicted, kernel_sum, isolation_sum
    "ns": "BIGINT",
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
}

TABLES: dict[str, Schema] = {
    "run": RUN,
    "module": MODULE,
    "step_sample": STEP_SAMPLE,
    "replay": REPLAY,
    "replay_sample": REPLAY_SAMPLE,
    "note": NOTE,
    "trace": TRACE,
    "thread": THREAD,
    "step": STEP,
    "annotation": ANNOTATION,
    "python_module": PYTHON_MODULE,
    "op": OP,
    "launch": LAUNCH,
    "kernel": KERNEL,
    "drop": DROP,
    "module_call": MODULE_CALL,
    "kernel_module": KERNEL_MODULE,
    "replay_kernel": REPLAY_KERNEL,
    "module_context": MODULE_CONTEXT,
    "graph_context": GRAPH_CONTEXT,
    "partition": PARTITION,
    "cost_bounds": COST_BOUNDS,
    "term": TERM,
    "verdict": VERDICT,
    "knockout": KNOCKOUT,
    "marginal": MARGINAL,
    **WORK_TABLES,
    **HTA_TABLES,
}


def polars_schema(table: str) -> dict[str, pl.DataType]:
    """The schema of a table as polars types, columns in order."""
    import polars as pl

    types: dict[SqlType, pl.DataType] = {
        "BIGINT": pl.Int64(),
        "INTEGER": pl.Int32(),
        "DOUBLE": pl.Float64(),
        "VARCHAR": pl.String(),
        "BOOLEAN": pl.Boolean(),
        "TIMESTAMP": pl.Datetime("us"),
    }
    return {name: types[kind] for name, kind in TABLES[table].items()}
