"""Run HolisticTraceAnalysis on one trace and write what it finds: a program of its own.

Started by path (``python -P worker.py REQUEST``) in an empty folder, never imported by the rest:
HTA takes a second to import, logs to stdout, warns, and reads settings from the current folder.
REQUEST is a JSON file; the results are Parquet files and ``summary.json`` beside it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

STEP = "ProfilerStep"
NUMBERS = ("index", "ts", "dur", "end", "stream", "correlation", "index_correlation")
SYMBOLS, PLACES = ("cat", "name"), ("pid", "tid")
OPTIONAL = ("iteration", "wait_on_stream", "wait_on_cuda_event_record_corr_id")
NOTHING = "HTA sees no device activity in the trace"
EVERYTHING = 1_000_000_000  # more kernel names than a trace holds: HTA must not fold any away


class Study:
    """One reading of one trace.

    :ivar failures: what HTA could not do, one ``(analysis, reason)`` each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures: list[tuple[str, str]] = []
        self.summary: dict[str, Any] = {}
        self.analysis: Any = None

    def attempt(self, name: str, action: Callable[[], None]) -> bool:
        """Do one analysis; whatever HTA raises becomes a reason (its asserts are many)."""
        try:
            action()
        except Exception as error:
            self.failures.append((name, reason(error)))
            return False
        return True

    @property
    def frame(self) -> pd.DataFrame:
        """HTA's event table of the one rank."""
        table: pd.DataFrame = self.analysis.t.traces[0]
        return table

    def load(self, trace: str) -> None:
        """Parse the file. The last step counts: HTA leaves it out by default, we do not."""
        from hta.trace_analysis import TraceAnalysis

        self.analysis = TraceAnalysis(
            trace_files={0: trace}, trace_dir=str(self.folder), include_last_profiler_step=True
        )
        self.summary["origin_us"] = int(self.analysis.t.min_ts)
        self.analysis.t.traces[0] = tame(self.frame)
        self._write_events()

    def _write_events(self) -> None:
        """Every row that HTA takes for device work."""
        device = self.frame[self.frame["stream"].ne(-1)]
        if device.empty:
            raise ValueError(NOTHING)
        names = self.symbols()
        starts, origin = split_us(device["ts"]), split_us(pd.Series([self.analysis.t.min_ts]))
        out = {
            "event_index": device["index"].astype("int64"),
            "category": device["cat"].map(names).astype("string"),
            "name": device["name"].map(names).astype("string"),
            "correlation": device["correlation"].astype("int64"),
            "stream": device["stream"].astype("int64"),
            "start_ns": starts + int(origin[0]),
            "dur_ns": split_us(device["dur"]),
            "linked": device["index_correlation"] > 0,
        }
        self.write("events", pd.DataFrame(out))

    def symbols(self) -> dict[int, str]:
        """Names by HTA's number for them."""
        return dict(enumerate(self.analysis.t.symbol_table.get_sym_table()))

    def temporal(self) -> None:
        """Busy and idle over all streams."""
        row = self.analysis.get_temporal_breakdown(visualize=False)
        named = {
            "kernel_time(us)": "span_ns",
            "compute_time(us)": "compute_ns",
            "non_compute_time(us)": "non_compute_ns",
            "idle_time(us)": "idle_ns",
        }
        self.write(
            "temporal", pd.DataFrame({new: split_us(row[old]) for old, new in named.items()})
        )

    def idle(self) -> None:
        """Idle time by stream and cause."""
        table, counts = self.analysis.get_idle_time_breakdown(
            ranks=[0], visualize=False, show_idle_interval_stats=True
        )
        counts = counts.reset_index()[["stream", "idle_category", "count"]]
        table = table.merge(counts, on=["stream", "idle_category"], how="left")
        out = {
            "stream": table["stream"].astype("int64"),
            "category": table["idle_category"],
            "intervals": table["count"].fillna(0).astype("int64"),
            "ns": split_us(table["idle_time"]),
        }
        self.write("idle", pd.DataFrame(out))

    def kernels(self) -> None:
        """Kernel time by type and by name, memory kernels included."""
        types, names = self.analysis.get_gpu_kernel_breakdown(
            visualize=False, duration_ratio=1.0, num_kernels=EVERYTHING, include_memory_kernels=True
        )
        self.write(
            "kernel_types",
            pd.DataFrame({"kernel_type": types["kernel_type"], "ns": split_us(types["sum"])}),
        )
        counted = self.frame[self.frame["stream"].ne(-1)]["name"].map(self.symbols()).value_counts()
        out = {
            "kernel_type": names["kernel_type"],
            "name": names["name"],
            "kernels": names["name"].map(counted).fillna(0).astype("int64"),
            "sum_ns": split_us(names["sum (us)"]),
            "min_ns": split_us(names["min (us)"]),
            "max_ns": split_us(names["max (us)"]),
        }
        self.write("kernels", pd.DataFrame(out))

    def overlap(self) -> None:
        """How much of the communication runs beside computation."""
        percent = float(self.analysis.get_comm_comp_overlap(visualize=False).iloc[0, 1])
        self.summary["overlap_ratio"] = None if np.isnan(percent) else percent / 100

    def critical_path(self) -> None:
        """The longest path through one step; without steps, through the whole trace."""
        name, instance = self._window()
        found = self.analysis.critical_path_analysis(0, STEP if name else "", instance)
        if not found or not found[1]:
            raise ValueError("HTA found no critical path")
        self.summary["critical_path_step"] = name
        self.write("critical_path", self._edges(found[0]))

    def _window(self) -> tuple[str | None, int]:
        """The second step (HTA advises against the first), as HTA itself counts instances."""
        names = self.symbols()
        steps = {number for number, name in names.items() if STEP in name}
        rows = self.frame[self.frame["name"].isin(steps)]
        host = (rows["cat"].map(names) != "gpu_user_annotation").to_numpy()
        if not host.any():
            return None, 0
        order = [int(i) for i in np.argsort(rows["ts"].to_numpy(), kind="stable") if host[i]]
        chosen = order[min(1, len(order) - 1)]
        return names[rows["name"].iloc[chosen]], chosen

    def _edges(self, graph: Any) -> pd.DataFrame:
        """One row an edge, in path order; an edge of no event goes to the event it leads to."""
        nodes = graph.critical_path_nodes
        rows = []
        for begin, end in pairwise(nodes):
            edge = graph.edges[begin, end]
            event = graph.get_event_attribution_for_edge(edge["object"])
            attributed = event is not None
            event = event if attributed else graph.node_list[end].ev_idx
            kind = str(edge["object"].type.value).removeprefix("critical_path_")
            rows.append((kind, edge["weight"], event, attributed))
        path = pd.DataFrame(rows, columns=["kind", "weight", "event_index", "attributed"])
        columns = ["name", "cat", "stream", "ts", "dur"]
        path = path.join(graph.trace_df[columns], on="event_index")
        return self._described(path)

    def _described(self, path: pd.DataFrame) -> pd.DataFrame:
        names = self.symbols()
        name = path["name"].map(names)
        start = split_us(path["ts"].fillna(0)) + int(
            split_us(pd.Series([self.analysis.t.min_ts]))[0]
        )
        known = path["ts"].notna()
        return pd.DataFrame(
            {
                "position": np.arange(len(path)),
                "kind": path["kind"],
                "bound_by": bound_by(path, name),
                "ns": split_us(path["weight"]),
                "event_index": path["event_index"].where(path["event_index"] >= 0).astype("Int64"),
                "category": path["cat"].map(names).astype("string"),
                "name": name.astype("string"),
                "stream": path["stream"].where(path["stream"] >= 0).astype("Int64"),
                "start_ns": pd.Series(start).where(known).astype("Int64"),
            }
        )

    def write(self, name: str, table: pd.DataFrame) -> None:
        table.to_parquet(self.folder / f"{name}.parquet", index=False)


def bound_by(path: pd.DataFrame, name: pd.Series[str]) -> list[str | None]:
    """HTA's own words for what an edge waits on; None for a bare dependency."""
    from hta.analyzers import critical_path_analysis as analyzer

    rows = pd.DataFrame(
        {"type": "critical_path_" + path["kind"], "s_name": name, "stream": path["stream"]}
    )
    words = [analyzer.bound_by(row) for row in rows.to_dict("records")]
    return [word or None for word in words]


def split_us(values: pd.Series[Any]) -> Any:
    """Microseconds to int64 nanoseconds, whole and fraction apart: no product beyond 2**53."""
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.astype(np.int64) * 1000
    whole = np.floor(array.astype(np.float64))
    return whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000).astype(np.int64)


def tame(frame: pd.DataFrame) -> pd.DataFrame:
    """HTA's table cut to what the analyses use, and nothing in it but numbers.

    HTA's critical path formats ``pid`` and ``tid`` into ``DataFrame.query``, which evaluates
    expressions: a trace with the right text there runs a command (seen with 0.5.0). So each
    distinct id becomes a number, and columns that a trace can name (its counters) go.

    :raises ValueError: a column of numbers is absent or holds something else.
    """
    kept = frame[[c for c in frame.columns if c in (*NUMBERS, *SYMBOLS, *OPTIONAL, *PLACES)]].copy()
    for column in NUMBERS:
        if column not in kept.columns:
            raise ValueError(f"no event has a {column}: {NOTHING}")
    for column in PLACES:
        kept[column] = pd.factorize(kept[column].astype(str))[0]
    for column in kept.columns:
        if kept[column].dtype.kind not in "iuf":
            raise ValueError(f"{column} is not a number in every event")
    return kept


def reason(error: Exception) -> str:
    """One printable line: what HTA raised and where; for a bare assert, the line that holds it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = (str(error).strip() or last.line or "").splitlines()[0:1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    line = f"{type(error).__name__}: {''.join(text)[:160]} ({where})"
    return re.sub(r"[^ -~]", "?", line)


def main(request: Path) -> None:
    """Do what the request asks: ``trace``, ``rounded``, ``analyses``."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    asked = json.loads(request.read_text(encoding="utf-8"))
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "0" if asked["rounded"] else "1"
    study = Study(request.parent)
    if study.attempt("load", lambda: study.load(asked["trace"])):
        for name in asked["analyses"]:
            study.attempt(name, getattr(study, name))
    found = {**study.summary, "failures": study.failures}
    part = request.with_name("summary.part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(request.with_name("summary.json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
