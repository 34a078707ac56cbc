"""The conductor: what goes in comes out of the views, exactly."""

from __future__ import annotations

import datetime
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cb_trace.bundle import (
    CompiledGraph,
    CompiledKernel,
    CompiledNode,
    Manifest,
    Note,
    ParameterRecord,
    StepSamples,
    TraceRecord,
    file_sha256,
    pack_bundle,
    write_bundle,
)
from cb_trace.conduct import IngestReport, ingest
from cb_trace.errors import CbTraceError
from cb_trace.store import open_profile
from tests.bundles import module_record, run_record, step_events, write_net_bundle
from tests.conftest import SAMPLES, SHARED, Ingested
from tests.kineto import annotation, kernel, launch, module_slice, op, write_trace


def rows(profile: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, IngestReport]:
    folder = tmp_path_factory.mktemp("net")
    write_net_bundle(folder / "net", notes=[Note(reason="hot clocks", path="fc", count=2)])
    report = ingest(folder / "net", folder / "net.duckdb")
    return report.profile, report


def test_compare_of_a_bundle(net: tuple[Path, IngestReport]) -> None:
    found = rows(
        net[0],
        "SELECT path, deployment, calls, kernels, context_us, busy_us, exposed_us, isolated_us, "
        "isolated_gpu_us, isolated_cold_us, marginal_us, isolated_from FROM compare",
    )
    assert found == [
        ("", "eager", 1, 2, 50.0, 50.0, 50.0, 50.0, 25.0, None, 80.0, "partial"),
        ("fc", "eager", 1, 1, 30.0, 30.0, 30.0, 50.0, 25.0, None, 21.335, "replay"),
    ]  # alone fc takes 50 µs of the host; with the others' 137.5 the bare step is to be 80


def test_the_partition_sums_to_the_bare_step_and_costs_are_inclusive(
    net: tuple[Path, IngestReport],
) -> None:
    assert rows(net[0], "SELECT sum(ns)::BIGINT FROM step_partition") == [(80_000,)]
    root, fc = (cost for (cost,) in rows(net[0], "SELECT cost_us FROM compare"))
    assert root == 80.0
    assert 30.0 <= fc < root


def test_the_terms_close_on_the_error(net: tuple[Path, IngestReport]) -> None:
    error, total = rows(
        net[0],
        "SELECT error_us, launch_us + cache_us + kernel_choice_us + fusion_us + overlap_us "
        "+ idle_us FROM compare WHERE path = 'fc'",
    )[0]
    assert total == pytest.approx(error, abs=1e-9)


def test_kernels_in_context_and_alone(net: tuple[Path, IngestReport]) -> None:
    assert rows(
        net[0],
        "SELECT path, op, status, context_kernel, context_kernels, isolated_kernels, context_us, "
        "isolated_us FROM kernel_diff",
    ) == [("fc", "aten::mm", "same", "gemm", 1.0, 1.0, 30.0, 25.0)]


def test_the_run_row(net: tuple[Path, IngestReport]) -> None:
    assert rows(
        net[0],
        "SELECT run_id, created_at, settings, phases, step_bare_ns, step_profiled_ns, dilation "
        "FROM run",
    ) == [
        ("r1", datetime.datetime(2026, 11, 29, 10), '{"batch": 4}', "forward", 80_000, 100_000,
         1.25),
    ]  # fmt: skip
    assert rows(net[0], "SELECT module_id, reason, count FROM note") == [(1, "hot clocks", 2)]


def test_the_report(net: tuple[Path, IngestReport]) -> None:
    report = net[1]
    assert (report.run_ids, report.device_ns, report.unattributed_ns) == (("r1",), 150_000, 0)
    assert report.summary() == (
        "35 slices, 8 kernels; 0 repaired, 0 dropped; 0.00% of device time unattributed"
    )


def test_a_zip_is_the_same_and_its_traces_are_found_again(
    tmp_path: Path, net: tuple[Path, IngestReport]
) -> None:
    folder = write_net_bundle(tmp_path / "net")
    pack_bundle(folder, tmp_path / "net.zip")
    ingest(tmp_path / "net.zip", tmp_path / "zip.duckdb")
    sql = "SELECT * FROM compare"
    assert rows(tmp_path / "zip.duckdb", sql) == rows(net[0], sql)
    assert rows(tmp_path / "zip.duckdb", "SELECT path FROM trace ORDER BY trace_id") == [
        ("net.zip/context.json.gz",), ("net.zip/isolated.json.gz",),
    ]  # fmt: skip


def test_a_trace_that_is_not_the_recorded_one_is_noted(tmp_path: Path) -> None:
    bundle = write_net_bundle(tmp_path / "net")
    write_trace(bundle / "context.json.gz", step_events(0))
    ingest(bundle, tmp_path / "p.duckdb")
    assert rows(tmp_path / "p.duckdb", "SELECT reason, detail FROM note") == [
        ("trace changed since it was recorded", "context.json.gz")
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modules": [module_record("fc", "Linear", "gone", 0)]}, "gone"),
        ({"modules": [module_record("", "Net", None, 0)] * 2}, "two modules have one path"),
        ({"run": run_record(created_at="yesterday")}, "yesterday"),
        ({"run": run_record(seed=2**70)}, "contradicts itself"),
        ({"traces": [TraceRecord(file="gone.json", role="context", sha256="")]}, "gone.json"),
    ],
)
def test_a_bundle_that_contradicts_itself(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    bundle = write_net_bundle(tmp_path / "net", **changes)
    with pytest.raises(CbTraceError, match=words) as caught:
        ingest(bundle, tmp_path / "p.duckdb")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


def test_a_replay_that_shares_nothing_known_is_refused(tmp_path: Path) -> None:
    bundle = write_net_bundle(tmp_path / "net")
    from cb_trace.bundle import open_bundle, write_bundle

    manifest = open_bundle(bundle).manifest
    lost = replace(manifest.replays[0], replay_id=1, measured_id=7, samples_ns=[])
    write_bundle(bundle, replace(manifest, replays=[*manifest.replays, lost]))
    with pytest.raises(CbTraceError, match="no replay 7"):
        ingest(bundle, tmp_path / "p.duckdb")


# --- traces of others -------------------------------------------------------------------------


def foreign(path: Path, dur_us: float = 10.0, **header: Any) -> Path:
    events = [
        module_slice("Net_0", 100, 50, 1, None),
        module_slice("Linear_0", 105, 20, 2, 1),
        launch(110, 5, 1),
        kernel("gemm", 120, dur_us, 1),
        launch(200, 5, 2),
        kernel("stray", 210, 5, 2),
    ]
    return write_trace(path, events, **header)


def test_a_foreign_trace_gets_what_its_header_says_and_no_more(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "NVIDIA B200"}]
    trace = foreign(
        tmp_path / "t.json", deviceProperties=properties, SLURM_JOB_USER="ada",
        baseTimeNanoseconds=1_700_000_000_000_000_000,
    )  # fmt: skip
    report = ingest(trace, tmp_path / "p.duckdb")
    assert rows(
        tmp_path / "p.duckdb", "SELECT workload, device_name, created_at, step_bare_ns FROM run"
    ) == [("t", "NVIDIA B200", datetime.datetime(2023, 11, 14, 22, 13, 20, 100), None)]
    assert b"ada" not in (tmp_path / "p.duckdb").read_bytes()
    assert (report.device_ns, report.unattributed_ns) == (15_000, 5_000)
    assert rows(tmp_path / "p.duckdb", "SELECT reason, ns FROM coverage WHERE method = 'none'") == [
        ("outside any module", 5_000)
    ]


def test_a_folder_of_ranks_is_one_profile(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    foreign(tmp_path / "job" / "a.json", distributedInfo={"rank": 1, "world_size": 3})
    foreign(tmp_path / "job" / "rank0.json.gz", dur_us=20)
    foreign(tmp_path / "job" / "z_rank0.json", dur_us=30)
    (tmp_path / "job" / "readme.txt").write_text("no trace")
    ingest(tmp_path / "job", tmp_path / "p.duckdb")
    assert rows(
        tmp_path / "p.duckdb",
        "SELECT trace.rank, run.workload, sum(coverage.us) FROM coverage "
        "JOIN trace USING (trace_id) JOIN run ON run.run_id = trace.run_id "
        "GROUP BY ALL ORDER BY 1",
    ) == [(0, "rank0", 25.0), (1, "a", 15.0), (2, "z_rank0", 35.0)]
    assert rows(
        tmp_path / "p.duckdb", "SELECT count(*) FROM note WHERE reason = 'rank assigned'"
    ) == [(1,)]
    assert rows(
        tmp_path / "p.duckdb",
        "SELECT count(*), count(DISTINCT (run_id, deployment, path, phase)) FROM compare",
    ) == [(9, 9)]


def test_one_file_twice_is_two_runs(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for name in ("a.json", "b.json"):
        foreign(tmp_path / "job" / name)
    report = ingest(tmp_path / "job", tmp_path / "p.duckdb")
    assert len(set(report.run_ids)) == 2


@pytest.mark.parametrize("name", ["absent.json", "empty", "prose.json", "et.json"])
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "prose.json").write_text("once upon a time")
    (tmp_path / "et.json").write_text('{"schema": "1.1.0", "pid": 1, "nodes": []}')
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CbTraceError) as caught:
        ingest(tmp_path / name, tmp_path / "p.duckdb")
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_source_is_not_its_own_target(tmp_path: Path) -> None:
    trace = foreign(tmp_path / "t.json")
    with pytest.raises(CbTraceError, match="its own target"):
        ingest(trace, trace, force=True)


# --- real traces ------------------------------------------------------------------------------


def published() -> list[tuple[str, list[int]]]:
    """File and slices, device events, kernels, duration, linked, of the real traces' own table."""
    if not (SHARED / "README.md").is_file():
        return []
    found = []
    for line in (SHARED / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().split(" ")[0].replace(",", "") for cell in line.split("|")[1:-1]]
        if len(cells) >= 8 and re.fullmatch(r"\d+", cells[2]):
            found.append((cells[0], [int(cells[k]) for k in (2, 3, 4, 5, 7)]))
    return found


@pytest.mark.parametrize(("name", "figures"), published(), ids=lambda value: str(value)[:40])
def test_a_real_trace_end_to_end(
    shared_traces: Path, tmp_path: Path, name: str, figures: list[int]
) -> None:
    slices, device, kernels, duration, linked = figures
    profile = tmp_path / "p.duckdb"
    ingest(shared_traces / f"{name}.json.gz", profile)
    assert rows(profile, "SELECT slices FROM trace") == [(slices,)]
    assert rows(
        profile,
        "SELECT count(*), count(*) FILTER (WHERE kind = 'kernel'), sum(dur_ns)::BIGINT, "
        "count(launch_id) FROM kernel",
    ) == [(device, kernels, duration, linked)]
    # The invariant: attributed + unattributed = total, to the nanosecond; no kernel left out.
    assert rows(
        profile, "SELECT sum(ns)::BIGINT FROM coverage WHERE reason IS DISTINCT FROM 'not examined'"
    ) == [(duration,)]
    assert rows(profile, "SELECT count(*) FROM compare WHERE cost_us IS NULL") == [(0,)]
    assert rows(
        profile,
        "SELECT count(*) FROM (SELECT run_id FROM compare GROUP BY run_id, deployment, path, phase "
        "HAVING count(*) > 1)",
    ) == [(0,)]


def test_the_table_of_real_traces_was_read(shared_traces: Path) -> None:
    assert len(published()) == 18


# --- the recordings that ship -----------------------------------------------------------------


@pytest.mark.parametrize("bundle", sorted(SAMPLES.glob("*.zip")), ids=lambda path: path.stem)
def test_a_recording_that_ships_end_to_end(ingested: Ingested, bundle: Path) -> None:
    profile = ingested(bundle)
    assert rows(
        profile,
        "SELECT role FROM trace JOIN (SELECT trace_id, sum(dur_ns) AS ns FROM kernel GROUP BY ALL) "
        "AS device USING (trace_id) WHERE device.ns <> (SELECT sum(coverage.ns) FROM coverage "
        "WHERE coverage.trace_id = trace.trace_id)",
    ) == []  # fmt: skip
    # Every kernel inside a step has a module: eager, compiled, graphed, backward and optimizer.
    lost = "SELECT reason FROM coverage WHERE role = 'context' AND status = 'unattributed'"
    assert set(rows(profile, lost)) <= {("outside every step",)}
    # The parts of each deployment sum to the median of its bare steps.
    split = dict(rows(profile, "SELECT deployment, sum(ns)::BIGINT FROM step_partition GROUP BY 1"))
    assert split
    for deployment, ns in split.items():
        samples = rows(
            profile,
            f"SELECT ns FROM step_sample WHERE kind = 'bare' AND deployment = '{deployment}'",
        )
        assert ns == int(statistics.median([sample for (sample,) in samples]))
    found = rows(
        profile,
        "SELECT error_us, coalesce(launch_us, 0) + cache_us + kernel_choice_us + fusion_us "
        "+ overlap_us + coalesce(contention_us, 0) + idle_us + coalesce(residual_us, 0) "
        "FROM compare WHERE cache_us IS NOT NULL",
    )
    replayed = rows(profile, "SELECT 1 FROM replay WHERE median_ns IS NOT NULL LIMIT 1")
    assert bool(found) == bool(replayed)
    for error, terms in found:
        assert terms == pytest.approx(error, abs=1e-6)


def captured_bundle(folder: Path) -> Path:
    """A compiled training step under a CUDA graph, and the run of it that was captured."""
    folder.mkdir()
    capture = [
        annotation("ProfilerStep#0", 1000, 200),
        annotation("cb:<root>", 1000, 100),
        annotation("## Call CompiledFxGraph key ##", 1010, 60),
        op("triton_0", 1020, 10), launch(1022, 5, 1), kernel("triton_0", 1030, 30, 1),
        launch(1080, 5, 2), kernel("glue", 1090, 7, 2),
        annotation("Optimizer.step#SGD.step", 1110, 50),
        launch(1120, 5, 3), kernel("sgd", 1130, 12, 3),
    ]  # fmt: skip
    context = [
        annotation("ProfilerStep#0", 1000, 200), launch(1010, 9, 1) | {"name": "cudaGraphLaunch"},
        kernel("triton_0", 1030, 40, 1), kernel("glue", 1080, 8, 1), kernel("sgd", 1090, 16, 1),
    ]  # fmt: skip
    traces = []
    for role, events in (("context", context), ("capture", capture)):
        file = write_trace(folder / f"{role}.json.gz", events)
        traces.append(TraceRecord(file=file.name, role=role, sha256=file_sha256(file)))  # type: ignore[arg-type]
    nodes = [
        CompiledNode(name=name, target="aten.add.Tensor", path=path, phase="forward", bytes=size,
                     flops=0)
        for name, path, size in (("add", "fc", 30), ("add_1", "", 10))
    ]  # fmt: skip
    code = CompiledKernel(name="triton_0", handle=1, nodes=nodes)
    modules = [module_record("", "Net", None, 0), module_record("fc", "Linear", "", 1)]
    weight = ParameterRecord(name="fc.weight", path="fc", numel=4, bytes=16, trainable=True)
    manifest = Manifest(
        run=run_record(mode="compile+cudagraph"), modules=modules, traces=traces,
        step_samples=[StepSamples(kind="bare", deployment="graph", ns=[150_000] * 5)],
        parameters=[weight],
        graphs=[CompiledGraph(key="key", phase="forward", kernels=[code])],
    )  # fmt: skip
    write_bundle(folder, manifest)
    return folder


def test_a_graph_of_compiled_code_has_the_modules_of_the_run_it_captured(tmp_path: Path) -> None:
    report = ingest(captured_bundle(tmp_path / "b"), tmp_path / "p.duckdb")
    assert (report.device_ns, report.unattributed_ns) == (64_000, 0)
    part = (
        "SELECT kernel.name, module.path, part.phase, ns, method, part.bytes "
        "FROM kernel_module AS part "
        "JOIN kernel USING (kernel_id) JOIN trace USING (trace_id) JOIN module USING (module_id) "
        "WHERE role = '{}' ORDER BY kernel.start_ns, module.path DESC"
    )
    assert rows(report.profile, part.format("capture")) == [
        ("triton_0", "fc", "forward", 22_500, "inductor", 30),
        ("triton_0", "", "forward", 7500, "inductor", 10),
        ("glue", "", "forward", 7000, "range", None),
        ("sgd", "fc", "optimizer", 12_000, "parameter", 16),
    ]
    assert rows(report.profile, part.format("context")) == [
        ("triton_0", "fc", "forward", 30_000, "graph_order", 30),
        ("triton_0", "", "forward", 10_000, "graph_order", 10),
        ("glue", "", "forward", 8000, "graph_order", None),
        ("sgd", "fc", "optimizer", 16_000, "graph_order", 16),
    ]
    calls = "SELECT calls FROM module_context JOIN module USING (module_id) WHERE path = ''"
    assert rows(report.profile, f"{calls} AND phase = 'forward'") == [(1.0,)]
