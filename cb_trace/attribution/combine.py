"""Every kernel exactly once: the innermost evidence around what set it off, else a named reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward, backward, recomputed
from cb_trace.attribution.calls import Calls, module_call
from cb_trace.attribution.events import Attributed, Origins, TraceEvents, origins
from cb_trace.attribution.evidence import Evidence, Reference
from cb_trace.attribution.graphs import NO_MATCH as GRAPH_NO_MATCH
from cb_trace.attribution.graphs import paired, paired_on_streams
from cb_trace.attribution.inductor import NO_MATCH, NO_PARTS, Compiled, compiled
from cb_trace.attribution.lineage import Lineage, lineage
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, column, innermost, lookup, nest
from cb_trace.attribution.optimizer import after_backward, optimizer_intervals, updates
from cb_trace.attribution.parameters import gradients, optimizer_parts, updated_bytes
from cb_trace.attribution.ranges import range_calls
from cb_trace.attribution.repeats import originals
from cb_trace.attribution.shares import split_by_shares
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
COMPILED_NO_MATCH = "compiled, no match"
COMPILED = "compiled, module unknown"

COLLECTIVES = r"(?i)\b(nccl|rccl|mscclpp)"


def attribute(
    events: TraceEvents,
    module: pl.DataFrame,
    *,
    first_call_id: int = 0,
    root_glue: bool = True,
    evidence: Evidence = Evidence(),  # noqa: B008  (frozen)
    autograd: Backward | None = None,
) -> Attributed:
    """Give every kernel of a trace to one module call, or to several modules, or say why not.

    A kernel goes by the innermost thing around its launch (around its own start for CPU work): a
    module call, a backward operator, or the optimizer. A module call inside a backward operator is
    recomputation; a backward operator inside a module call is backward work all the same. Kernels
    of compiled code go by that code, those of a CUDA graph by the run it was captured of, and the
    optimizer's are split over the owners of the parameters.

    :param module: the module tree, as recorded or by :func:`foreign.foreign_modules`.
    :param first_call_id: ids of calls count up from here.
    :param root_glue: our own recording: work inside a step and outside every module belongs to the
        root (method ``step``), and work outside every step to nobody. Without it, for foreign
        traces, work outside every module stays unattributed and steps do not matter; as where no
        module was seen to run at all.
    :param evidence: what is known beside the trace.
    :param autograd: what :func:`backward` says of the events, where that is known already.
    :returns: rows of ``module_call`` and ``kernel_module``; Σ ``ns`` over the rows of a kernel is
        its duration. A kernel's ``call_id`` in the backward phase is the forward call's, as is that
        of a recomputed kernel where it is known which call is repeated; in a CUDA graph it is a
        call of the run that was captured.
    """
    origin = origins(events)
    autograd = autograd or backward(events.op, events.step)
    calls = _calls(events, module, autograd)
    again = recomputed(calls.frame, autograd)
    accumulated = gradients(events, module, evidence.parameters, autograd)
    line = lineage(calls, autograd, accumulated.leaf)
    original = originals(calls, autograd, line, again)
    found = _evidence(events, origin, calls, autograd, line=line, original=original, again=again)
    found = found.join(accumulated.owner, on="node", how="left", maintain_order="left")
    code = _compiled(events, origin, found, module, evidence)
    found = found.with_columns(pl.Series("compiled", code.at))
    seen = calls.frame.height > 0 or evidence.reference is not None
    known = _outcome(found, calls.method, _glue(module, events.step, root_glue and seen))
    parts = _split(known, events, code, module, evidence)
    return Attributed(
        module_call(calls, events.step, again, original, first_call_id),
        _kernel_module(known, parts, first_call_id),
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


def _calls(events: TraceEvents, module: pl.DataFrame, autograd: Backward) -> Calls:
    ranges = range_calls(events.annotation, module)
    return ranges if ranges.frame.height else slice_calls(events.python_module, module, autograd)


def _evidence(
    events: TraceEvents,
    origin: Origins,
    calls: Calls,
    autograd: Backward,
    *,
    line: Lineage,
    original: Ints,
    again: Flags,
) -> pl.DataFrame:
    """What is around each kernel's origin, a row a kernel.

    ``by``: the innermost layer (``_CALL``, …); ``call``: position of the module call; ``node``:
    position of the backward operator; ``joined``: its forward operator was found, in a module or
    not; ``once_more``: work of a forward repeated inside the backward; ``update``: nothing is
    around it and the step's last backward is over; ``run``: the row of :func:`updates` around it.
    """
    at = (origin.thread, origin.at_ns)
    call, (node, repeated) = calls.around(*at), autograd.around(*at)
    optimizers = optimizer_intervals(events.annotation, events.op)
    layers = [
        (calls.frame, call),
        (autograd.op, node),
        (optimizers, nest(optimizers).locate(*at)),
    ]
    by = innermost(layers)
    joined = lookup(line.known, node, False) & (by == _BACKWARD)
    of_node = np.where(repeated, lookup(line.repeats, node), lookup(line.made_in, node))
    first = np.where(lookup(original, call) != NOTHING, lookup(original, call), call)
    at_call = np.where(by == _CALL, first, np.where(joined, of_node, NOTHING))
    once_more = np.where(by == _CALL, lookup(again, call, False), repeated)
    runs = nest(updates(events.annotation, events.op))
    update = (by == NOTHING) & origin.known
    update &= after_backward(events.step, calls.frame, autograd, origin.at_ns)
    marks: dict[str, Ints | Flags] = {
        "by": by, "call": at_call, "joined": joined, "once_more": once_more, "update": update,
        "module_id": lookup(column(calls.frame, "module_id"), at_call),
        "node": np.where((by == _BACKWARD) & ~repeated, node, NOTHING),
        "known": origin.known, "by_graph": origin.by_graph, "run": runs.locate(*at),
    }  # fmt: skip
    return _frame(events.kernel, marks)


_CALL, _BACKWARD, _OPTIMIZER = range(3)


def _frame(kernel: pl.DataFrame, marks: dict[str, Ints | Flags]) -> pl.DataFrame:
    by, once_more = pl.col("by"), pl.col("once_more")
    phase = (
        pl.when((by == _OPTIMIZER) | pl.col("update")).then(pl.lit("optimizer"))
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
    in_module, owned = pl.col("module_id").is_not_null(), pl.col("owner").is_not_null()
    compiled_here, no_match = pl.col("compiled") >= 0, pl.col("compiled") == NO_MATCH
    reason = (
        pl.when("lost").then(pl.lit(LOST_TIMING))
        .when(~pl.col("known")).then(pl.lit(NO_LAUNCH))
        .when(pl.col("step").is_null() & glue.steps_only).then(pl.lit(OUTSIDE_STEPS))
        .when("by_graph").then(pl.lit(GRAPH))
        .when(compiled_here | (in_module & ~no_match)).then(None)
        .when("collective").then(pl.lit(COMMUNICATION))
        .when(pl.col("by") == _OPTIMIZER).then(pl.lit(OPTIMIZER))
        .when(no_match).then(pl.lit(COMPILED_NO_MATCH))
        .when(owned).then(None)
        .when((pl.col("by") == _BACKWARD) & ~pl.col("joined")).then(pl.lit(BACKWARD))
        .when(pl.lit(glue.root is not None)).then(None)
        .otherwise(pl.lit(OUTSIDE))
    )  # fmt: skip
    how = (
        pl.when(pl.col("reason").is_not_null()).then(pl.lit("none"))
        .when(compiled_here).then(pl.lit("inductor"))
        .when(~in_module & owned).then(pl.lit("parameter"))
        .when(~in_module).then(pl.lit("step"))
        .when(pl.col("by") == _CALL).then(pl.lit(method))
        .otherwise(pl.lit("autograd"))
    )  # fmt: skip
    owner = pl.when(pl.col("reason").is_null()).then(
        pl.coalesce("module_id", "owner", pl.lit(glue.root))
    )
    return found.with_columns(reason=reason).with_columns(method=how).with_columns(module_id=owner)


def _split(
    known: pl.DataFrame,
    events: TraceEvents,
    code: Compiled,
    module: pl.DataFrame,
    evidence: Evidence,
) -> pl.DataFrame:
    """The rows of the kernels that may belong to several modules; ``share`` is a weight."""
    parts = [_compiled_parts(known, code)]
    if evidence.parameters:
        of_optimizer = known.filter(pl.col("reason") == OPTIMIZER)
        updated = updated_bytes(events, module, evidence.parameters)
        parts.append(optimizer_parts(of_optimizer, updated))
    if evidence.reference is not None:
        replayed = known.filter(pl.col("reason") == GRAPH)
        parts.append(_graph_parts(replayed, events.kernel, evidence.reference))
    schema = polars_schema("kernel_module") | {"dur_ns": pl.Int64()}
    return pl.concat([_conform(part, schema) for part in parts]).drop("ns")


def _kernel_module(known: pl.DataFrame, parts: pl.DataFrame, first_call_id: int) -> pl.DataFrame:
    """Rows of table ``kernel_module``: one a kernel, but for those that split."""
    called = pl.col("reason").is_null() & (pl.col("call") != NOTHING)
    whole = known.join(parts, on="kernel_id", how="anti", maintain_order="left").with_columns(
        call_id=pl.when(called).then(pl.col("call") + first_call_id),
        share=pl.lit(1.0),
        ns=pl.col("dur_ns"),
    )
    schema = polars_schema("kernel_module")
    rows = pl.concat([_conform(whole, schema), _conform(split_by_shares(parts), schema)])
    return rows.with_columns(confidence=_CONFIDENCE)


_CONFIDENCE = (
    pl.when(pl.col("module_id").is_null()).then(pl.lit("none"))
    .when(pl.col("share") < 1.0).then(pl.lit("split"))
    .when(pl.col("method").is_in(["inductor", "graph_order"])).then(pl.lit("matched"))
    .otherwise(pl.lit("exact"))
)  # fmt: skip


def _conform(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """The columns of a schema; what the frame lacks is null."""
    return frame.select(
        pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, kind).alias(name)
        for name, kind in schema.items()
    )


def _compiled(
    events: TraceEvents,
    origin: Origins,
    found: pl.DataFrame,
    module: pl.DataFrame,
    evidence: Evidence,
) -> Compiled:
    """Kernels of compiled code; the optimizer's, compiled or not, are the optimizer's.

    Code compiled for one module may run for another of its kind (one graph for all blocks). Where
    its nodes are not of the module whose call is around it, that module has the kernel, whole.
    """
    if evidence.graphs is None:
        return Compiled(np.full(found.height, NOTHING, np.int64), NO_PARTS)
    code = compiled(events, origin, evidence.graphs, module)
    at = np.where((found["by"] == _OPTIMIZER).to_numpy(), NOTHING, code.at)
    paths = module.select("module_id", around=pl.col("path") + ".")
    within = (
        found.select("module_id", at=pl.Series(at), row=pl.int_range(pl.len(), dtype=pl.Int64))
        .filter(pl.col("at") >= 0)
        .join(paths.filter(pl.col("around") != "."), on="module_id")
        .join(code.parts.select("at", "path"), on="at")
        .filter(~(pl.col("path") + ".").str.starts_with(pl.col("around")))
    )
    at[column(within, "row")] = NOTHING
    return Compiled(at, code.parts)


def _compiled_parts(known: pl.DataFrame, code: Compiled) -> pl.DataFrame:
    """The modules of each kernel of compiled code, by the nodes in it."""
    unknown = pl.col("module_id").is_null()
    return (
        known.filter(pl.col("method") == "inductor")
        .select("kernel_id", "dur_ns", at="compiled")
        .join(code.parts, on="at", maintain_order="left")
        .with_columns(
            method=pl.when(unknown).then(pl.lit("none")).otherwise(pl.lit("inductor")),
            reason=pl.when(unknown).then(pl.lit(COMPILED)),
        )
    )


def _graph_parts(
    replayed: pl.DataFrame, kernel: pl.DataFrame, reference: Reference
) -> pl.DataFrame:
    """What the run that was captured says of each kernel of a graph, shares included."""
    of_graph = kernel.join(replayed, on="kernel_id", how="semi", maintain_order="left")
    pair = paired_on_streams if reference.on_streams else paired
    partner = pair(of_graph, reference)
    rows = reference.kernel_module.select(
        "module_id", "call_id", "phase", "share", "bytes", "reason", from_id="kernel_id"
    )
    given = pl.when(pl.col("module_id").is_null()).then(pl.lit("none")).otherwise(pl.col("method"))
    return (
        replayed.select("kernel_id", "dur_ns", "phase")
        .join(partner, on="kernel_id", how="left", maintain_order="left")
        .join(rows, on="from_id", how="left", maintain_order="left", suffix="_there")
        .with_columns(
            phase=pl.coalesce("phase_there", "phase"),
            share=pl.col("share").fill_null(1.0),
            call_id=pl.when("called").then("call_id"),
            method=given.fill_null(pl.lit("none")),
            reason=pl.when(pl.col("from_id").is_null())
            .then(pl.lit(GRAPH_NO_MATCH))
            .otherwise("reason"),
        )
    )
