"""Two profiles beside each other: what changed, module by module, and whether noise explains it.

A change is new less base: above 0 takes more. Modules are matched by their path. A change is within
noise where the intervals of the two figures meet, which is where its own interval holds 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from cb_trace.errors import CbTraceError
from cb_trace.reporters.comparison import (
    Comparison,
    ModuleRow,
    RunHead,
    Selection,
    StepTime,
    chosen_run,
    read_comparison,
)
from cb_trace.reporters.modules import in_tree_order
from cb_trace.reporters.sql_files import fetch

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Connection

Presence = Literal["both", "added", "removed"]
Order = Literal["change", "cost", "path"]
Flip = Literal["slower alone", "faster alone"]
Kind = Literal["work", "hardware", "other"]

TIMED, PHASES = "step timed", "phases"
# What makes the figures of two recordings those of different work, or of different hardware.
WORK = (TIMED, "workload", "settings", "dtype", PHASES)
HARDWARE = ("device_name", "sm_clock_mhz")
OTHER = ("mode", "torch_version", "cuda_version", "driver_version", "seed", "l2_bytes")
_KINDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("work", WORK),
    ("hardware", HARDWARE),
    ("other", OTHER),
)
_NAMES = {
    "device_name": "device", "sm_clock_mhz": "SM clock (MHz)", "torch_version": "torch",
    "cuda_version": "CUDA", "driver_version": "driver", "l2_bytes": "L2",
}  # fmt: skip
_CLOCK = "SELECT median(sm_clock_mhz) FROM step_sample WHERE run_id = ? AND kind = 'bare'"
_CLOCK_RATIO = 0.01  # clocks nearer than this are the same


@dataclass(frozen=True, slots=True)
class Figure:
    """A time in µs with its interval, None where not measured."""

    value: float | None
    low: float | None = None
    high: float | None = None


NOTHING = Figure(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in both profiles."""

    base: Figure
    new: Figure

    @property
    def delta(self) -> float | None:
        """New less base."""
        return _minus(self.new.value, self.base.value)

    @property
    def low(self) -> float | None:
        """Lower bound of the change: the least new less the most base."""
        return _minus(self.new.low, self.base.high)

    @property
    def high(self) -> float | None:
        """Upper bound of the change."""
        return _minus(self.new.high, self.base.low)

    @property
    def ratio(self) -> float | None:
        """The change over the base."""
        return self.delta / self.base.value if self.delta is not None and self.base.value else None

    @property
    def within_noise(self) -> bool | None:
        """Whether the two intervals meet; None where an interval is not known."""
        if self.low is None or self.high is None:
            return None
        return self.low <= 0 <= self.high

    def grew_beyond(self, limit: float) -> bool:
        """Whether it takes more by over ``limit`` of the base, whatever noise did."""
        if not self.base.value or self.delta is None:
            return False
        least = self.delta if self.low is None else self.low
        return least > limit * self.base.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """One module path in one phase."""

    path: str
    class_name: str  # of the new one, where there is one
    base_class: str | None  # where the class is another
    depth: int  # in the tree as shown
    parent: str | None
    presence: Presence
    cost: Change
    isolated: Change
    base: ModuleRow | None
    new: ModuleRow | None

    @property
    def name(self) -> str:
        """The last part of the path; the class for the root."""
        return self.path.rpartition(".")[2] or self.class_name

    @property
    def flip(self) -> Flip | None:
        """How the module alone changed, where its part of the step changed the other way.

        Both beyond noise: of such a module a figure alone says the reverse of what was gained.
        """
        alone, cost = self.isolated, self.cost
        if alone.within_noise is not False or cost.within_noise is not False:
            return None
        slower = (alone.delta or 0.0) > 0
        if slower == ((cost.delta or 0.0) > 0):
            return None
        return "slower alone" if slower else "faster alone"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that is not the same in the two recordings."""

    what: str
    base: str
    new: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two profiles' figures in one deployment and phase."""

    base_run: RunHead
    new_run: RunHead
    deployment: str
    phase: str
    step: Change  # µs
    base_step: StepTime | None
    new_step: StepTime | None
    rows: list[DifferenceRow]
    parts: list[tuple[str, float | None, float | None]]  # kind, µs in base, µs in new
    mismatches: list[Mismatch]


def read_difference(
    base: Connection, new: Connection, selection: Selection, order: Order = "change"
) -> Difference:
    """Read what changed from ``base`` to ``new``.

    :param selection: module, depth, deployment, phase, rank; its sort is not used.
    :raises CbTraceError: the two have no deployment and phase in common, or not what was named.
    """
    deployment, phase = _common_way(base, new, selection)
    wanted = Selection(deployment=deployment, phase=phase, rank=selection.rank, sort="path")
    sides = [read_comparison(connection, wanted) for connection in (base, new)]
    found = in_tree_order(
        _rows(*sides), module=selection.module, depth=selection.depth, key=_ORDERS[order]
    )
    steps = [side.step for side in sides]
    differs = mismatches(run_facts(base, selection.rank), run_facts(new, selection.rank))
    alike = steps_alike(differs)
    return Difference(
        base_run=sides[0].run,
        new_run=sides[1].run,
        deployment=sides[0].deployment,
        phase=sides[0].phase,
        step=Change(*(_step_figure(step if alike else None) for step in steps)),
        base_step=steps[0],
        new_step=steps[1],
        rows=[replace(row, depth=depth) for row, depth in found],
        parts=_parts(*sides) if alike else [],
        mismatches=differs,
    )


def common_ways(
    base: Connection, new: Connection, rank: int | None = None
) -> list[tuple[str, str]]:
    """Deployments and phases that both profiles have figures for, in the base's order.

    :raises CbTraceError: there is none.
    """
    found = [
        [
            (row["deployment"], row["phase"])
            for row in fetch(connection, "report_ways", run_id=chosen_run(connection, rank).run_id)
        ]
        for connection in (base, new)
    ]
    both = [way for way in found[0] if way in found[1]]
    if not both:
        has = [", ".join(f"{d} {p}" for d, p in ways) or "nothing" for ways in found]
        raise CbTraceError(
            f"the two profiles have no deployment and phase in common: {has[0]} against {has[1]}",
            hint="record both in the same phase, and in modes that share a deployment",
        )
    return both


def _common_way(base: Connection, new: Connection, selection: Selection) -> tuple[str, str]:
    ways = common_ways(base, new, selection.rank)
    named = (selection.deployment, selection.phase)
    fits = [way for way in ways if all(n in (None, w) for n, w in zip(named, way, strict=True))]
    if not fits:
        raise CbTraceError(
            f"the two profiles do not both have {' '.join(n for n in named if n)}",
            hint="both have: " + ", ".join(f"{d} {p}" for d, p in ways),
        )
    return fits[0]


# --- what is not the same -----------------------------------------------------------------------


def run_facts(connection: Connection, rank: int | None = None) -> dict[str, Any]:
    """Everything that is stored about the recording of a rank, and how its step was timed.

    The clock is the median over the bare steps, where it was read after them; the phases of a trace
    that does not name any are those that were found in it.
    """
    run_id = chosen_run(connection, rank).run_id
    found = fetch(connection, "report_run", run_id=run_id)[0]
    if found["phases"] is None:
        ways = (row["phase"] for row in fetch(connection, "report_ways", run_id=run_id))
        found["phases"] = ",".join(dict.fromkeys(way for way in ways if way != "step")) or None
    found[TIMED] = "under the profiler" if found["step_bare_ns"] is None else "bare"
    (clock,) = connection.execute(_CLOCK, [found["run_id"]]).fetchall()[0]
    return found if clock is None else found | {"sm_clock_mhz": round(clock)}


def mismatches(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[Mismatch]:
    """In what the two recordings differ, what matters most first; settings one by one.

    What only one of them tells is no difference of work or hardware, but of what is known.
    """
    kinds = {name: kind for kind, names in _KINDS for name in names}
    # The workload of somebody's trace is the name of its file.
    foreign = base.get("mode") is None and new.get("mode") is None
    return [
        Mismatch(what, _said(old), _said(young), kind if _known(name, base, new) else "other")
        for name, kind in kinds.items()
        if not (foreign and name == "workload")
        for what, old, young in _differing(name, base.get(name), new.get(name))
    ]


def steps_alike(differs: Iterable[Mismatch]) -> bool:
    """Whether the steps can be held against each other.

    A step of other phases is another step, and so are its parts: no change of one. Nor is what a
    profiler adds to one of the two.
    """
    return not any(item.what in (PHASES, TIMED) for item in differs)


def _known(name: str, base: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return base.get(name) is not None and new.get(name) is not None


def _differing(name: str, base: Any, new: Any) -> Iterable[tuple[str, Any, Any]]:
    if name == "settings":
        old, young = (_settings(value) for value in (base, new))
        keys = [key for key in {**old, **young} if old.get(key) != young.get(key)]
        return [(key, old.get(key), young.get(key)) for key in keys]
    if name == PHASES and _phases(base) == _phases(new):
        return []
    if name == "sm_clock_mhz" and base and new and abs(new / base - 1) <= _CLOCK_RATIO:
        return []
    if name == "l2_bytes":
        base, new = (found and f"{found / 2**20:.0f} MiB" for found in (base, new))
    return [] if base == new else [(_NAMES.get(name, name), base, new)]


def _phases(text: str | None) -> list[str] | None:
    """Without what the compiler or checkpointing does on its own: doing a forward again."""
    return None if text is None else [part for part in text.split(",") if part != "recompute"]


def _settings(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"settings": text}
    return found if isinstance(found, dict) else {"settings": text}


def _said(value: Any) -> str:
    return "not known" if value is None else str(value)


# --- modules ------------------------------------------------------------------------------------


def _rows(base: Comparison, new: Comparison) -> list[DifferenceRow]:
    """Every path of either, by path; what is gone at the end."""
    old = {row.path: row for row in base.rows}
    young = {row.path: row for row in new.rows}
    paths = [*young, *(path for path in old if path not in young)]
    return [_row(path, old.get(path), young.get(path)) for path in paths]


def _row(path: str, base: ModuleRow | None, new: ModuleRow | None) -> DifferenceRow:
    there = new or base
    assert there is not None
    other = base is not None and new is not None and base.class_name != new.class_name
    return DifferenceRow(
        path=path,
        class_name=there.class_name,
        base_class=base.class_name if base and other else None,
        depth=0,
        parent=there.parent,
        presence="both" if base and new else "added" if new else "removed",
        # What is not there takes nothing of the step; alone it takes no known time.
        cost=Change(*(_figure(row, "cost") if row else NOTHING for row in (base, new))),
        isolated=Change(_figure(base, "isolated"), _figure(new, "isolated")),
        base=base,
        new=new,
    )


def _figure(row: ModuleRow | None, name: str) -> Figure:
    """A figure of a row: none where a lower bound only is known."""
    if row is None or (name == "isolated" and row.partial):
        return Figure(None)
    return Figure(*(row.record.get(f"{name}{ending}_us") for ending in ("", "_low", "_high")))


def _step_figure(step: StepTime | None) -> Figure:
    if step is None:
        return Figure(None)
    return Figure(
        *(None if ns is None else ns / 1e3 for ns in (step.ns, step.low_ns, step.high_ns))
    )


def _parts(base: Comparison, new: Comparison) -> list[tuple[str, float | None, float | None]]:
    old, young = ({part.kind: part.ns / 1e3 for part in side.parts} for side in (base, new))
    kinds = dict.fromkeys([*old, *young])
    return [(kind, old.get(kind), young.get(kind)) for kind in kinds]


def _size(row: DifferenceRow) -> float:
    """How much a row moved; one that is on one side only, by all of it."""
    base, new = (figure.value or 0.0 for figure in (row.cost.base, row.cost.new))
    return -abs(new - base)


# Ascending; rows of equal rank stay by path.
_ORDERS: dict[Order, Callable[[DifferenceRow], Any]] = {
    "change": _size,
    "cost": lambda row: -max(row.cost.base.value or 0.0, row.cost.new.value or 0.0),
    "path": lambda _: 0,
}


def _minus(new: float | None, base: float | None) -> float | None:
    return None if new is None or base is None else new - base
