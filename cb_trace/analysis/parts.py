"""What the modules measured alone say about the step: host factor, gap in a graph, their sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from cb_trace.analysis.carried import longest_alone
from cb_trace.analysis.host_alone import (
    HOST_BOUND,
    Factors,
    alone,
    host_factors,
    run_inside,
)
from cb_trace.analysis.host_cold import HostCold, host_cold
from cb_trace.analysis.meeting import Met
from cb_trace.analysis.program import Owner
from cb_trace.analysis.residency import Residency, residency
from cb_trace.analysis.stats import FloatArray, interval_stats
from cb_trace.analysis.to_bare import StepWindow
from cb_trace.bundle import ONE_STREAM, Deployment

DEFAULT_GAP_NS = 1_000.0
# What parents do between operators, over what all do: a profiler slows it more. By clocks around
# the modules of 40 eager recordings (H200) what parents do themselves takes 0.3 to 1.1 of it, in
# the middle 0.6; most where they have operators of their own.
GLUE_RATIO = 0.6
HOST_LIMIT_NS = 10_000  # a graph of less work, back to back, takes what the host takes to launch it


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The frames that parts are read off (columns of :mod:`cb_trace.columns`), of one run.

    Those that may be None are of what not every recording has.
    """

    replay: pl.DataFrame
    replay_kernel: pl.DataFrame
    module_call: pl.DataFrame
    module: pl.DataFrame
    parameter: pl.DataFrame | None = None
    host_span: pl.DataFrame | None = None
    host_window: pl.DataFrame | None = None
    host_tour: pl.DataFrame | None = None
    cost: pl.DataFrame | None = None
    memory: pl.DataFrame | None = None
    step_sample: pl.DataFrame | None = None
    cache_bytes: int | None = None  # of the device's last level


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Figures of modules alone. ``None``: not measured, and the default stands in."""

    host_ratio: float | None = None  # bare host work over profiled host work, of all together
    factors: Factors = field(default_factory=Factors)  # of modules' own host work
    graph_gap_ns: float | None = None  # between two kernels of a CUDA graph
    together: float | None = None  # how little kernels that run at once feel each other
    fitted: bool = False  # ``together`` to the bare step as a graph
    launch_ns: float = 0.0  # of a whole graph, beside its kernels and gaps
    alone_ns: Mapping[int, float] = field(
        default_factory=dict
    )  # device, the longer of warm and cold
    likes: Mapping[int, int] = field(default_factory=dict)  # the measurement that modules share
    # Of the host in the bare step, in modules' own forward code; no figure of modules alone.
    spent_ns: Mapping[int, float] = field(default_factory=dict)
    window: StepWindow | None = None  # of those bare steps
    # Of the host in modules without others inside, called alone but in the order of the step; and
    # in loops of themselves, of those that the host bounds.
    toured_ns: Mapping[int, float] = field(default_factory=dict)
    looped_ns: Mapping[int, float] = field(default_factory=dict)
    cold: HostCold | None = None  # host time of the bare step that is of cold code
    residency: Residency | None = None  # in the last-level cache
    isolation_ns: Mapping[str, int] = field(default_factory=dict)  # innermost alone, by phase
    # The bare graph of a step on several streams with all on one; no figure of modules alone.
    one_stream_ns: int | None = None
    met: Met | None = None  # profiled runs of that step's graph; no figure of modules alone

    def host(self, owners: Sequence[Owner]) -> FloatArray:
        """Factors on each owner's profiled host work, shape (owners, 2): in operators, and between.

        Its own where it was measured, in the forward, else that of all together, bounded by what is
        known of it; between the operators of a parent that of parents. 1 where none was measured.
        """
        rest, glue = 1.0, 1.0
        if self.host_ratio is not None:
            rest, glue = self.host_ratio, GLUE_RATIO * self.host_ratio
        found = []
        for module, phase in owners:
            if module is None or phase != "forward":
                found.append((rest, rest))
            elif module in self.factors.own:
                found.append((self.factors.own[module],) * 2)
            else:
                most = self.factors.most.get(module)
                found.append((rest, glue) if most is None else (min(rest, most),) * 2)
        return np.array(found).reshape(-1, 2)

    @property
    def gap_ns(self) -> float:
        """The gap between kernels of a graph."""
        return DEFAULT_GAP_NS if self.graph_gap_ns is None else self.graph_gap_ns

    def measured(self, deployment: Deployment) -> bool:
        """Whether what a prediction of the deployment needs was measured."""
        return (self.graph_gap_ns if deployment == "graph" else self.host_ratio) is not None


def isolated_parts(measured: Measured) -> Parts:
    """Read the parts off the replays of forward calls, and what the bare step's host spends.

    The host ratio is that of wall alone to duration under the profiler, over the innermost modules
    that are bound by the host alone (over all innermost ones where none is). Gap and launch of a
    graph are the line through (kernels, wall in the graph − kernel time), over all modules that
    keep the device busy for longer than the host takes to launch a graph: the median slope of all
    pairs, for a module that runs on several streams lies far off.
    """
    replay, module_call, module = measured.replay, measured.module_call, measured.module
    forward = replay.filter((pl.col("phase") == "forward") & pl.col("skipped").is_null())
    hot = forward.filter(pl.col("condition") == "hot").drop_nulls("median_ns")
    inner = _innermost(hot, module)
    kernels = _kernels(measured.replay_kernel)
    gap, launch = _graph_line(forward, hot, kernels)
    whole = _all_calls(replay)
    every = alone(
        forward.filter(condition="hot").join(whole, on="module_id", how="semi"), module_call
    )
    inner_whole = inner.join(whole, on="module_id", how="semi")
    toured = {} if measured.host_tour is None else _spent(measured.host_tour)
    ran = set(module_call.drop_nulls("step")["module_id"].unique().to_list())
    parents = run_inside(module, ran)
    toured = {one: ns for one, ns in toured.items() if one not in parents}
    spent = {} if measured.host_span is None else _spent(measured.host_span)
    return Parts(
        host_ratio=_host_ratio(inner, module_call),
        factors=host_factors(every, module, ran),
        graph_gap_ns=gap,
        launch_ns=launch,
        alone_ns=longest_alone(forward, inner_whole),
        likes=dict(inner_whole.select("module_id", "measured_id").iter_rows()),
        isolation_ns=_isolation(replay, module),
        spent_ns=spent,
        window=_window(measured.host_window),
        toured_ns=toured,
        looped_ns={one: every[one].wall_ns for one in toured if one in every and every[one].bound},
        cold=host_cold(spent, every, module, _by_module(hot, kernels), ran) if spent else None,
        residency=_residency(measured, inner_whole),
        one_stream_ns=None if measured.step_sample is None else _one_stream(measured.step_sample),
    )


def _all_calls(replay: pl.DataFrame) -> pl.DataFrame:
    """Modules all of whose forward calls were measured: some of them tell nothing of a step."""
    hot = replay.filter((pl.col("phase") == "forward") & (pl.col("condition") == "hot"))
    partly = hot.filter(pl.col("skipped").is_not_null()).select("module_id")
    return hot.select("module_id").unique().join(partly, on="module_id", how="anti")


def _residency(measured: Measured, inner: pl.DataFrame) -> Residency | None:
    cost, memory = measured.cost, measured.memory
    if cost is None or memory is None:
        return None
    return residency(
        measured.cache_bytes, inner, measured.module, cost, memory, parameter=measured.parameter
    )


def _spent(host: pl.DataFrame) -> dict[int, float]:
    """By module, in the bare step or the tour; what the step spends outside of them is left out."""
    rows = host.drop_nulls("module_id")
    return dict(rows.select("module_id", pl.col("ns").cast(float)).iter_rows())


def _window(host_window: pl.DataFrame | None) -> StepWindow | None:
    if host_window is None or host_window.is_empty():
        return None
    names = StepWindow.__dataclass_fields__
    return StepWindow(**host_window.select(*names).row(0, named=True))


def _one_stream(step_sample: pl.DataFrame) -> int | None:
    samples = step_sample.filter(kind=ONE_STREAM, deployment="graph")["ns"].to_numpy()
    return interval_stats(samples).median_ns if samples.size else None


def _isolation(replay: pl.DataFrame, module: pl.DataFrame) -> dict[str, int]:
    """The innermost modules alone, added up over the calls of a step, by phase."""
    hot = replay.filter((pl.col("condition") == "hot") & pl.col("skipped").is_null())
    found = {}
    for (phase,), rows in hot.drop_nulls("median_ns").group_by("phase", maintain_order=True):
        inner = _innermost(rows, module)
        found[str(phase)] = int((inner["median_ns"] * inner["calls"]).sum())
    return found


def _innermost(hot: pl.DataFrame, module: pl.DataFrame) -> pl.DataFrame:
    """Replays of modules below which none was replayed."""
    parents = module.join(hot.select("module_id").unique(), on="module_id")["parent_id"]
    above: set[int] = set()
    up = dict(module.select("module_id", "parent_id").iter_rows())
    for parent in parents.drop_nulls().unique().to_list():
        here: int | None = parent
        while here is not None and here not in above:
            above.add(here)
            here = up.get(here)
    return hot.filter(~pl.col("module_id").is_in(sorted(above)))


def _host_ratio(inner: pl.DataFrame, module_call: pl.DataFrame) -> float | None:
    calls = module_call.drop_nulls("step").filter(pl.col("phase") == "forward")
    profiled = calls.group_by("module_id").agg(profiled=pl.col("dur_ns").mean())
    rows = inner.join(profiled, on="module_id").sort("replay_id")  # sums of floats have an order
    bound = rows.filter(pl.col("median_ns") > HOST_BOUND * pl.col("busy_ns"))
    rows = bound if bound.height else rows
    wall = (rows["median_ns"] * rows["calls"]).sum()
    length = float((rows["profiled"] * rows["calls"]).sum())
    return float(wall) / length if length > 0 else None


def _kernels(replay_kernel: pl.DataFrame) -> pl.DataFrame:
    """How many kernels a call launches alone: ``measured_id, kernels``."""
    return (
        replay_kernel.group_by("replay_id", "iteration")
        .len()
        .group_by("replay_id")
        .agg(kernels=pl.col("len").median())
        .rename({"replay_id": "measured_id"})
    )


def _by_module(hot: pl.DataFrame, kernels: pl.DataFrame) -> dict[int, float]:
    rows = hot.join(kernels, on="measured_id").group_by("module_id").agg(pl.col("kernels").max())
    return dict(rows.iter_rows())


def _graph_line(
    forward: pl.DataFrame, hot: pl.DataFrame, counts: pl.DataFrame
) -> tuple[float | None, float]:
    graph = forward.filter(pl.col("condition") == "graph").drop_nulls("median_ns")
    key = ["module_id", "call_index"]
    rows = (
        hot.drop_nulls("kernel_ns")
        .join(counts, on="measured_id")
        .join(graph.select(*key, graph_ns="median_ns"), on=key)
        .sort(key)
        .unique("measured_id", keep="first", maintain_order=True)
    )
    long = rows.filter(pl.col("kernel_ns") >= HOST_LIMIT_NS)
    rows = long if long["kernels"].n_unique() > 1 else rows
    kernels = rows["kernels"].to_numpy().astype(np.float64)
    if np.unique(kernels).size < 2:
        return None, 0.0
    over = (rows["graph_ns"] - rows["kernel_ns"]).to_numpy().astype(np.float64)
    first, second = np.triu_indices(kernels.size, 1)
    apart = kernels[second] - kernels[first]
    some = apart != 0
    gap = max(0.0, float(np.median((over[second] - over[first])[some] / apart[some])))
    return gap, float(np.median(over - gap * kernels))
