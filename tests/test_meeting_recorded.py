"""A bundle with profiled runs of its graph on two streams, from its files to the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from cb_trace.bundle import (
    Role,
    SpeedupRecord,
    StepSamples,
    TraceRecord,
    file_sha256,
    open_bundle,
    write_bundle,
)
from cb_trace.conduct import ingest
from cb_trace.store import open_profile
from cb_trace.whatif import Wish, what_if
from tests.bundles import step_events, write_net_bundle
from tests.kineto import Event, annotation, event, kernel, launch, op, write_trace

BARE = [97_000 + 300 * k for k in range(-4, 5)]
Times = tuple[float, float]


def forked() -> list[Event]:
    """The Linear's product of 50 µs, then one of the Net of 15; beside them its addition of 30."""
    return [
        *step_events(0, gemm_us=50, second=(18, 2), add=(62, 30), add_stream=8),
        op("aten::add", 1032, 6), launch(1033, 2, 3), kernel("last", 1094, 15, 3),
    ]  # fmt: skip


def replayed(number: int, gemm: Times, add: Times, last: Times, second: int = 20) -> list[Event]:
    """A replay of the graph: when each begins and how long it takes."""
    at, correlation = 9_000.0 + 200 * number, 500 + number
    times = {"gemm": (gemm, 20), "add": (add, second), "last": (last, 20)}
    return [
        annotation(f"ProfilerStep#{number}", at, 150),
        event("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=correlation),
        *(
            kernel(name, at + 10 + begin, us, correlation, stream=stream)
            for name, ((begin, us), stream) in times.items()
        ),
    ]


IN_TURN = replayed(0, (0, 50), (52, 30), (84, 15))
RUNS = [
    *replayed(0, (0, 90), (0, 90), (92, 15), second=21),  # the first: on an idle device
    *replayed(1, (0, 60), (0, 40), (62, 15), second=21),  # both lose 10
    *replayed(2, (0, 70), (0, 50), (72, 15), second=21),  # both lose 20
    *replayed(3, (0, 60), (0, 40), (62, 15), second=21),
    *replayed(4, (0, 70), (0, 50), (72, 15), second=21),
]


def ingested(folder: Path, runs: list[Event] | None) -> Path:
    samples = [
        StepSamples(kind="bare", deployment="eager", ns=[120_000] * 3),
        StepSamples(kind="bare", deployment="graph", ns=BARE),
        StepSamples(kind="bare_one_stream", deployment="graph", ns=[99_000] * 3),  # gaps of 2
    ]
    faster = SpeedupRecord(
        path="fc", deployment="graph", factor=2, base_ns=[97_000] * 3, faster_ns=[72_000] * 3
    )
    bundle = write_net_bundle(folder / "net", step_samples=samples, speedups=[faster])
    manifest = open_bundle(bundle).manifest
    made: dict[Role, list[Event]] = {"context": forked(), "sequence": IN_TURN}
    if runs is not None:
        made["graph"] = runs
    traces = []
    for role, events in made.items():
        file = write_trace(bundle / f"{role}.json.gz", events, baseTimeNanoseconds=0)
        traces.append(TraceRecord(file=file.name, role=role, sha256=file_sha256(file)))
    write_bundle(bundle, replace(manifest, traces=traces))
    return ingest(bundle, folder / "net.duckdb").profile


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("met"), RUNS)


def rows(profile: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


MARGINAL = (
    "SELECT deployment, marginal.ns, low_ns, high_ns FROM marginal "
    "JOIN module USING (module_id) WHERE path = 'fc' ORDER BY deployment"
)


def test_the_marginal_cost_of_a_graph_is_that_of_its_profiled_runs(profile: Path) -> None:
    """Twice what they lost makes the runs 67 + 20 and 67 + 40. Without the Linear the last product
    takes 20 more of the one, and 52 go; it is too short to do so of the other, and 77 go.
    """
    _, graph = rows(profile, MARGINAL)
    assert graph[:2] == ("graph", 64_500)
    assert 52_000 <= graph[2] < 64_500 < graph[3] <= 78_000


def test_what_is_saved_by_taking_the_module_out_is_that_with_the_same_bounds(
    profile: Path,
) -> None:
    found = what_if(profile, [Wish("remove", "fc")])
    saved = [(o.deployment, o.saved_ns, o.saved_low_ns, o.saved_high_ns) for o in found]
    assert saved == rows(profile, MARGINAL)
    assert (found[1].now_ns, found[1].then_ns) == (97_000, 32_500)  # 35, and 30


def test_a_faster_module_is_predicted_by_the_same_runs(profile: Path) -> None:
    (halved,) = [o for o in what_if(profile, [Wish("set", "fc", 0.5)]) if o.deployment == "graph"]
    assert halved.saved_ns == 25_000
    assert rows(profile, "SELECT predicted_ns FROM speedup") == [(25_000,)]


def test_kernels_of_the_runs_have_modules_and_are_of_the_graph(profile: Path) -> None:
    named = rows(
        profile,
        "SELECT kernel.name, module.path, count(*) FROM kernel JOIN trace USING (trace_id) "
        "JOIN kernel_module USING (kernel_id) JOIN module USING (module_id) "
        "WHERE trace.role = 'graph' GROUP BY ALL ORDER BY kernel.name",
    )
    assert named == [("add", "", 5), ("gemm", "fc", 5), ("last", "", 5)]
    compared = rows(
        profile,
        "SELECT deployment, kernels, context_us, marginal_us FROM compare WHERE path = 'fc' "
        "AND deployment = 'graph'",
    )
    assert compared == [("graph", 1, 65, 64.5)]  # of 60 and 70


def test_runs_that_are_not_of_the_step_tell_nothing(tmp_path: Path) -> None:
    other = [{**e, "name": "other"} if e["name"] == "last" else e for e in RUNS]
    found = []
    for name, runs in (("none", None), ("other", other), ("one", RUNS[:5])):
        (tmp_path / name).mkdir()
        profile = ingested(tmp_path / name, runs)
        saved = [
            (o.deployment, o.saved_ns, o.saved_low_ns, o.saved_high_ns)
            for o in what_if(profile, [Wish("remove", "fc")])
        ]
        assert saved == rows(profile, MARGINAL)
        found.append(saved)
    assert found[0] == found[1] == found[2]
    assert found[0][1][1] != 64_500


@pytest.mark.parametrize("kind", ["fuse", "overlap"])
def test_kernels_that_would_run_otherwise_do_not_lose_what_they_lost(
    profile: Path, tmp_path: Path, kind: Literal["fuse", "overlap"]
) -> None:
    plain = ingested(tmp_path, None)
    assert what_if(profile, [Wish(kind, "")]) == what_if(plain, [Wish(kind, "")])


def test_a_kernel_whose_time_was_lost_makes_its_run_incomplete_and_a_note_says_so(
    tmp_path: Path,
) -> None:
    lost = [{**e, "dur": 0} if e["name"] == "gemm" else e for e in RUNS]
    profile = ingested(tmp_path, lost)
    assert rows(profile, "SELECT reason FROM note WHERE reason LIKE '%not used'") == [
        ("profiled runs of the graph not used",)
    ]
    assert rows(profile, MARGINAL)[1][1] != 0


def test_every_kernel_of_the_runs_has_a_module(profile: Path) -> None:
    found = rows(profile, "SELECT DISTINCT status FROM coverage WHERE role = 'graph'")
    assert found == [("attributed",)]
