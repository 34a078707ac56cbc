"""How much host time modules really take: bare wall alone over duration under the profiler.

A profiler slows what a module does by a factor of its own: much where hooks mark short calls,
little where an operator works long. A module that the host bounds alone shows its factor: its bare
wall is its host time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

HOST_BOUND = 1.3  # alone, the wall is longer than the busy device by this much: the host is slower
FAR = 4.0  # a difference of two figures is no surer than that
SURE_RATIO = 0.25  # of a parent's wall; what is left of less, children taken off, tells nothing


@dataclass(frozen=True, slots=True)
class Alone:
    """Forward calls of a module, a step: bare wall alone, and duration under the profiler."""

    wall_ns: float
    profiled_ns: float
    bound: bool  # by the host


def alone(replay: pl.DataFrame, module_call: pl.DataFrame) -> dict[int, Alone]:
    """The modules that ran forward and were measured alone, in all the calls given.

    Modules that share a measurement share the median of their durations, so that a cold first one
    does not count as slow. Who was not profiled alone is not known to be bound by the host.

    :param replay: forward replays in condition ``hot``, with the figures of their measurements.
    """
    figures = (
        replay.sort("measured_id").group_by("module_id").agg(
            wall=(pl.col("calls") * pl.col("median_ns")).sum(),
            busy=(pl.col("calls") * pl.col("busy_ns")).sum(),
            unknown=pl.col("median_ns").null_count(),
            unprofiled=pl.col("busy_ns").null_count(),
            group=pl.col("measured_id").cast(pl.String).str.join(","),
        ).filter(unknown=0)
    )  # fmt: skip
    calls = module_call.drop_nulls("step").filter(pl.col("phase") == "forward")
    steps = max(1, calls["step"].n_unique())
    profiled = calls.group_by("module_id").agg(profiled=pl.col("dur_ns").sum() / steps)
    rows = figures.join(profiled, on="module_id").with_columns(
        profiled=pl.col("profiled").median().over("group"),
        bound=(pl.col("unprofiled") == 0) & (pl.col("wall") > HOST_BOUND * pl.col("busy")),
    )
    return {
        row["module_id"]: Alone(float(row["wall"]), row["profiled"], row["bound"])
        for row in rows.filter(pl.col("profiled") > 0).iter_rows(named=True)
    }


@dataclass(frozen=True, slots=True)
class Factors:
    """What profiled host work is multiplied by, by module."""

    own: dict[int, float] = field(default_factory=dict)
    most: dict[int, float] = field(default_factory=dict)  # where only a bound is known


def host_factors(found: Mapping[int, Alone], module: pl.DataFrame, ran: set[int]) -> Factors:
    """The factors of modules' own host work, children apart.

    A module has one if the host bounds it and every child that ran; what a parent does itself is a
    difference, held within four times of the whole either way, and none where it is small: to call
    a child is the child's alone and its parent's in the step. One without children that the device
    bounds has a bound: its host work takes no longer than its wall.
    """
    children = run_inside(module, ran)
    own: dict[int, float] = {}
    most: dict[int, float] = {}
    for one, whole in found.items():
        below = [found.get(child) for child in children.get(one, ())]
        usual = whole.wall_ns / whole.profiled_ns
        if not whole.bound and not below:
            most[one] = usual
        inner = [child for child in below if child is not None and child.bound]
        if not whole.bound or len(inner) < len(below):
            continue
        wall = whole.wall_ns - sum(child.wall_ns for child in inner)
        profiled = whole.profiled_ns - sum(child.profiled_ns for child in inner)
        if profiled <= 0 or (below and wall < SURE_RATIO * whole.wall_ns):
            continue
        own[one] = min(max(wall / profiled, usual / FAR), usual * FAR)
    return Factors(own, most)


def run_inside(module: pl.DataFrame, ran: set[int]) -> dict[int, list[int]]:
    """The modules that ran by the nearest one above that did."""
    up: dict[int, int | None] = dict(module.select("module_id", "parent_id").iter_rows())
    children: dict[int, list[int]] = {}
    for one in ran:
        above = up.get(one)
        while above is not None and above not in ran:  # a container that is never called
            above = up.get(above)
        if above is not None:
            children.setdefault(above, []).append(one)
    return children
