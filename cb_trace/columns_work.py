"""Tables of counted work, held memory and ceilings: part of :mod:`cb_trace.columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cb_trace.column_types import Schema

COST: Schema = {  # inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "call_index": "INTEGER",
    "calls": "INTEGER",
    "flops": "BIGINT",  # a call, as all that follows
    "flops_extended": "BIGINT",
    "dtype": "VARCHAR",  # of most of flops
    "dtype_ratio": "DOUBLE",
    "uncounted_ops": "BIGINT",
    "bytes_compulsory": "BIGINT",
    "bytes_requested": "BIGINT",
}
UNCOUNTED_OP: Schema = {  # inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "name": "VARCHAR",
    "calls": "BIGINT",  # per step
    "kernel_ns": "BIGINT",  # per step, as profiled; NULL without a context trace
}
MEMORY: Schema = {  # inclusive of children
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "scope": "VARCHAR",  # context, isolated
    "peak_bytes": "BIGINT",
    "saved_for_backward_bytes": "BIGINT",
    "output_bytes": "BIGINT",
}
CEILING: Schema = {
    "run_id": "VARCHAR",
    "source": "VARCHAR",  # measured, or the name of a datasheet
    "kind": "VARCHAR",  # matmul, memory, copy, triad, empty_event_pair, eager_op, graph_kernel
    "dtype": "VARCHAR",
    "shape": "VARCHAR",
    "value": "DOUBLE",
    "unit": "VARCHAR",
    "chosen": "BOOLEAN",
}
KERNEL_CLASS: Schema = {  # per step, inclusive of children, as profiled
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",
    "kernel_ns": "BIGINT",
    "communication_ns": "BIGINT",
    "short_ns": "BIGINT",  # of kernels under 5 µs, or of less than one wave
}

OVERHEAD: Schema = {  # of the host, by operator, in a profiled step
    "run_id": "VARCHAR",
    "kind": "VARCHAR",  # T1 … T5
    "name": "VARCHAR",  # operator, or launch call outside all; NULL for T1
    "launches": "BIGINT",  # by the operator; NULL for T1 and T4
    "boundaries": "BIGINT",  # module calls that begin or end in the gap; T1 only
    "count": "BIGINT",
    "measured": "BIGINT",  # of them in modules that the host bounds alone; if any, value is theirs
    "profiled": "DOUBLE",
    "value": "DOUBLE",  # bare
    "low": "DOUBLE",
    "high": "DOUBLE",
    "unit": "VARCHAR",
}

SPEEDUP: Schema = {  # from the bundle: the step with a module run on a part of its batch, in turn
    "run_id": "VARCHAR",
    "module_id": "INTEGER",
    "phase": "VARCHAR",  # forward
    "deployment": "VARCHAR",
    "factor": "INTEGER",  # the part is one factor-th
    "saved_ns": "BIGINT",  # median of the paired differences
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
    "samples": "INTEGER",
    "base_ns": "BIGINT",  # median of the step as it is, among the pairs
    "predicted_ns": "BIGINT",  # by the simulator: the module's time over the factor
    "predicted_low_ns": "BIGINT",
    "predicted_high_ns": "BIGINT",
    "skipped": "VARCHAR",
}

HOST_SPAN: Schema = {  # from the bundle: host time in the bare eager step; exclusive: self
    "run_id": "VARCHAR",
    "module_id": "INTEGER",  # NULL: the step outside every module's forward
    "calls": "BIGINT",
    "ns": "BIGINT",
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
    "samples": "INTEGER",
    "dropped": "INTEGER",
}
HOST_WINDOW: Schema = {  # from the bundle: the windows of the steps that host_span was read in
    "run_id": "VARCHAR",
    "host_ns": "BIGINT",  # from the step's start to its return, clocks included
    "closing_ns": "BIGINT",  # from there until the host has closed the window
    "window_ns": "BIGINT",  # nothing taken off
    "empty_ns": "BIGINT",  # what is taken off every window of a bare step
    "samples": "INTEGER",
}
# From the bundle: host time in company, modules called in the step's order; of modules only.
HOST_TOUR: Schema = HOST_SPAN
PARAMETER: Schema = {  # from the bundle: a row a module that holds it itself
    "run_id": "VARCHAR",
    "name": "VARCHAR",
    "module_id": "INTEGER",
    "bytes": "BIGINT",
}

WORK_TABLES: dict[str, Schema] = {
    "cost": COST,
    "uncounted_op": UNCOUNTED_OP,
    "memory": MEMORY,
    "ceiling": CEILING,
    "kernel_class": KERNEL_CLASS,
    "overhead": OVERHEAD,
    "speedup": SPEEDUP,
    "host_span": HOST_SPAN,
    "host_window": HOST_WINDOW,
    "host_tour": HOST_TOUR,
    "parameter": PARAMETER,
}
