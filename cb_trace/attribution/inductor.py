"""Method ``inductor``: kernels of compiled code, by the code that Inductor generated.

A run of a compiled graph stands in the trace inside ``## Call CompiledFxGraph key ##``. In it every
generated kernel call leaves an operator: a Triton kernel one of its own name, a C++ kernel one
named ``graph_0_cpp_fused_…``, an extern call that of the library (traces.md section 8). That
sequence is held against the generated one, by name and order; what fits belongs to the modules of
its nodes (:mod:`fusion`), copies and memsets inside an extern call included. What does not fit is
unattributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cb_trace.attribution.align import align
from cb_trace.attribution.events import Origins, TraceEvents
from cb_trace.attribution.fusion import Generated, generated
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, Nest, column, lookup, nearest, nest
from cb_trace.attribution.ranges import module_by_path

if TYPE_CHECKING:
    from cb_trace.bundle import CompiledGraph

CALL = r"^## Call CompiledFxGraph (.+) ##$"
NO_MATCH = -2  # in compiled code, and no generated kernel


NO_PARTS = pl.DataFrame(
    schema={
        "at": pl.Int64(), "path": pl.String(), "module_id": pl.Int32(), "phase": pl.String(),
        "share": pl.Float64(), "bytes": pl.Int64(),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compiled:
    """``at``: each kernel's generated call, ``NO_MATCH``, or ``NOTHING`` outside compiled code.

    ``parts``: the modules of each generated call, ``at, path, module_id, phase, share, bytes``;
    ``module_id`` is null where the module is unknown, ``share`` a weight.
    """

    at: Ints
    parts: pl.DataFrame


def compiled(
    events: TraceEvents, origin: Origins, graphs: Sequence[CompiledGraph], module: pl.DataFrame
) -> Compiled:
    """Find each kernel's generated call."""
    code = generated(graphs)
    runs = _runs(events, code)
    run = runs.nest.locate(origin.thread, origin.at_ns)
    units, unit = _units(events, origin, runs, run)
    found, whole = _match(units, runs.frame, code)
    at = np.where(unit == NOTHING, np.where(run == NOTHING, NOTHING, NO_MATCH), lookup(found, unit))
    own = _own_time(events.kernel, events.op, runs.frame, run)
    at = np.where(own & lookup(whole, run, False), NOTHING, at)
    return Compiled(at, _parts([call for calls in code for call in calls], module))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of compiled graphs: ``frame`` has ``key, thread, start_ns, dur_ns``.

    ``names``: what the code of each graph calls, ``key, called``.
    """

    frame: pl.DataFrame
    nest: Nest
    names: pl.DataFrame

    def calls(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows inside a run (``run``) of a name (``called``) that its code calls."""
        inside = frame.filter(pl.col("run") != NOTHING)
        keyed = inside.with_columns(key=self.frame["key"].gather(inside["run"]))
        return keyed.join(self.names, on=["key", "called"], how="semi", maintain_order="left")


def _runs(events: TraceEvents, code: Sequence[Sequence[Generated]]) -> _Runs:
    """The mark of a run is an operator or an annotation, by version."""
    columns = ["name", "thread", "start_ns", "dur_ns"]
    on_host = events.annotation.filter(pl.col("layer") == "user")
    marks = pl.concat([on_host.select(columns), events.op.select(columns)])
    key = pl.col("name").str.extract(CALL)
    frame = marks.select(key.alias("key"), *columns[1:]).drop_nulls("key").sort("start_ns")
    names = pl.DataFrame(
        [(call.key, call.called) for calls in code for call in calls],
        schema={"key": pl.String(), "called": pl.String()},
        orient="row",
    )
    return _Runs(frame, nest(frame), names.unique())


def _units(
    events: TraceEvents, origin: Origins, runs: _Runs, run: Ints
) -> tuple[pl.DataFrame, Ints]:
    """What each run executed of its code (``run, called, start_ns``); the unit of each kernel.

    A unit is an outermost operator of a name in the code; rows that are inside one have ``unit``
    false. A kernel of such a name and in no unit is one by itself (before torch 2.5 Triton
    launches left no operator).
    """
    op = events.op.filter(~pl.col("name").str.contains(CALL))
    op_run = runs.nest.locate(column(op, "thread"), column(op, "start_ns"))
    columns = ["run", "called", "thread", "start_ns", "dur_ns"]
    op = runs.calls(op.with_columns(pl.Series("run", op_run), called=_called("name")))
    op = op.select(columns)
    nested, op_run = nest(op), column(op, "run")
    outermost = (nested.parent == NOTHING) | (lookup(op_run, nested.parent) != op_run)
    unit = lookup(nearest(nested.parent, outermost), nested.locate(origin.thread, origin.at_ns))
    unit = np.where(lookup(op_run, unit) == run, unit, NOTHING)
    marks = {"run": run, "unit": unit, "start_ns": origin.at_ns}
    kernel = events.kernel.select("kind", pl.int_range(pl.len()).alias("row"), called="name")
    kernel = kernel.with_columns(pl.Series(name, values) for name, values in marks.items())
    lone = runs.calls(kernel.filter((pl.col("kind") != "cpu") & (pl.col("unit") == NOTHING)))
    unit[column(lone, "row")] = op.height + np.arange(lone.height)
    columns = ["run", "called", "start_ns"]
    units = [op.select(columns).with_columns(unit=pl.Series(outermost, dtype=pl.Boolean))]
    units.append(lone.select(columns).with_columns(unit=pl.lit(value=True)))
    return pl.concat(units), unit


def _called(name: str) -> pl.Expr:
    """``addmm`` of ``aten::addmm``; C++ kernels are numbered by graph."""
    return pl.col(name).str.replace(r"^graph_\d+_", "").str.replace(r"^.*::", "")


def _match(
    units: pl.DataFrame, runs: pl.DataFrame, code: Sequence[Sequence[Generated]]
) -> tuple[Ints, Flags]:
    """The generated call of each unit, or ``NO_MATCH``; whether a run's calls were all found.

    Runs of one graph are alike, so they are compared once.
    """
    first = np.cumsum([0, *(len(calls) for calls in code)])
    graph_of = {calls[0].key: number for number, calls in enumerate(code) if calls}
    token = {name: at for at, name in enumerate({c.called for calls in code for c in calls})}
    wanted = [np.array([token[c.called] for c in calls], np.int64) for calls in code]
    found = np.full(units.height, NO_MATCH, np.int64)
    whole = np.zeros(runs.height, np.bool_)
    known: dict[tuple[int, bytes], Ints] = {}
    number = pl.col("called").replace_strict(token, default=NOTHING, return_dtype=pl.Int64)
    rows = units.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64), token=number)
    rows = rows.filter("unit").sort("run", "start_ns", "row")
    for run, of_run in rows.partition_by("run", as_dict=True).items():
        graph, seen = graph_of[runs["key"][run[0]]], column(of_run, "token")
        alike = (graph, seen.tobytes())
        if alike not in known:
            known[alike] = align(seen, wanted[graph]).match
        match = known[alike]
        found[column(of_run, "row")] = np.where(match == NOTHING, NO_MATCH, first[graph] + match)
        whole[run[0]] = np.count_nonzero(match != NOTHING) == len(wanted[graph])
    return found, whole


def _own_time(kernel: pl.DataFrame, op: pl.DataFrame, runs: pl.DataFrame, run: Ints) -> Flags:
    """Host work of the generated wrapper itself, between its calls (CPU recordings).

    It is its caller's where every generated call was seen; else a kernel may hide in it, as C++
    kernels do unless Inductor's kernel profiling is on. Its operator is the mark of the run, or
    one around it where the mark is an annotation.
    """
    begun = op.select("op_id", pl.col("start_ns").alias("begun_ns"))
    at = kernel.select("op_id", "kind").join(begun, on="op_id", how="left", maintain_order="left")
    around = at["begun_ns"] <= pl.Series(lookup(column(runs, "start_ns"), run))
    return ((at["kind"] == "cpu") & around).fill_null(value=False).to_numpy()


def _parts(flat: Sequence[Generated], module: pl.DataFrame) -> pl.DataFrame:
    known = module_by_path(module)
    rows = [
        (at, part.path, known.get(part.path) if part.path is not None else None, part.phase,
         part.weight, part.bytes)
        for at, call in enumerate(flat)
        for part in call.parts
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=NO_PARTS.schema, orient="row")
