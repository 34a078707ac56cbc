"""Every kernel exactly once: the innermost evidence around what set it off, else a named reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward, backward, recomputed
from cb_trace.attribution.calls import Calls, module_call
from cb_trace.attribution.events import Attributed, TraceEvents, origins
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, column, lookup, nest
from cb_trace.attribution.optimizer import optimizer_intervals
from cb_trace.attribution.ranges import range_calls
from cb_trace.attribution.slices import slice_calls
from cb_trace.columns import polars_schema

LOST_TIMING = "lost timing"
NO_LAUNCH = "no launch in file"
OUTSIDE_STEPS = "outside every step"
GRAPH = "graph replay, module unknown"
COMMUNICATION = "communication"
OPTIMIZER = "optimizer"
BACKWARD = "backward, module unknown"
OUTSIDE = "outside any module"

COLLECTIVES = r"(?i)\b(nccl|rccl|mscclpp)"


def attribute(
    events: TraceEvents, module: pl.DataFrame, *, first_call_id: int = 0, root_glue: bool = True
) -> Attributed:
    """Give every kernel of a trace to one module call, or say why not.

    A kernel goes by the innermost thing around its launch (around its own start for CPU work): a
    module call, a backward operator, or the optimizer. A module call inside a backward operator is
    recomputation; a backward operator inside a module call is backward work all the same.

    :param module: the module tree, as recorded or by :func:`foreign.foreign_modules`.
    :param first_call_id: ids of calls count up from here.
    :param root_glue: our own recording: work inside a step and outside every module belongs to the
        root (method ``step``), and work outside every step to nobody. Without it, for foreign
        traces, work outside every module stays unattributed and steps do not matter.
    :returns: rows of ``module_call`` and ``kernel_module``; Σ ``ns`` over the rows of a kernel is
        its duration. A kernel's ``call_id`` in the backward phase is the forward call's.
    """
    calls = _calls(events, module)
    autograd = backward(events.op, events.step)
    again = recomputed(calls.frame, autograd)
    found = _evidence(events, calls, autograd, again)
    known = _outcome(found, calls.method, _glue(module, events.step, root_glue))
    return Attributed(
        module_call(calls, events.step, again, first_call_id),
        _kernel_module(known, first_call_id),
    )


@dataclass(frozen=True, slots=True)
class _Glue:
    """What becomes of work outside every module; ``root`` is None where nobody takes it."""

    root: int | None
    steps_only: bool  # work outside every step is nobody's


def _glue(module: pl.DataFrame, step: pl.DataFrame, root_glue: bool) -> _Glue:
    if not root_glue:
        return _Glue(None, steps_only=False)
    root = module.filter(pl.col("path") == "")["module_id"]
    return _Glue(root[0] if len(root) else None, steps_only=not step.is_empty())


def _calls(events: TraceEvents, module: pl.DataFrame) -> Calls:
    ranges = range_calls(events.annotation, module)
    return ranges if ranges.frame.height else slice_calls(events.python_module, module)


def _evidence(events: TraceEvents, calls: Calls, autograd: Backward, again: Flags) -> pl.DataFrame:
    """What is around each kernel's origin, a row a kernel.

    ``by``: the innermost layer (``_CALL``, …); ``call``: position of the module call; ``joined``: a
    backward operator whose forward operator was found, in a module or not; ``once_more``: work of
    a forward repeated inside the backward.
    """
    origin = origins(events)
    at = (origin.thread, origin.at_ns)
    call, (node, repeated) = calls.around(*at), autograd.around(*at)
    optimizers = optimizer_intervals(events.annotation, events.op)
    layers = [
        (calls.frame, call),
        (autograd.op, node),
        (optimizers, nest(optimizers).locate(*at)),
    ]
    by = _innermost(layers)
    joined = lookup(autograd.linked, node, False) & ~repeated & (by == _BACKWARD)
    thread, forward_ns = lookup(autograd.forward_thread, node), lookup(autograd.forward_ns, node)
    made_in = np.where(joined, calls.around(thread, forward_ns), NOTHING)
    at_call = np.where(by == _CALL, call, made_in)
    once_more = np.where(by == _CALL, lookup(again, call, False), repeated)
    marks: dict[str, Ints | Flags] = {
        "by": by, "call": at_call, "joined": joined, "once_more": once_more,
        "module_id": lookup(column(calls.frame, "module_id"), at_call),
        "known": origin.known, "by_graph": origin.by_graph,
    }  # fmt: skip
    return _frame(events.kernel, marks)


_CALL, _BACKWARD, _OPTIMIZER = range(3)


def _innermost(layers: list[tuple[pl.DataFrame, Ints]]) -> Ints:
    """The number of the layer whose interval is innermost: it starts last, or is the shorter."""
    count = len(layers[0][1])
    best = np.full(count, NOTHING, np.int64)
    best_start = np.full(count, np.iinfo(np.int64).min)
    best_dur = np.zeros(count, np.int64)
    for number, (frame, at) in enumerate(layers):
        start = lookup(column(frame, "start_ns"), at, np.iinfo(np.int64).min)
        dur = lookup(column(frame, "dur_ns"), at, 0)
        better = (start > best_start) | ((start == best_start) & (dur < best_dur))
        best = np.where(better, number, best)
        best_start, best_dur = np.where(better, start, best_start), np.where(better, dur, best_dur)
    return best


def _frame(kernel: pl.DataFrame, marks: dict[str, Ints | Flags]) -> pl.DataFrame:
    by, once_more = pl.col("by"), pl.col("once_more")
    phase = (
        pl.when(by == _OPTIMIZER).then(pl.lit("optimizer"))
        .when(once_more).then(pl.lit("recompute"))
        .when(by == _BACKWARD).then(pl.lit("backward"))
        .otherwise(pl.lit("forward"))
    )  # fmt: skip
    own = kernel.select(
        "kernel_id", "dur_ns", "step",
        lost=(pl.col("flaw") == LOST_TIMING).fill_null(False),
        collective=pl.col("name").str.contains(COLLECTIVES),
    )  # fmt: skip
    found = own.with_columns(pl.Series(name, values) for name, values in marks.items())
    return found.with_columns(phase=phase, module_id=pl.col("module_id").replace(NOTHING, None))


def _outcome(found: pl.DataFrame, method: str, glue: _Glue) -> pl.DataFrame:
    """Add ``reason`` and ``method``; the order of the cases is the order of strength."""
    in_module = pl.col("module_id").is_not_null()
    reason = (
        pl.when("lost").then(pl.lit(LOST_TIMING))
        .when(~pl.col("known")).then(pl.lit(NO_LAUNCH))
        .when(pl.col("step").is_null() & glue.steps_only).then(pl.lit(OUTSIDE_STEPS))
        .when("by_graph").then(pl.lit(GRAPH))
        .when(in_module).then(None)
        .when("collective").then(pl.lit(COMMUNICATION))
        .when(pl.col("by") == _OPTIMIZER).then(pl.lit(OPTIMIZER))
        .when((pl.col("by") == _BACKWARD) & ~pl.col("joined")).then(pl.lit(BACKWARD))
        .when(pl.lit(glue.root is not None)).then(None)
        .otherwise(pl.lit(OUTSIDE))
    )  # fmt: skip
    how = (
        pl.when(pl.col("reason").is_not_null()).then(pl.lit("none"))
        .when(~in_module).then(pl.lit("step"))
        .when(pl.col("by") == _CALL).then(pl.lit(method))
        .otherwise(pl.lit("autograd"))
    )  # fmt: skip
    owner = pl.when(pl.col("reason").is_null()).then(
        pl.col("module_id").fill_null(pl.lit(glue.root))
    )
    return found.with_columns(reason=reason).with_columns(method=how).with_columns(module_id=owner)


def _kernel_module(known: pl.DataFrame, first_call_id: int) -> pl.DataFrame:
    """Rows of table ``kernel_module``: here one a kernel, all of it."""
    called = pl.col("reason").is_null() & (pl.col("call") != NOTHING)
    rows = known.with_columns(
        call_id=pl.when(called).then(pl.col("call") + first_call_id),
        share=pl.lit(1.0),
        ns=pl.col("dur_ns"),
    )
    return rows.select(pl.col(n).cast(t) for n, t in polars_schema("kernel_module").items())
