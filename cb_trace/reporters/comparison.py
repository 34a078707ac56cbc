"""What ``cb-trace compare`` shows: the module tree with its figures, read from a profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from cb_trace.errors import CbTraceError
from cb_trace.reporters.modules import find_module, in_tree_order
from cb_trace.reporters.safe_text import plain
from cb_trace.reporters.sizes import with_sizes
from cb_trace.reporters.sql_files import fetch
from cb_trace.reporters.terms import Term, read_terms

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

Sort = Literal["cost", "isolated", "error", "path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """The recording the figures come from; times in ns, None where not measured."""

    run_id: str
    workload: str | None
    mode: str | None
    dtype: str | None
    device_name: str | None
    torch_version: str | None
    created_at: Any
    step_bare_ns: int | None
    step_bare_low_ns: int | None
    step_bare_high_ns: int | None
    step_profiled_ns: int | None
    dilation: float | None
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """One module in one phase. ``record`` is its whole row of view ``compare``."""

    path: str
    class_name: str
    phase: str
    parent: str | None
    depth: int  # in the tree as shown
    cost_us: float | None
    share: float | None  # of the step
    isolated_us: float | None
    error_ratio: float | None
    error_low: float | None  # bounds of error_ratio from the intervals of both figures
    error_high: float | None
    spread: float | None
    busy_us: float | None  # device time, union; shown where no step was timed
    skipped: str | None  # why it was not measured alone
    record: dict[str, Any]

    @property
    def partial(self) -> bool:
        """Whether the isolated figure leaves out a module below that was not measured."""
        return self.record.get("isolated_from") == "partial"

    @property
    def name(self) -> str:
        """The last part of the path; the class for the root."""
        return self.path.rpartition(".")[2] or self.class_name

    @property
    def within_noise(self) -> bool:
        """Whether the two figures cannot be told apart."""
        if self.error_low is None or self.error_high is None:
            return False
        return self.error_low <= 0 <= self.error_high

    def exceeds(self, limit: float) -> bool:
        """Whether the error is beyond ``limit`` on either side, and not by noise."""
        if self.error_ratio is None or self.partial:
            return False
        if self.error_low is None or self.error_high is None:
            return abs(self.error_ratio) > limit
        return self.error_low > limit or self.error_high < -limit


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The step of one deployment, which the costs sum to."""

    deployment: str
    ns: int
    bare: bool  # timed with no profiler attached; else the mean window under one
    low_ns: int | None
    high_ns: int | None
    dilation: float | None  # of the deployment that was profiled
    predicted_ns: int | None = None  # from the modules alone, by the simulator
    kernel_sum_ns: int | None = None  # durations of all kernels, added up
    isolation_sum_ns: int | None = None  # isolated times of the innermost modules, added up
    one_stream_ns: int | None = None  # of a step on several streams: all on one, bare
    one_stream_low_ns: int | None = None
    one_stream_high_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of time in the step."""

    kind: str
    ns: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A module that was not measured alone."""

    path: str
    class_name: str
    phase: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unattributed:
    """Device time no module can be given, over all recorded steps."""

    reason: str
    kernels: int
    ns: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something a reader of the figures must know."""

    reason: str
    detail: str
    path: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that is shown; ``rows`` in the order of the tree, parents first."""

    run: RunHead
    deployment: str
    phase: str
    steps: list[StepTime]  # of all deployments
    rows: list[ModuleRow]
    parts: list[Part]
    skipped: list[Skipped]
    unattributed: list[Unattributed]
    notes: list[Note]
    verdict: str | None  # on the module that was asked for
    asked: bool = False  # for one module
    terms: list[Term] = field(default_factory=list)  # of its error
    phases_alone: list[str] = field(default_factory=list)  # in which modules were measured alone
    ranks: list[int] = field(default_factory=list)  # of the recordings that the profile holds

    @property
    def step(self) -> StepTime | None:
        """The step shown."""
        return next((step for step in self.steps if step.deployment == self.deployment), None)

    @property
    def replayed(self) -> bool:
        """Whether any module shown was measured alone, or was to be."""
        return any(row.isolated_us is not None or row.skipped for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a profile to show, and in what order."""

    module: str | None = None
    depth: int | None = None
    sort: Sort = "cost"
    deployment: str | None = None  # default: the first of eager, graph that was measured
    phase: str | None = None  # default: step where it was recorded, else forward
    rank: int | None = None  # default: the lowest


def read_comparison(connection: Connection, selection: Selection) -> Comparison:
    """Read a profile's comparison.

    :raises CbTraceError: the selection names a deployment, phase or module that is not there.
    """
    run = chosen_run(connection, selection.rank)
    deployment = _choice(connection, run, "deployment", selection.deployment, ("eager", "graph"))
    given = {"run_id": run.run_id}
    way = given | {"deployment": deployment}
    records = fetch(connection, "compare_rows", **way)
    phases = list(dict.fromkeys(r["phase"] for r in records))
    phase = _chosen("phase", selection.phase, phases, ("step", "forward"))
    skipped = [Skipped(*r.values()) for r in fetch(connection, "compare_skipped", **given)]
    reasons = {(s.path, s.phase): s.reason for s in skipped}
    shown = [record for record in records if record["phase"] == phase]
    _check_module(connection, run, selection.module, shown, phase)
    _link_containers(shown)
    parts = _parts(connection, run, deployment)
    steps = [StepTime(**r) for r in fetch(connection, "compare_steps", **given)]
    step = next((step for step in steps if step.deployment == deployment), None)
    rows = _arranged([_module_row(record, step, reasons) for record in shown], selection)
    asked = bool(rows) and selection.module is not None
    return Comparison(
        run=run,
        deployment=deployment,
        phase=phase,
        steps=steps,
        rows=rows,
        parts=parts,
        skipped=skipped,
        unattributed=[
            Unattributed(r["reason"] or "unknown", r["kernels"], r["ns"])
            for r in fetch(connection, "compare_unattributed", **given)
        ],
        notes=[
            Note(r["reason"], with_sizes(r["detail"]), r["path"], r["count"])
            for r in fetch(connection, "compare_notes", **given)
        ],
        verdict=rows[0].record["verdict"] if asked else None,
        asked=selection.module is not None,
        terms=read_terms(connection, path=rows[0].path, phase=phase, **way) if asked else [],
        phases_alone=[
            p
            for p in phases
            if any(r["phase"] == p and r["isolated_us"] is not None for r in records)
        ],
        ranks=_ranks(connection),
    )


def chosen_run(connection: Connection, rank: int | None = None) -> RunHead:
    """The recording of a rank, by default of the lowest.

    :raises CbTraceError: there is none.
    """
    found = fetch(connection, "compare_run", rank=rank)
    if not found and rank is not None:
        raise CbTraceError(f"this profile holds no rank {rank}", hint="leave --rank out")
    if not found:
        raise CbTraceError("this profile holds no recording", hint="ingest a bundle or a trace")
    return RunHead(**found[0])


def _ranks(connection: Connection) -> list[int]:
    found = (row["rank"] for row in fetch(connection, "compare_run", rank=None))
    return [rank for rank in found if rank is not None]


def _choice(
    connection: Connection, run: RunHead, what: str, wanted: str | None, order: Sequence[str]
) -> str:
    found = connection.execute("SELECT deployment FROM _deployment WHERE run_id = ?", [run.run_id])
    return _chosen(what, wanted, [value for (value,) in found.fetchall()], order)


def _chosen(what: str, wanted: str | None, present: Sequence[str], order: Sequence[str]) -> str:
    if wanted is not None and wanted not in present:
        there = ", ".join(sorted(present)) or "none"
        raise CbTraceError(f"no {what} {wanted!r} in this profile", hint=f"there is: {there}")
    if wanted is not None:
        return wanted
    ranked = [value for value in order if value in present] + sorted(present)
    return ranked[0] if ranked else order[-1]


def _check_module(
    connection: Connection,
    run: RunHead,
    module: str | None,
    shown: Sequence[dict[str, Any]],
    phase: str,
) -> None:
    """Tell a module that did nothing in this phase from one that is not there."""
    if module is None:
        return
    query = "SELECT path FROM module WHERE run_id = ?"
    paths = {path for (path,) in connection.execute(query, [run.run_id]).fetchall()}
    found = find_module(module, paths)
    if all(record["path"] != found for record in shown):
        raise CbTraceError(
            f"module {plain(module, 80)!r} did nothing in the phase {phase}",
            hint="'cb-trace query PROFILE module_tree' has the phases of each",
        )


def _link_containers(records: Sequence[dict[str, Any]]) -> None:
    """Let a container that is never called point to the first call of what it holds."""
    by_path = {record["path"]: record for record in records}
    for record in reversed(records):  # children come after their parents
        parent = by_path.get(record["parent_path"])
        if parent is None or parent["calls"] or record["ts_ns"] is None:
            continue
        if parent["ts_ns"] is None or record["ts_ns"] < parent["ts_ns"]:
            for column in ("ts_ns", "dur_ns", "perfetto_url"):
                parent[column] = record[column]


def _module_row(
    record: dict[str, Any], step: StepTime | None, skipped: dict[tuple[str, str], str]
) -> ModuleRow:
    bounds = _error_bounds(record)
    cost = record["cost_us"]
    return ModuleRow(
        path=record["path"],
        class_name=record["class"] or "",
        phase=record["phase"],
        parent=record.pop("parent_path"),
        depth=0,
        cost_us=cost,
        share=cost * 1000 / step.ns if cost is not None and step and step.ns else None,
        isolated_us=record["isolated_us"],
        error_ratio=record["error_ratio"],
        error_low=bounds[0],
        error_high=bounds[1],
        spread=record["spread"],
        busy_us=record["busy_us"],
        skipped=skipped.get((record["path"], record["phase"])),
        record=record,
    )


def _error_bounds(record: dict[str, Any]) -> tuple[float | None, float | None]:
    """Bounds of the error: it holds 0 where the verdict finds no difference beyond noise."""
    names = ("isolated_low_us", "isolated_high_us", "cost_low_us", "cost_high_us")
    low, high, shortest, longest = (record.get(name) for name in names)
    if low is None or high is None or shortest is None or not longest:
        return None, None
    return low / longest - 1, high / shortest - 1 if shortest > 0 else math.inf


def _parts(connection: Connection, run: RunHead, deployment: str) -> list[Part]:
    found = fetch(connection, "compare_parts", run_id=run.run_id, deployment=deployment)
    whole = sum(r["ns"] for r in found)
    return [Part(r["kind"], r["ns"], r["ns"] / whole if whole else None) for r in found]


# --- the tree -----------------------------------------------------------------------------------


def _arranged(rows: Sequence[ModuleRow], selection: Selection) -> list[ModuleRow]:
    """Rows in tree order, siblings sorted, cut to a subtree and a depth."""
    found = in_tree_order(
        rows, module=selection.module, depth=selection.depth, key=_SORTS[selection.sort]
    )
    return [replace(row, depth=depth) for row, depth in found]


def _falling(value: Callable[[ModuleRow], float | None]) -> Callable[[ModuleRow], Any]:
    """Largest first, what was not measured last; ties keep the model's order."""

    def key(row: ModuleRow) -> tuple[bool, float]:
        figure = value(row)
        return figure is None, -(figure or 0.0)

    return key


_SORTS: dict[Sort, Callable[[ModuleRow], Any]] = {
    "cost": _falling(lambda row: row.busy_us if row.cost_us is None else row.cost_us),
    "isolated": _falling(lambda row: row.isolated_us),
    "error": _falling(lambda row: None if row.error_ratio is None else abs(row.error_ratio)),
    "path": lambda row: _natural(row.path.split(".")),
}


def _natural(parts: Iterable[str]) -> list[tuple[bool, int, str]]:
    """Numbers by value: ``h.2`` before ``h.10``."""
    return [
        (False, int(part), "") if part.isascii() and part.isdigit() else (True, 0, part)
        for part in parts
    ]
