"""What a change would gain, from a profile's events: the conductor of ``cb-trace whatif``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cb_trace import analysis, attribution
from cb_trace.analysis.changes import Answer, Change, Kind, changed_cost, changed_step
from cb_trace.analysis.marginal import in_window, scaled_steps
from cb_trace.analysis.overheads import pooled, with_overheads
from cb_trace.analysis.residency import cache_of
from cb_trace.analysis.scaled import Scaled
from cb_trace.bundle import Deployment
from cb_trace.bundle_frames import table_frame
from cb_trace.errors import CbTraceError
from cb_trace.reporters.modules import find_module
from cb_trace.store import open_profile

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LARGEST_FACTOR = 1_000_000  # further on, nanoseconds of a long step no longer fit 64 bits
_FACTOR = re.compile(r"([0-9]*\.?[0-9]+)(x|%)?")


@dataclass(frozen=True, slots=True)
class Wish:
    """A change as a person asks for it.

    :raises CbTraceError: a factor that no step can be multiplied by.
    """

    kind: Kind
    path: str
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.factor <= LARGEST_FACTOR:  # nor if it is no number
            raise CbTraceError(
                f"a factor is from 0 to {LARGEST_FACTOR:,}, not {self.factor:g}",
                hint="as in --set h.0.mlp=0.5x",
            )

    @property
    def text(self) -> str:
        """As it is shown."""
        name = self.path or "the root"
        return f"{name} × {self.factor:g}" if self.kind == "set" else f"{self.kind} {name}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One change, or all of them together, in one deployment."""

    change: str
    deployment: Deployment
    now_ns: int
    then_ns: int
    low_ns: int  # bounds of then_ns
    high_ns: int
    # What the step would lose; of a module taken out its marginal cost. None where ``then_ns`` is a
    # prediction that has not seen the bare step, and so no change of it.
    saved_ns: int | None = None
    saved_low_ns: int | None = None
    saved_high_ns: int | None = None

    @property
    def within_noise(self) -> bool:
        """Whether what is saved cannot be told from nothing."""
        low, high = self.saved_low_ns, self.saved_high_ns
        return low is not None and high is not None and low <= 0 <= high and low < high


def parse_setting(text: str) -> Wish:
    """``PATH=0.5x`` (or ``50%``): the module's time times this.

    :raises CbTraceError: it has another form.
    """
    path, equals, value = text.rpartition("=")
    found = _FACTOR.fullmatch(value.strip())
    if not equals or not found:
        raise CbTraceError(
            f"--set wants PATH=FACTOR, not {text!r}", hint="as in --set h.0.mlp=0.5x"
        )
    factor = float(found[1]) / (100 if found[2] == "%" else 1)
    return Wish("set", path, factor)


def what_if(profile: Path, wishes: Sequence[Wish]) -> list[Outcome]:
    """The step under each change alone, and under all of them where there are several.

    :raises CbTraceError: no profile or module, two factors of one, or no bare step to hold to.
    """
    if not wishes:
        raise CbTraceError("nothing to change", hint="as in --remove h.0.attn")
    with open_profile(profile) as connection:
        run_id, device_type = _run(connection)
        module = _rows(connection, "module", "run_id = ?", run_id)
        ids = dict(module.select("path", "module_id").iter_rows())
        named = _once([Wish(w.kind, find_module(w.path, ids), w.factor) for w in wishes])
        sets = [[wish] for wish in named] + ([named] if len(named) > 1 else [])
        if device_type == "cpu":
            rows, bounds = (
                _rows(connection, table, "run_id = ?", run_id)
                for table in ("partition", "cost_bounds")
            )
            return [_on_cpu(rows, bounds, wishes, ids, module) for wishes in sets]
        steps = _recorded(connection, run_id, module).scaled()
    return [
        _outcome(scaled, deployment, together, ids, module)
        for together in sets
        for deployment, scaled in steps.items()
    ]


def _once(wishes: Sequence[Wish]) -> list[Wish]:
    """Each wish once; two factors of one module are not both meant."""
    once = list(dict.fromkeys(wishes))
    counts = Counter(wish.path for wish in once if wish.kind == "set")
    for path, count in counts.items():
        if count > 1:
            raise CbTraceError(f"--set gives {path or 'the root'} {count} factors", hint="give one")
    return once


def _on_cpu(
    partition: pl.DataFrame,
    bounds: pl.DataFrame,
    wishes: Sequence[Wish],
    ids: dict[str, int],
    module: pl.DataFrame,
) -> Outcome:
    if any(wish.kind in ("fuse", "overlap") for wish in wishes):
        raise CbTraceError("--fuse and --overlap need kernels on a device, and this ran on a CPU")
    found = changed_cost(partition, bounds, _changes(wishes, ids), module)
    return _said(wishes, "eager", found)


def with_overheads_of(profile: Path, others: Sequence[Path]) -> Outcome:
    """The eager step with the host overheads of other recordings in place of its own.

    Their overheads are pooled, operator by operator, as the performance-model papers share theirs
    between workloads; ``now_ns`` is the bare step, which the prediction has not seen.

    :raises CbTraceError: no profile, no eager step on a device, or others without overheads.
    """
    if not others:
        raise CbTraceError("there are no other recordings to take host overheads from")
    with open_profile(profile) as connection:
        run_id, device_type = _run(connection)
        module = _rows(connection, "module", "run_id = ?", run_id)
        recorded = _recorded(connection, run_id, module)
    if device_type == "cpu" or "eager" not in recorded.bare:
        raise CbTraceError(f"{profile} has no eager step on a device")
    table = pooled([_overheads(other) for other in others])
    steps = [in_window(p, recorded.parts, bare=False) for p in analysis.programs(recorded.eager)]
    lengths = [with_overheads(program, table).step_ns() for program in steps]
    count = f"{len(others)} other recording{'s' * (len(others) > 1)}"
    bare = recorded.bare["eager"].median_ns
    figures = (round(ns) for ns in (np.median(lengths), min(lengths), max(lengths)))
    return Outcome(f"host overheads of {count}", "eager", bare, *figures)


def _overheads(profile: Path) -> pl.DataFrame:
    with open_profile(profile) as connection:
        found = _later_rows(connection, "overhead", "count > ?", 0)
    if not found.height:
        raise CbTraceError(
            f"{profile} holds no host overheads",
            hint="they come from a recording of eager steps on a device; ingest it again",
        )
    return found


def _outcome(
    scaled: Scaled,
    deployment: Deployment,
    wishes: Sequence[Wish],
    ids: dict[str, int],
    module: pl.DataFrame,
) -> Outcome:
    return _said(wishes, deployment, changed_step(scaled, _changes(wishes, ids), module))


def _changes(wishes: Sequence[Wish], ids: dict[str, int]) -> list[Change]:
    return [Change(wish.kind, ids[wish.path], wish.factor) for wish in wishes]


def _said(wishes: Sequence[Wish], deployment: Deployment, found: Answer) -> Outcome:
    text = wishes[0].text if len(wishes) == 1 else "all of these"
    return Outcome(text, deployment, *astuple(found))


def _run(connection: DuckDBPyConnection) -> tuple[str, str | None]:
    found = connection.execute(
        "SELECT run.run_id, run.device_type FROM run JOIN trace USING (run_id) "
        "WHERE trace.role = 'context' ORDER BY trace.rank, trace.trace_id LIMIT 1"
    ).fetchall()
    if not found:
        raise CbTraceError(
            "this profile holds no recording of ours to simulate",
            hint="record one with 'cb-trace profile'",
        )
    return found[0]


def _rows(
    connection: DuckDBPyConnection, table: str, condition: str, value: object
) -> pl.DataFrame:
    query = f'SELECT * FROM "{table}" WHERE {condition}'  # noqa: S608  (both are ours)
    return pl.DataFrame(connection.sql(query, params=[value]))


def _later_rows(
    connection: DuckDBPyConnection, table: str, condition: str, value: object
) -> pl.DataFrame:
    """Rows of a table that profiles of earlier versions do not have: none there."""
    tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    if table not in tables:
        return table_frame(table, [])
    return _rows(connection, table, condition, value)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a profile holds to simulate: the bare steps, and the events of each deployment."""

    bare: dict[Deployment, analysis.BareStep]
    eager: analysis.StepEvents
    graph: analysis.StepEvents
    parts: analysis.Parts
    alone_ns: dict[int, float]  # of kernels of a step on several streams, by the sequence run
    runs: pl.DataFrame | None  # when they ran in profiled runs of its graph

    def scaled(self) -> dict[Deployment, Scaled]:
        """The programs of each deployment that was timed bare, scaled to it."""
        events = {"eager": self.eager, "graph": self.graph}
        steps = {name: analysis.programs(events[name]) for name in self.bare}
        parts = analysis.with_together(self.parts, steps, self.bare, self.alone_ns, self.runs)
        return {
            name: scaled_steps(steps[name], name, target, parts)
            for name, target in self.bare.items()
        }


def _recorded(connection: DuckDBPyConnection, run_id: str, module: pl.DataFrame) -> _Recorded:
    samples = _rows(connection, "step_sample", "kind = 'bare' AND run_id = ?", run_id)
    bare = {
        deployment: analysis.interval_stats(rows["ns"].to_numpy())
        for (deployment,), rows in samples.sort("deployment").group_by(
            "deployment", maintain_order=True
        )
    }
    if not bare:
        raise CbTraceError("this profile has no bare step to hold to", hint="record it again")
    recorded = _trace(connection, run_id, "context")
    assert recorded is not None
    captured = _trace(connection, run_id, "capture")
    events = _events(connection, recorded, module)
    eager = events if captured is None else _events(connection, captured, module)
    of_run = ("run_id = ?", run_id)
    parts = analysis.isolated_parts(
        analysis.Measured(
            replay=_rows(connection, "replay", *of_run),
            replay_kernel=_rows(connection, "replay_kernel", "replay_id >= ?", 0),
            module_call=eager.module_call,
            module=module,
            parameter=_later_rows(connection, "parameter", *of_run),
            host_span=_later_rows(connection, "host_span", *of_run),
            host_window=_later_rows(connection, "host_window", *of_run),
            cost=_rows(connection, "cost", *of_run),
            memory=_rows(connection, "memory", *of_run),
            step_sample=_rows(connection, "step_sample", *of_run),
            cache_bytes=cache_of(_rows(connection, "run", *of_run)),
        )
    )
    alone_ns = _times_alone(connection, run_id, recorded, events)
    runs = _graph_times(connection, run_id, recorded, events)
    return _Recorded(bare, eager, events, parts, alone_ns, runs)


def _times_alone(
    connection: DuckDBPyConnection, run_id: str, recorded: int, found: analysis.StepEvents
) -> dict[int, float]:
    """As the ingest found it, which does not keep it; nothing where all runs on one stream."""
    sequence = _trace(connection, run_id, "sequence")
    inside = found.kernel.drop_nulls("step")
    if sequence is None or inside.select("device", "stream").n_unique() < 2:
        return {}
    attributed = attribution.Attributed(found.module_call, found.kernel_module)
    in_turn = attribution.serial(_trace_events(connection, recorded))
    reference = attribution.reference(in_turn, attributed)
    times = attribution.sequence_times(_trace_events(connection, sequence), reference)
    return analysis.times_alone(times)


def _graph_times(
    connection: DuckDBPyConnection, run_id: str, recorded: int, found: analysis.StepEvents
) -> pl.DataFrame | None:
    graph = _trace(connection, run_id, "graph")
    if graph is None:
        return None
    attributed = attribution.Attributed(found.module_call, found.kernel_module)
    reference = attribution.reference(_trace_events(connection, recorded), attributed)
    return attribution.graph_times(_trace_events(connection, graph), reference)


def _trace_events(connection: DuckDBPyConnection, trace_id: int) -> attribution.TraceEvents:
    tables = attribution.TraceEvents.__dataclass_fields__
    return attribution.TraceEvents(
        **{table: _rows(connection, table, "trace_id = ?", trace_id) for table in tables}
    )


def _trace(connection: DuckDBPyConnection, run_id: str, role: str) -> int | None:
    query = "SELECT min_by(trace_id, (rank, trace_id)) FROM trace WHERE run_id = ? AND role = ?"
    found: int | None = connection.execute(query, [run_id, role]).fetchall()[0][0]
    return found


def _events(
    connection: DuckDBPyConnection, trace_id: int, module: pl.DataFrame
) -> analysis.StepEvents:
    names = ("kernel", "module_call", "launch", "op", "step")
    tables = {name: _rows(connection, name, "trace_id = ?", trace_id) for name in names}
    inside = "kernel_id IN (SELECT kernel_id FROM kernel WHERE trace_id = ?)"
    owned = _rows(connection, "kernel_module", inside, trace_id)
    return analysis.StepEvents(module=module, kernel_module=owned, **tables)
