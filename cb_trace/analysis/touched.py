"""How much of its parameters each module touches in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from cb_trace.analysis.host_alone import run_inside
from cb_trace.columns import polars_schema

Held = dict[str, int]  # bytes of parameters by name


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes by module_id: of what no other module called reads, and of each parameter that others
    read as well.
    """

    own: dict[int, int]
    tied: tuple[dict[int, int], ...]


@dataclass(slots=True)
class _Below:
    """What a module and those inside touch; a parameter that several read once."""

    own: int = 0
    tied: Held = field(default_factory=dict)

    def add(self, other: _Below) -> None:
        """Take in what one inside touches."""
        self.own += other.own
        for name, size in other.tied.items():
            self.tied[name] = max(size, self.tied.get(name, 0))

    @property
    def bytes(self) -> int:
        return self.own + sum(self.tied.values())


def touched_parameters(
    called: pl.DataFrame, module: pl.DataFrame, parameter: pl.DataFrame | None
) -> Touched:
    """Of every module called, what it moves at most beside its output and what those inside touch.

    What a module touches is spread over its parameters by their size.

    :param called: ``module_id``, ``bytes_compulsory``, ``output_bytes`` a step.
    :param parameter: rows of that table. What a module holds and they do not name is taken to be
        read by nobody else: of tied parameters older recordings name the first module alone.
    """
    ran = set(called["module_id"].to_list())
    held = _held(module, parameter, ran)
    readers: dict[str, int] = {}
    for names in held.values():
        for name in names:
            readers[name] = readers.get(name, 0) + 1
    moved = dict(
        called.select("module_id", pl.col("bytes_compulsory") - pl.col("output_bytes")).iter_rows()
    )
    inside = run_inside(module, ran)
    own: dict[int, int] = {}
    tied: dict[str, dict[int, int]] = {}
    below: dict[int, _Below] = {}
    for one in _innermost_first(inside, ran):
        found = _Below()
        for inner in inside.get(one, []):
            found.add(below[inner])
        touched = _within(held.get(one, {}), moved[one] - found.bytes)
        mine = _Below(tied={name: size for name, size in touched.items() if readers[name] > 1})
        mine.own = sum(touched.values()) - mine.bytes
        own[one] = mine.own
        for name, size in mine.tied.items():
            tied.setdefault(name, {})[one] = size
        found.add(mine)
        below[one] = found
    return Touched(own, tuple(tied[name] for name in sorted(tied)))


def _held(module: pl.DataFrame, parameter: pl.DataFrame | None, ran: set[int]) -> dict[int, Held]:
    """Parameters of every module that ran, those of modules inside that never ran with them."""
    named = pl.DataFrame(schema=polars_schema("parameter")) if parameter is None else parameter
    rows = list(named.select("module_id", "name", "bytes").iter_rows())
    up: dict[int, int | None] = dict(module.select("module_id", "parent_id").iter_rows())
    held: dict[int, Held] = {}
    for holder, name, size in [*rows, *_unnamed(module, rows, up)]:
        owner: int | None = holder
        while owner is not None and owner not in ran:
            owner = up.get(owner)
        if owner is not None:
            held.setdefault(owner, {})[name] = size
    return held


def _unnamed(
    module: pl.DataFrame, rows: list[tuple[int, str, int]], up: Mapping[int, int | None]
) -> Iterator[tuple[int, str, int]]:
    """Bytes that a module holds itself and no row names."""
    named: dict[int, Held] = {}
    for holder, name, size in rows:
        at: int | None = holder
        while at is not None:
            named.setdefault(at, {})[name] = size
            at = up.get(at)
    sizes = module.select("module_id", pl.col("parameter_bytes").fill_null(0)).iter_rows()
    left = {one: size - sum(named.get(one, {}).values()) for one, size in sizes}
    inner: dict[int, int] = {}
    for one, size in left.items():
        above = up.get(one)
        if above is not None:
            inner[above] = inner.get(above, 0) + max(0, size)
    for one, size in left.items():
        if size > inner.get(one, 0):
            yield one, f"/{one}", size - inner.get(one, 0)


def _within(held: Held, most: int) -> Held:
    """The parameters, each cut alike where they are more than that in all."""
    whole, most = sum(held.values()), max(0, most)
    if whole <= most:
        return held
    return {name: size * most // whole for name, size in held.items()}


def _innermost_first(inside: Mapping[int, list[int]], ran: set[int]) -> list[int]:
    found: list[int] = []
    waiting = list(ran.difference(*inside.values()))
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += inside.get(one, [])
    return found[::-1]
