"""Recordings from the H200, broken on purpose: what is gone is unattributed, never guessed.

Each kernel has the rows it has in the whole recording, or none but unattributed ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from cb_trace.attribution import TraceEvents, attribute, foreign_modules
from cb_trace.bundle import CompiledGraph
from tests.attribution.kineto_reader import read
from tests.attribution.recordings import COMPILED, EAGER, GRAPH, Recording, Rows, recording

SEEDS = range(4)


@cache
def whole(name: str) -> Rows:
    rows = recording(name).rows()
    lost = [row for parts in rows.values() for row in parts if row[0] is None]
    assert not lost
    return rows


def broken(name: str, change: Callable[[Recording], Recording]) -> dict[int, set[object]]:
    """The reasons of the kernels that lost their module; the others must be as they were."""
    found, wanted = change(recording(name)).rows(), whole(name)
    lost: dict[int, set[object]] = {}
    for kernel_id, rows in found.items():
        if rows != wanted[kernel_id]:
            assert all(path is None for path, *_ in rows)
            lost[kernel_id] = {reason for *_, reason in rows}
    return lost


def drawn(events: TraceEvents, seed: int, count: int) -> list[int]:
    """Some kernels of the steps."""
    numbers = events.kernel.filter(pl.col("kind") == "kernel")["kernel_id"].to_list()
    return random.Random(seed).sample(numbers, count)


def without_launches(events: TraceEvents, kernels: Sequence[int]) -> TraceEvents:
    gone = events.kernel.filter(pl.col("kernel_id").is_in(kernels))["launch_id"]
    missing = pl.col("launch_id").is_in(gone.implode())
    return replace(
        events,
        launch=events.launch.filter(~missing),
        kernel=events.kernel.with_columns(launch_id=pl.when(~missing).then("launch_id")),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [EAGER, COMPILED])
def test_kernels_without_their_launches_are_without_modules(name: str, seed: int) -> None:
    gone = drawn(recording(name).events, seed, 40)
    lost = broken(name, lambda r: replace(r, events=without_launches(r.events, gone)))
    assert {k for k, reasons in lost.items() if reasons == {"no launch in file"}} >= set(gone)
    others = set().union(*(reasons for k, reasons in lost.items() if k not in gone))
    assert others <= {"compiled, no match", "no launch in file"}


def test_a_graph_without_its_launch() -> None:
    everything = recording(GRAPH).events.kernel["kernel_id"].to_list()
    lost = broken(GRAPH, lambda r: replace(r, events=without_launches(r.events, everything)))
    assert set(lost) == set(everything)
    assert set().union(*lost.values()) == {"no launch in file"}


def swapped(events: TraceEvents, one: int, other: int) -> TraceEvents:
    """Two kernels with each other's name, grid and block."""
    columns = ["name", "grid", "block"]
    kernel = events.kernel
    to = pl.col("kernel_id").replace({one: other, other: one})
    shown = kernel.select(to.alias("kernel_id"), *columns)
    rest = kernel.drop(columns).join(shown, on="kernel_id", maintain_order="left")
    return replace(events, kernel=rest.select(kernel.columns))


@pytest.mark.parametrize("seed", range(12))
def test_two_graph_kernels_with_each_others_names_are_nobodys(seed: int) -> None:
    events = recording(GRAPH).events
    names = dict(events.kernel.select("kernel_id", "name").iter_rows())
    steps = dict(events.kernel.select("kernel_id", "step").iter_rows())
    draw = random.Random(seed)
    one = draw.choice(drawn(events, seed, 400))
    other = draw.choice([k for k in names if names[k] != names[one] and steps[k] == steps[one]])
    lost = broken(GRAPH, lambda r: replace(r, events=swapped(r.events, one, other)))
    assert {one, other} <= set(lost)
    assert set().union(*lost.values()) == {"graph, no match"}
    assert len(lost) < 0.1 * len(names)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", ["context", "capture"])
def test_a_graph_that_lacks_kernels_or_has_more_than_its_capture(side: str, seed: int) -> None:
    def change(known: Recording) -> Recording:
        events = known.events if side == "context" else known.captured
        assert events is not None
        kept = ~pl.col("kernel_id").is_in(drawn(events, seed, 5))
        fewer = replace(events, kernel=events.kernel.filter(kept))
        if side == "context":
            return replace(known, events=fewer)
        return replace(known, captured=fewer)

    lost = broken(GRAPH, change)
    assert set().union(*lost.values()) <= {"graph, no match"}
    assert bool(lost) or side == "context"


def test_a_graph_without_its_capture() -> None:
    lost = broken(GRAPH, lambda r: replace(r, captured=None))
    assert set().union(*lost.values()) == {"graph replay, module unknown"}
    assert len(lost) == recording(GRAPH).events.kernel.height


def with_graphs(known: Recording, graphs: Sequence[CompiledGraph]) -> Recording:
    return replace(known, evidence=replace(known.evidence, graphs=graphs))


def test_compiled_code_without_its_provenance() -> None:
    lost = broken(COMPILED, lambda r: with_graphs(r, []))
    assert set().union(*lost.values()) == {"compiled, no match"}
    generated = recording(COMPILED).events.kernel.filter(
        pl.col("name").str.starts_with("triton_") & pl.col("step").is_not_null()
    )
    assert set(generated["kernel_id"]) <= set(lost)


def test_compiled_code_whose_modules_are_not_in_the_tree() -> None:
    def elsewhere(known: Recording) -> Recording:
        graphs = [
            replace(graph, kernels=[
                replace(kernel, nodes=[replace(n, path="x.y") for n in kernel.nodes])
                for kernel in graph.kernels
            ])
            for graph in known.evidence.graphs or ()
        ]  # fmt: skip
        return with_graphs(known, graphs)

    lost = broken(COMPILED, elsewhere)
    assert set().union(*lost.values()) == {"compiled, module unknown"}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_kernels_of_compiled_code_with_each_others_names(seed: int) -> None:
    """In the trace a Triton kernel has its name twice: on its own and on its operator."""
    known = recording(COMPILED)
    own = known.events.op.filter(pl.col("name").str.starts_with("triton_"))
    named = own.select("op_id", "name").unique("name", maintain_order=True)
    one, other = random.Random(seed).sample(named.rows(), 2)
    to = {one[0]: other[1], other[0]: one[1]}
    name = pl.col("op_id").replace_strict(to, default=pl.col("name"), return_dtype=pl.String)
    op, kernel = (f.with_columns(name=name) for f in (known.events.op, known.events.kernel))
    lost = broken(COMPILED, lambda r: replace(r, events=replace(r.events, op=op, kernel=kernel)))
    changed = known.events.kernel.filter(pl.col("op_id").is_in([one[0], other[0]]))
    assert set(changed["kernel_id"]) <= set(lost)
    assert set().union(*lost.values()) == {"compiled, no match"}
    assert len(lost) < 0.1 * len(whole(COMPILED))


def test_ranges_gone() -> None:
    """Parameters still tell whose gradients were added up, and whose the optimizer updates."""
    no_ranges = pl.col("name").str.starts_with("cb:")
    lost = broken(
        EAGER,
        lambda r: replace(
            r,
            events=replace(
                r.events,
                annotation=r.events.annotation.filter(~no_ranges),
                op=r.events.op.filter(~no_ranges),
            ),
        ),
    )
    assert set().union(*lost.values()) == {"outside any module"}
    kept = {row[1] for k, rows in whole(EAGER).items() if k not in lost for row in rows}
    assert kept <= {"backward", "optimizer"}


def test_sequence_numbers_gone() -> None:
    def change(known: Recording) -> Recording:
        op = known.events.op.with_columns(sequence_number=pl.lit(None, pl.Int64))
        return replace(known, events=replace(known.events, op=op))

    lost = broken(EAGER, change)
    assert set().union(*lost.values()) == {"backward, module unknown"}
    backward = {k for k, rows in whole(EAGER).items() if rows[0][1] == "backward"}
    assert set(lost) <= backward
    assert len(lost) > 0.8 * len(backward)


def test_python_slices_gone(shared_traces: Path) -> None:
    events = read(shared_traces / "h200/gpt_eager_stack.json.gz")
    bare = replace(events, python_module=events.python_module.clear())
    module = foreign_modules(bare, run_id="r")
    assert module.is_empty()
    rows = attribute(bare, module, root_glue=False).kernel_module
    assert rows["reason"].unique().to_list() == ["outside any module"]
