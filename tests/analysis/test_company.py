"""Modules called in the order of the step: what their host times say of the step from its parts."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from cb_trace.analysis import Interval
from cb_trace.analysis.host_alone import Factors
from cb_trace.analysis.marginal import marginal_costs
from cb_trace.analysis.parts import Measured, Parts, isolated_parts
from tests.analysis.test_simulate import host_chain, stepped
from tests.analysis.timelines import MODULE, ROOT, A, B, C
from tests.frames import frame

WALL = {ROOT: 900, A: 100, B: 60, C: 40}
PROFILED = {ROOT: 1_800, A: 200, B: 120, C: 80}


def measured(busy_ns: int = 9) -> Measured:
    """A root with a, which holds c, and with b: all bound by the host, at half of the profile.

    :param busy_ns: of the device in each.
    """
    replay = frame(
        "replay",
        *(
            {"replay_id": m, "measured_id": m, "module_id": m, "phase": "forward", "calls": 1,
             "condition": "hot", "call_index": 0, "median_ns": ns, "kernel_ns": busy_ns,
             "busy_ns": busy_ns}
            for m, ns in WALL.items()
        ),
    )  # fmt: skip
    calls = frame(
        "module_call",
        *(
            {"module_id": m, "phase": "forward", "step": 0, "dur_ns": ns}
            for m, ns in PROFILED.items()
        ),
    )
    return Measured(
        replay=replay, replay_kernel=frame("replay_kernel"), module_call=calls, module=MODULE
    )


def tour(ns: dict[int, int]) -> pl.DataFrame:
    return frame("host_tour", *({"module_id": m, "calls": 1, "ns": took} for m, took in ns.items()))


def test_parts_have_what_modules_took_in_company() -> None:
    parts = isolated_parts(replace(measured(), host_tour=tour({B: 78, C: 52})))
    assert parts.toured_ns == {B: 78.0, C: 52.0}
    assert parts.looped_ns == {B: 60.0, C: 40.0}
    assert parts.spent_ns == {}
    assert parts.factors == isolated_parts(measured()).factors


def test_a_module_with_another_inside_that_ran_has_no_time_of_its_own() -> None:
    # c could not be called by itself, so a was the innermost one that was called.
    parts = isolated_parts(replace(measured(), host_tour=tour({A: 130, B: 66})))
    assert parts.toured_ns == {B: 66.0}
    assert parts.looped_ns == {B: 60.0}


def test_a_loop_that_the_device_bounds_says_nothing_of_company() -> None:
    parts = isolated_parts(replace(measured(busy_ns=45), host_tour=tour({B: 78, C: 52})))
    assert parts.toured_ns == {B: 78.0, C: 52.0}
    assert parts.looped_ns == {B: 60.0}  # c has a wall of 40


@pytest.mark.parametrize("none", [None, tour({})])
def test_without_a_tour_company_costs_nothing(none: pl.DataFrame | None) -> None:
    parts = isolated_parts(replace(measured(), host_tour=none))
    assert (parts.toured_ns, parts.looped_ns) == ({}, {})


def found(parts: Parts) -> dict[tuple[str, int | None], int]:
    partition = frame(
        "partition",
        *(
            {"module_id": m, "phase": "forward", "deployment": "eager", "kind": "busy", "ns": 1}
            for m in (ROOT, A, B, C)
        ),
    )
    rows = marginal_costs(
        {"eager": stepped(host_chain())}, MODULE, partition, frame("cost_bounds"), parts,
        run_id="r", bare={"eager": Interval(60_000, 60_000, 60_000)}, device_type="cuda",
    )  # fmt: skip
    return {(kind, one): ns for kind, one, ns in rows.select("kind", "module_id", "ns").iter_rows()}


def test_a_tour_is_for_the_step_from_its_parts_alone() -> None:
    # Under the profiler: the root 30 µs of its own, a 20, c 10, b 40.
    alike = Factors(dict.fromkeys((ROOT, A, B, C), 0.25))
    parts = Parts(host_ratio=0.25, factors=alike, spent_ns={B: 20_000.0})
    before = found(parts)
    assert before["predicted", None] == 25_000
    toured, looped = {B: 14_000.0, C: 4_000.0}, {B: 11_000.0, C: 4_000.0}
    after = found(replace(parts, toured_ns=toured, looped_ns=looped))
    assert after["predicted", None] == (30_000 + 20_000) * 0.25 * 1.2 + 14_000 + 4_000
    assert after | {("predicted", None): 25_000} == before
