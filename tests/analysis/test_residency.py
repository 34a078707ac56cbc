"""What a module leaves to the others in the cache: bytes, and kernels made shorter, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from cb_trace.analysis.changes import Change, changed_step
from cb_trace.analysis.marginal import scaled_steps
from cb_trace.analysis.parts import Measured, Parts, isolated_parts
from cb_trace.analysis.residency import Residency, cache_of, residency
from cb_trace.analysis.scaled import Scaled
from cb_trace.analysis.stats import Interval
from tests.analysis.test_simulate import begun, device_chain, lost, run, stepped
from tests.analysis.timelines import LIST, MODULE, ROOT, A, B, C, D, Timeline
from tests.frames import frame

PARAMETERS = {ROOT: 130, A: 100, B: 0, C: 0, LIST: 30, D: 30}
MODEL = MODULE.with_columns(
    parameter_bytes=pl.col("module_id").replace_strict(PARAMETERS, return_dtype=pl.Int64)
)


def counted(module: int, calls: int, size: int, **more: Any) -> dict[str, Any]:
    row = {"module_id": module, "phase": "forward", "call_index": 0, "calls": calls}
    return row | {"bytes_compulsory": size} | more


def held(module: int, peak: int, output: int, **more: Any) -> dict[str, Any]:
    row = {"module_id": module, "phase": "forward", "scope": "context", "peak_bytes": peak}
    return row | {"output_bytes": output} | more


COST = frame(
    "cost",
    counted(ROOT, 1, 1_000),
    counted(ROOT, 1, 5_000, call_index=-1),  # outside every call
    counted(A, 1, 60),
    counted(A, 1, 7_000, phase="backward"),
    counted(B, 1, 16),
    counted(D, 2, 50),
)
MEMORY = frame(
    "memory",
    held(ROOT, 90, 8),
    held(A, 25, 20),
    held(A, 9_000, 9_000, scope="isolated"),
    held(B, 8, 8),
    held(D, 20, 10),
)
REPLAY = frame("replay")


def test_a_module_brings_what_it_touches_of_its_parameters_and_what_its_calls_allocate() -> None:
    found = residency(100, REPLAY, MODEL, COST, MEMORY)
    assert found is not None
    # a looks rows up: 40 bytes beside its output, of 100. d is called twice, and allocates 20
    # each time; the root's 90 hold that (the list between them is never called), a's 25 and b's 8.
    assert found.brings_bytes == {ROOT: 17, A: 40 + 25, B: 8, D: 30 + 40}
    assert found.output_bytes == {ROOT: 8, A: 20, B: 8, D: 20}


def holds(module: int, name: str, size: int) -> dict[str, Any]:
    return {"module_id": module, "name": name, "bytes": size}


def test_a_parameter_that_two_modules_hold_is_in_the_cache_once() -> None:
    # a is a table of 100 that b, a head without parameters of its own, multiplies by.
    sizes = {ROOT: 130, A: 100, B: 100, C: 0, LIST: 30, D: 30}
    module = MODEL.with_columns(
        parameter_bytes=pl.col("module_id").replace_strict(sizes, return_dtype=pl.Int64)
    )
    cost = frame(
        "cost", counted(ROOT, 1, 1_000), counted(A, 1, 60), counted(B, 1, 116), counted(D, 2, 50)
    )
    rows = frame(
        "parameter", holds(A, "a.weight", 100), holds(B, "a.weight", 100), holds(D, "d.w", 30)
    )
    found = residency(100, REPLAY, module, cost, MEMORY, parameter=rows)
    assert found is not None
    assert found.tied == ({A: 40, B: 100},)
    assert found.brings_bytes == {ROOT: 17, A: 25, B: 8, D: 30 + 40}
    first = rows.filter(~((pl.col("module_id") == B) & (pl.col("name") == "a.weight")))
    older = residency(100, REPLAY, module, cost, MEMORY, parameter=first)
    assert older is not None  # which names a alone: b's is taken to be another
    assert older.tied == ()
    assert older.brings_bytes == {ROOT: 17, A: 40 + 25, B: 100 + 8, D: 30 + 40}
    assert older == residency(100, REPLAY, module, cost, MEMORY)


def test_what_is_read_by_several_is_gone_with_the_last_of_them() -> None:
    known = Residency(200, {A: 10, B: 20}, {}, {}, ({A: 40, B: 100},))
    there = np.array([[True, False, True, False], [True, True, False, False]])
    owners = [(A, "forward"), (B, "forward")]
    assert known._brought(owners, there).tolist() == [130, 120, 50, 0]


@pytest.mark.parametrize("named", [True, False])
def test_parameters_of_a_module_that_is_never_called_are_its_callers(*, named: bool) -> None:
    # The list is an attention here: d is its output layer, which it reads and never calls. The
    # root has a head b of 500 that nothing reads.
    sizes = {ROOT: 640, A: 100, B: 500, C: 0, LIST: 40, D: 30}
    module = MODEL.with_columns(
        parameter_bytes=pl.col("module_id").replace_strict(sizes, return_dtype=pl.Int64)
    )
    cost = frame("cost", counted(ROOT, 1, 190), counted(A, 1, 120), counted(LIST, 1, 80))
    memory = frame("memory", held(ROOT, 90, 8), held(A, 20, 20), held(LIST, 20, 20))
    rows = [
        holds(A, "a.weight", 100), holds(B, "b.weight", 500), holds(LIST, "in", 10),
        holds(D, "d.weight", 30),
    ]  # fmt: skip
    parameter = frame("parameter", *rows) if named else None
    found = residency(100, REPLAY, module, cost, memory, parameter=parameter)
    assert found is not None
    # The root moves 182 beside its output: 140 are a's and the list's, so no more than 42 are of
    # its head; its calls hold 90, the two inside 40 of them.
    assert found.brings_bytes == {ROOT: 42 + 50, A: 100 + 20, LIST: 10 + 30 + 20}


def test_what_is_not_known_has_no_residency() -> None:
    assert residency(None, REPLAY, MODEL, COST, MEMORY) is None
    assert residency(100, REPLAY, MODEL, frame("cost"), MEMORY) is None
    assert residency(100, REPLAY, MODEL, COST, frame("memory")) is None


def test_the_cache_of_a_compiled_step_is_left_out() -> None:
    assert cache_of(frame("run", {"mode": "cudagraph", "l2_bytes": 60})) == 60
    assert cache_of(frame("run", {"mode": "compile+cudagraph", "l2_bytes": 60})) is None
    assert cache_of(frame("run", {"mode": "eager"})) is None


def alone(replay_id: int, module: int, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "replay_id": replay_id,
        "measured_id": replay_id,
        "module_id": module,
        "calls": 1,
    }
    row |= {"phase": "forward", "condition": "hot", "median_ns": 100, "busy_ns": 40}
    return row | more


COLD = {A: 3, B: 1, D: 1}  # calls


def test_a_module_measured_in_some_of_its_calls_only_has_no_figure_of_a_step() -> None:
    replays = frame(
        "replay",
        alone(0, A, calls=3),
        alone(1, B),
        alone(2, B, median_ns=None, busy_ns=None, skipped="time budget"),
        alone(3, D),
        alone(4, D, busy_ns=None),
        *(alone(5 + n, m, condition="cold", calls=k) for n, (m, k) in enumerate(COLD.items())),
    )
    calls = frame(
        "module_call",
        *({"module_id": m, "phase": "forward", "step": 0, "dur_ns": 200} for m in (A, B, B, D, D)),
    )
    parts = isolated_parts(
        Measured(
            replay=replays, replay_kernel=frame("replay_kernel"), module_call=calls, module=MODEL,
            cost=COST, memory=MEMORY, cache_bytes=100,
        )
    )  # fmt: skip
    assert parts.residency is not None
    assert parts.residency.warm_ns == {A: 120.0}
    assert parts.alone_ns == {A: 120}
    assert B not in parts.factors.own


# 100 bytes a step in a cache of 100: nothing is found again. Without a there are b's 40 and a's
# output of 10, and everything is: b's kernels of 40 µs take their 30 alone.
KNOWN = Residency(100, {A: 60, B: 40}, {A: 10, B: 0}, {A: 30_000, B: 30_000})


def test_what_is_gone_leaves_the_others_their_warm_time() -> None:
    without = lost(device_chain(), 94_000, "graph")
    found = lost(device_chain(), 94_000, "graph", Parts(residency=KNOWN))
    assert found[A] == without[A] + 10_000
    # without b a's 60 are left: four fifths are found again, of what a warm cache saves a
    assert found[B] == without[B] + 16_000


def test_nothing_is_left_where_all_fits_already_or_kernels_are_as_long_alone() -> None:
    without = lost(device_chain(), 94_000, "graph")
    roomy = replace(KNOWN, cache_bytes=200)
    for known in (roomy, replace(KNOWN, warm_ns={}), replace(KNOWN, warm_ns={A: 60_000.0})):
        assert lost(device_chain(), 94_000, "graph", Parts(residency=known)) == without


def test_memory_that_another_module_gets_is_brought_all_the_same() -> None:
    without = lost(device_chain(), 94_000, "graph")
    again = replace(KNOWN, made_bytes={A: 50, B: 40}, held_ratio=0.5)
    found = lost(device_chain(), 94_000, "graph", Parts(residency=again))
    # without a there are b's 40, a's output of 10 and half of the 50 that a had: half is found
    assert found[A] == without[A] + 5_000
    # without b a's 60 and half of its 40: two fifths of what a warm cache saves a
    assert found[B] == without[B] + 8_000


def test_of_what_is_allocated_the_step_holds_its_peak() -> None:
    found = residency(100, REPLAY, MODEL, COST, MEMORY)
    assert found is not None
    assert (found.held_ratio, found.made_bytes) == (1.0, {ROOT: 17, A: 25, B: 8, D: 40})
    less = frame("memory", held(ROOT, 60, 8), held(A, 25, 20), held(B, 8, 8), held(D, 20, 10))
    found = residency(100, REPLAY, MODEL, COST, less)
    assert found is not None
    assert found.made_bytes == {ROOT: 0, A: 25, B: 8, D: 40}
    assert found.held_ratio == 60 / 73
    several = residency(100, REPLAY, MODEL.filter(pl.col("module_id") != ROOT), COST, less)
    assert several is not None
    assert several.held_ratio == 1.0


@pytest.mark.parametrize("odd", [{"phase": "backward"}])
def test_a_step_with_a_backward_is_left_as_it_is(odd: dict[str, Any]) -> None:
    def timeline(**more: Any) -> Timeline:
        made = begun().call(A, 0, 20_000, parent_call_id=0).call(B, 20_000, 60_000)
        run(made, A, 10_000, 12_000, 50_000)
        return run(made, B, 25_000, 62_000, 40_000, **more)

    without = lost(timeline(**odd), 94_000, "graph")
    assert lost(timeline(**odd), 94_000, "graph", Parts(residency=KNOWN)) == without
    assert lost(timeline(), 94_000, "graph", Parts(residency=KNOWN)) != lost(
        timeline(), 94_000, "graph"
    )


def test_a_factor_of_nothing_is_a_module_taken_out() -> None:
    bare = Interval(94_000, 94_000, 94_000)
    scaled = scaled_steps(stepped(device_chain()), "graph", bare, Parts(residency=KNOWN))
    taken = changed_step(scaled, [Change("remove", A)], MODULE)
    assert changed_step(scaled, [Change("set", A, 0.0)], MODULE) == taken
    assert taken.saved_ns == lost(device_chain(), 94_000, "graph", Parts(residency=KNOWN))[A]


def test_a_fused_kernel_is_not_held_against_one_of_its_parts_alone() -> None:
    bare = Interval(94_000, 94_000, 94_000)

    def then_ns(parts: Parts) -> int:
        scaled: Scaled = scaled_steps(stepped(device_chain()), "graph", bare, parts)
        changes = [Change("remove", A), Change("fuse", B)]
        return changed_step(scaled, changes, MODULE).then_ns

    assert then_ns(Parts(residency=KNOWN)) == then_ns(Parts())
