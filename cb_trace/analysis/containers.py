"""Figures of modules that are never called themselves: the sums over their children."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import polars as pl

from cb_trace.analysis.shares import ancestors

T = TypeVar("T")
Placed = tuple[int, str, str]  # module_id, phase, deployment


def fill_containers(
    found: dict[Placed, T],
    ran: Iterable[Placed],
    partition: pl.DataFrame,
    module: pl.DataFrame,
    add: Callable[[T, T], T],
) -> set[Placed]:
    """Put into ``found`` the sums over children of modules that own no time; returns where.

    The cost of such a module is its children's, so what adds up for them adds up for it. Every
    child that ran must be known.
    """
    own = set(_placed(partition.filter(pl.col("ns") != 0).drop_nulls("module_id")))
    children = children_of(module)
    depth = dict(ancestors(module).group_by("module_id").len().iter_rows())
    places = dict.fromkeys(ran)
    filled = set()
    unknown = [place for place in places if place not in own and place not in found]
    for key in sorted(unknown, key=lambda place: -depth[place[0]]):
        below = [(child, *key[1:]) for child in children.get(key[0], [])]
        parts = [found.get(child) for child in below if child in places]
        total = _total(parts, add)
        if total is not None:
            found[key] = total
            filled.add(key)
    return filled


def children_of(module: pl.DataFrame) -> dict[int | None, list[int]]:
    """Modules by the one that holds them."""
    children: dict[int | None, list[int]] = {}
    for module_id, parent_id in module.select("module_id", "parent_id").iter_rows():
        children.setdefault(parent_id, []).append(module_id)
    return children


def nearest_below(
    place: Placed, found: Mapping[Placed, T], children: Mapping[int | None, list[int]]
) -> list[Placed]:
    """The topmost places below one that are in ``found``, of its phase and deployment."""
    nearest: list[Placed] = []
    pending = list(children.get(place[0], []))
    while pending:
        below = (pending.pop(0), *place[1:])
        if below in found:
            nearest.append(below)
        else:
            pending = [*children.get(below[0], []), *pending]
    return nearest


def _total(parts: list[T | None], add: Callable[[T, T], T]) -> T | None:
    """The sum; None where there is no part, or one is unknown."""
    total: T | None = None
    for part in parts:
        if part is None:
            return None
        total = part if total is None else add(total, part)
    return total


def _placed(rows: pl.DataFrame) -> Iterable[Placed]:
    return rows.select("module_id", "phase", "deployment").iter_rows()
