"""A bundle with profiled runs of its graph: how that deployment's step is split, and why."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cb_trace.bundle import (
    Role,
    StepSamples,
    TraceRecord,
    file_sha256,
    open_bundle,
    write_bundle,
)
from cb_trace.conduct import ingest
from cb_trace.store import open_profile
from cb_trace.store.queries import named_query
from cb_trace.whatif import Wish, what_if
from tests.bundles import sequence_events, step_events, write_net_bundle
from tests.kineto import STREAM, Event, annotation, event, kernel, write_trace

EAGER = StepSamples(kind="bare", deployment="eager", ns=[80_000] * 5)
SPLIT = (
    "SELECT path, kind, ns FROM partition JOIN module USING (module_id) "
    "WHERE deployment = ? AND ns <> 0 ORDER BY path, kind"
)
TERMS = (
    "SELECT kind, term.ns FROM term JOIN module USING (module_id) "
    "WHERE deployment = ? AND path = 'fc' AND term.ns <> 0 ORDER BY kind"
)


def replayed(number: int, *kernels: Event) -> list[Event]:
    """A replay that the host launched long before it ran."""
    at = 9_000.0 + 10 * number
    call = event("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=500 + number)
    return [annotation(f"ProfilerStep#{number}", at, 8), call, *kernels]


def in_line(number: int, add: str = "add") -> list[Event]:
    """27 µs of the Linear, 1 of nothing, 18 of the Net; 4 of nothing until the next replay."""
    at, correlation = 10_000.0 + 50 * number, 500 + number
    return replayed(
        number,
        kernel("gemm", at, 27, correlation, stream=20),
        kernel(add, at + 28, 18, correlation, stream=20),
    )


def at_once(number: int) -> list[Event]:
    """The Linear's 40 µs hide the Net's 30, and 4 of nothing follow."""
    at, correlation = 10_000.0 + 44 * number, 500 + number
    return replayed(
        number,
        kernel("gemm", at, 40, correlation, stream=20),
        kernel("add", at + 1, 30, correlation, stream=21),
    )


def ingested(
    folder: Path, runs: Sequence[list[Event]], *, bare_ns: int | None, aside: int = STREAM,
    sequence: tuple[float, float] = (28, 18),
) -> Path:  # fmt: skip
    """Three eager steps, with 30 µs of the Linear and then 20 of the Net; two runs in turn."""
    graph = [StepSamples(kind="bare", deployment="graph", ns=[bare_ns] * 5)] if bare_ns else []
    bundle = write_net_bundle(folder / "net", step_samples=[EAGER, *graph])
    manifest = open_bundle(bundle).manifest
    gemm, add = sequence
    made: dict[Role, list[list[Event]]] = {
        "context": [step_events(number, add_stream=aside) for number in range(3)],
        "sequence": [sequence_events(number, 80, gemm, (50, add)) for number in range(2)],
        "graph": list(runs),
    }
    traces = [trace for trace in manifest.traces if trace.role == "isolated"]
    for role, parts in made.items():
        events = [one for part in parts for one in part]
        if events:
            file = write_trace(bundle / f"{role}.json.gz", events, baseTimeNanoseconds=0)
            traces.append(TraceRecord(file=file.name, role=role, sha256=file_sha256(file)))
    write_bundle(bundle, replace(manifest, traces=traces))
    return ingest(bundle, folder / "net.duckdb").profile


def rows(profile: Path, sql: str, *given: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql, given).fetchall()


@pytest.fixture(scope="module")
def on_one_stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    return ingested(folder, [in_line(number) for number in range(4)], bare_ns=48_000)


@pytest.fixture(scope="module")
def on_two_streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    runs = [at_once(number) for number in range(4)]
    return ingested(folder, runs, bare_ns=44_000, aside=8, sequence=(30, 20))


def test_the_graphs_step_is_split_by_its_own_kernels(on_one_stream: Path) -> None:
    """5 µs of idle are 3 in the bare graph; 4 of them lie between two replays."""
    assert rows(on_one_stream, SPLIT, "graph") == [
        ("", "busy", 18_000), ("", "idle_gap", 3_000), ("fc", "busy", 27_000),
    ]  # fmt: skip


def test_its_error_is_told_by_them(on_one_stream: Path) -> None:
    """Alone 50 µs, 25 of them a kernel, which takes 28 in the sequence and 27 in the graph."""
    assert rows(on_one_stream, TERMS, "graph") == [
        ("cache", -3_000), ("launch", 25_000), ("residual", 1_000),
    ]  # fmt: skip
    (found,) = rows(
        on_one_stream,
        "SELECT cost_us, isolated_us FROM compare WHERE path = 'fc' AND deployment = 'graph'",
    )
    assert found == (27.0, 50.0)


def test_the_eager_step_is_what_it_was(on_one_stream: Path, tmp_path: Path) -> None:
    plain = ingested(tmp_path, [], bare_ns=48_000)
    for sql in (SPLIT, TERMS):
        assert rows(on_one_stream, sql, "eager") == rows(plain, sql, "eager") != []
    whole = "SELECT * FROM {} ORDER BY ALL"
    for table in ("module_context", "marginal", "module_call"):
        assert rows(on_one_stream, whole.format(table)) == rows(plain, whole.format(table)) != []


def test_kernels_that_run_at_once_in_the_graph_alone_contend_there(on_two_streams: Path) -> None:
    """The Linear's takes 30 µs one at a time and 40 beside the Net's, which are hidden."""
    assert rows(on_two_streams, SPLIT, "graph") == [
        ("", "idle_gap", 4_000), ("fc", "busy", 40_000),
    ]  # fmt: skip
    assert rows(on_two_streams, TERMS, "graph") == [
        ("cache", -5_000), ("contention", -10_000), ("launch", 25_000),
    ]  # fmt: skip
    assert rows(on_two_streams, TERMS, "eager") == [("cache", -5_000), ("launch", 25_000)]


def test_a_hidden_module_costs_nothing_and_is_there(on_two_streams: Path) -> None:
    found = rows(
        on_two_streams,
        "SELECT path, kind, ns FROM partition JOIN module USING (module_id) "
        "WHERE deployment = 'graph' AND kind = 'busy' ORDER BY path",
    )
    assert found == [("", "busy", 0), ("fc", "busy", 40_000)]
    costs = rows(on_two_streams, "SELECT cost_us FROM compare WHERE deployment = 'graph'")
    assert sorted(costs) == [(40.0,), (44.0,)]


@pytest.mark.parametrize("why", ["two that count", "another kernel"])
def test_with_too_few_runs_it_is_split_as_the_eager_step(why: str, tmp_path: Path) -> None:
    runs = [
        in_line(number, add="other" if why == "another kernel" else "add") for number in range(4)
    ]
    found = []
    for name, some in (("none", []), ("few", runs[:3] if why == "two that count" else runs)):
        (tmp_path / name).mkdir()
        profile = ingested(tmp_path / name, some, bare_ns=48_000)
        noted = rows(profile, "SELECT detail FROM note WHERE reason LIKE '%of the graph not used'")
        assert len(noted) == len(some[:1])
        found.append([rows(profile, sql, "graph") for sql in (SPLIT, TERMS)])
    assert found[0] == found[1]
    assert ("fc", "busy", 30_000) in found[0][0]


def test_a_graph_that_was_not_timed_bare_has_no_step_to_split(tmp_path: Path) -> None:
    profile = ingested(tmp_path, [in_line(number) for number in range(4)], bare_ns=None)
    assert rows(profile, "SELECT DISTINCT deployment FROM partition") == [("eager",)]
    assert rows(profile, "SELECT DISTINCT deployment FROM term") == [("eager",)]


def test_kernels_of_the_runs_are_no_device_time_of_the_step(on_one_stream: Path) -> None:
    assert rows(on_one_stream, "SELECT DISTINCT status FROM coverage WHERE role = 'graph'") == [
        ("attributed",)
    ]


CONTEXT = (
    "SELECT deployment, path, kernels, context_us, busy_us, exposed_us FROM compare ORDER BY ALL"
)


def test_what_its_kernels_did_is_told_by_them(on_one_stream: Path, on_two_streams: Path) -> None:
    assert rows(on_one_stream, CONTEXT) == [
        ("eager", "", 2, 50, 50, 50), ("eager", "fc", 1, 30, 30, 30),
        ("graph", "", 2, 45, 45, 45), ("graph", "fc", 1, 27, 27, 27),
    ]  # fmt: skip
    assert rows(on_two_streams, CONTEXT) == [
        ("eager", "", 2, 50, 50, 50), ("eager", "fc", 1, 30, 30, 30),
        ("graph", "", 2, 70, 40, 40), ("graph", "fc", 1, 40, 40, 10),
    ]  # fmt: skip
    hidden = rows(on_two_streams, named_query("overlap").sql)
    assert [(row[1], *row[4:]) for row in hidden] == [
        ("", "graph", 70, 40, 40, 30, 0), ("fc", "graph", 40, 40, 10, 0, 30),
    ]  # fmt: skip


def test_without_such_runs_it_is_told_as_the_eager_step(tmp_path: Path) -> None:
    profile = ingested(tmp_path, [], bare_ns=48_000)
    told = [row[1:] for row in rows(profile, CONTEXT)]
    assert told[:2] == told[2:] == [("", 2, 50, 50, 50), ("fc", 1, 30, 30, 30)]


def test_a_rank_has_the_figures_that_it_has_alone_whichever_is_listed_first(
    on_two_streams: Path, tmp_path: Path
) -> None:
    """The other rank's Linear takes 90 µs in every trace of its."""
    bundle = tmp_path / "ranks"
    shutil.copytree(on_two_streams.parent / "net", bundle)
    manifest = open_bundle(bundle).manifest
    slow = {
        "context": [one for n in range(3) for one in step_events(n, gemm_us=90, add=(101, 20))],
        "graph": [one for n in range(4) for one in in_line(n)],
    }
    others = []
    for role, events in slow.items():
        file = write_trace(bundle / f"{role}.1.json.gz", events, baseTimeNanoseconds=0)
        sha256 = file_sha256(file)
        others += [
            replace(trace, file=file.name, rank=1, sha256=sha256)
            for trace in manifest.traces
            if trace.role == role
        ]
    write_bundle(bundle, replace(manifest, traces=[*others, *manifest.traces]))
    profile = ingest(bundle, tmp_path / "ranks.duckdb").profile
    for table in ("partition", "cost_bounds", "term", "marginal", "verdict", "kernel_class"):
        query = f"SELECT * FROM {table} ORDER BY ALL"
        assert rows(profile, query) == rows(on_two_streams, query), table
    wishes = [Wish("remove", "fc"), Wish("set", "fc", 0.5)]
    assert what_if(profile, wishes) == what_if(on_two_streams, wishes)
