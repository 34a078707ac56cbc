"""Why the isolated figure of a module differs from its cost in the step (DESIGN, section 5).

With A alone, E in the step, W wall and U union alone, K sums of durations, B and I the busy and
idle time owned in the partition, the terms add up to isolated − cost = W_A − (B + I) exactly:

    launch          W_A − U_A
    cache           Σ A − S over matched kernels (Σ A − E without a sequence run)
    kernel_choice   Σ A − E over kernels of the same operator that differ
    fusion          Σ A of kernels only alone − Σ E of kernels only in the step
    overlap         (U_A − K_A) − (B − K_E)
    idle            −I
    contention      Σ S − E over matched kernels beside which another stream ran
    residual        Σ S − E over the other matched kernels

S is a kernel in the sequence run (:mod:`cb_trace.analysis.sequence`). A matched kernel without an
S puts A − E into cache; a module whose matched kernels all have none has NULL for contention and
residual. What is not matched has no part in them: a kernel that is another alone takes all of
A − E, the work of caches, clocks and other streams included, into kernel choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from cb_trace.analysis.containers import Placed, fill_containers
from cb_trace.analysis.costs import bounded_parts
from cb_trace.analysis.matching import CHOICE, MATCHED, ONLY, pair
from cb_trace.analysis.sequence import APART, BESIDE, SequenceSums, with_sequence
from cb_trace.analysis.sides import (
    INSTANCE,
    Alone,
    InStep,
    Key,
    alone_instances,
    alone_sides,
    context_instances,
    context_kernels,
    context_sums,
    hot_replays,
    in_step,
)
from cb_trace.analysis.stats import Interval
from cb_trace.analysis.timeline import step_windows
from cb_trace.columns import polars_schema

Terms = dict[str, Interval | None]

_NULLS = (None, None, None)


def terms(
    *,
    partition: pl.DataFrame,
    cost_bounds: pl.DataFrame,
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    op: pl.DataFrame,
    step: pl.DataFrame,
    module: pl.DataFrame,
    replay: pl.DataFrame,
    replay_kernel: pl.DataFrame,
    isolated_kernel: pl.DataFrame,
    isolated_op: pl.DataFrame,
    sequence: pl.DataFrame | None = None,
    in_turn: pl.DataFrame | None = None,
    run_id: str,
    device_type: str | None,
) -> pl.DataFrame:
    """The error terms of every module whose hot replays were all measured: a ``term`` frame.

    ``partition`` comes from :func:`step_partition`, ``cost_bounds`` from the function of that name,
    ``replay`` from :func:`replay_figures`;
    ``kernel``, ``kernel_module``, ``op``, ``step`` are of the context trace, ``isolated_*`` of the
    isolated traces together; ``sequence`` has ``kernel_id, run, ns``: how long kernels of one of
    the steps take in each run of the sequence; ``in_turn`` is ``kernel`` with starts that tell its
    order alone, where branches of a graph run in another order each time. Per module, phase and
    deployment the terms sum to Σ calls × median of the hot replays − Σ partition (children
    included), exactly. Where a replay was not profiled, only ``idle`` is known and the rest is
    NULL. A container that is never called takes its children's sums, where all of them have terms.

    Bounds: W from its samples, A and E from resamples of profiled calls and steps, I from
    ``cost_bounds``; those of a difference are as far apart as its parts allow.
    """
    hot = hot_replays(replay)
    if step.is_empty() or hot.is_empty():
        return pl.DataFrame(schema=polars_schema("term"))
    rows = context_kernels(kernel if in_turn is None else in_turn, kernel_module, op, module, hot)
    alone = alone_instances(hot, replay_kernel, isolated_kernel, isolated_op)
    rows, alone = _matched(rows, alone)
    rows, order = _sequenced(rows, kernel, sequence)
    sides = _Sides(
        alone=alone_sides(hot, alone, replay_kernel, isolated_kernel),
        sums=context_sums(rows, step["step"].sort()),
        order=order,
        fractions=_fractions(partition, step, cpu=device_type == "cpu"),
    )
    owned = _owned(partition, cost_bounds, module)
    found = {place: sides.terms(place, row) for place, row in owned.items() if sides.know(place)}
    fill_containers(found, owned, partition, module, _add)
    return _frame(found, run_id)


def _matched(rows: pl.DataFrame, alone: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The kernels of the steps and those alone, with how each is matched."""
    context, alone = pair(context_instances(rows), alone)
    return rows.join(context.select(*INSTANCE, "match"), on=INSTANCE), alone


def _sequenced(
    rows: pl.DataFrame, kernel: pl.DataFrame, sequence: pl.DataFrame | None
) -> tuple[pl.DataFrame, SequenceSums | None]:
    """The kernels of the steps apart by whether another stream ran; None: no sequence run."""
    if sequence is None or sequence.is_empty():
        return rows, None
    return with_sequence(rows, kernel, sequence, INSTANCE)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of every module, and the sequence where there is one."""

    alone: Mapping[Key, Alone]
    sums: Mapping[Key, Mapping[str, Interval]]  # Σ E over the profiled steps by match
    order: SequenceSums | None
    fractions: Mapping[str, tuple[int, int]]  # by deployment: what such sums are multiplied by

    def know(self, place: Placed) -> bool:
        """Whether the module was replayed alone."""
        return place[:2] in self.alone

    def terms(self, place: Placed, owned: Mapping[str, int]) -> Terms:
        """The terms of one module and deployment; ``owned``: its row of the bounded parts."""
        key, fraction = place[:2], self.fractions[place[2]]
        idle = Interval(owned["idle_ns"], owned["idle_low_ns"], owned["idle_high_ns"])
        order = self.order.of(key, fraction) if self.order else None
        here = in_step(self.sums.get(key, {}), fraction, owned["busy_ns"], idle, order)
        return dict(error_terms(self.alone[key], here))


def _owned(
    partition: pl.DataFrame, cost_bounds: pl.DataFrame, module: pl.DataFrame
) -> dict[Placed, dict[str, int]]:
    """What each module owns of each deployment's step, children included."""
    rows = bounded_parts(partition, cost_bounds, module).iter_rows(named=True)
    return {(row["module_id"], row["phase"], row["deployment"]): row for row in rows}


def _frame(found: dict[Placed, Terms], run_id: str) -> pl.DataFrame:
    written = [
        (run_id, *place, kind, *((term.median_ns, term.low_ns, term.high_ns) if term else _NULLS))
        for place, measured in found.items()
        for kind, term in measured.items()
    ]
    return pl.DataFrame(written, schema=polars_schema("term"), orient="row")


def _add(one: Terms, other: Terms) -> Terms:
    """Term by term; what one lacks the sum lacks."""
    if (one["residual"] is None) != (other["residual"] is None):
        one, other = _merged(one), _merged(other)
    return {
        kind: term + more if term and (more := other[kind]) else None for kind, term in one.items()
    }


def _merged(terms: Terms) -> Terms:
    """Contention and residual put into cache, as without a sequence run."""
    parts = [terms[kind] for kind in ("cache", "contention", "residual")]
    known = [part for part in parts if part is not None]
    cache = sum(known[1:], known[0]) if known else None
    return terms | {"cache": cache, "contention": None, "residual": None}


def error_terms(alone: Alone, here: InStep) -> Iterator[tuple[str, Interval | None]]:
    """The terms of one module and deployment; None where they were not measured."""
    idle = -here.idle
    if alone.busy_ns is None:
        yield from dict.fromkeys(("launch", "cache", "kernel_choice", "fusion", "overlap")).items()
    else:
        busy = alone.kernel.proportion(alone.busy_ns)
        hidden_alone = alone.kernel.proportion(alone.kernel.median_ns - alone.busy_ns)
        hidden_here = here.kernel.proportion(here.kernel.median_ns - here.busy_ns)
        yield "launch", alone.wall - busy
        yield "cache", alone.kernels[MATCHED] - _context_cache(here)
        yield "kernel_choice", alone.kernels[CHOICE] - here.kernels[CHOICE]
        yield "fusion", alone.kernels[ONLY] - here.kernels[ONLY]
        yield "overlap", hidden_here - hidden_alone
    yield "contention", _drift(alone, here, BESIDE)
    yield "idle", idle
    yield "residual", _drift(alone, here, APART)


def _drift(alone: Alone, here: InStep, part: str) -> Interval | None:
    """Σ S − E of a part of the matched kernels."""
    if alone.busy_ns is None or here.parts is None or here.sequence is None:
        return None
    return here.sequence[part] - here.parts[part]


def _context_cache(here: InStep) -> Interval:
    """What A of the matched kernels is held against: S where there is one, else E."""
    if here.parts is None or here.sequence is None:
        return here.kernels[MATCHED]
    apart = here.parts[BESIDE] + here.parts[APART]
    rest = here.kernels[MATCHED].median_ns - apart.median_ns
    return here.kernels[MATCHED].proportion(rest) + here.sequence[BESIDE] + here.sequence[APART]


def _fractions(
    partition: pl.DataFrame, step: pl.DataFrame, *, cpu: bool
) -> dict[str, tuple[int, int]]:
    """What sums over the profiled steps are multiplied by, per deployment: a mean, or on a CPU
    bare ÷ profiled (the parts of a deployment sum to its bare step).
    """
    bare = partition.group_by("deployment").agg(pl.col("ns").sum())
    windows = step_windows(step)
    scaled = cpu and windows.total_ns > 0
    return {
        name: (ns, windows.total_ns) if scaled else (1, windows.count)
        for name, ns in bare.iter_rows()
    }
