"""``cb-trace whatif`` from a bundle's files to its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cb_trace.bundle import (
    HostWindowRecord,
    ReplayRecord,
    SpeedupRecord,
    StepSamples,
    TraceRecord,
    file_sha256,
    open_bundle,
    write_bundle,
)
from cb_trace.conduct import ingest
from cb_trace.errors import CbTraceError
from cb_trace.store import open_profile
from cb_trace.whatif import Wish, parse_setting, what_if, with_overheads_of
from tests.bundles import run_record, sequence_events, step_events, write_net_bundle
from tests.kineto import Event, kernel, launch, op, write_trace


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whatif")
    samples = [
        StepSamples(kind="bare", deployment="eager", ns=[80_000] * 3),
        StepSamples(kind="bare", deployment="graph", ns=[52_000] * 3),
    ]
    write_net_bundle(folder / "net", step_samples=samples)
    return ingest(folder / "net", folder / "net.duckdb").profile


def test_each_change_alone_and_all_together(profile: Path) -> None:
    found = what_if(profile, [Wish("set", "fc", 0.5), Wish("remove", "fc")])
    assert [(o.change, o.deployment, o.now_ns, o.then_ns) for o in found] == [
        # Alone it takes 50 µs of the host; with the others' 137.5 the bare step is to be 80.
        ("fc × 0.5", "eager", 80_000, 80_000 - 10_668),
        ("fc × 0.5", "graph", 52_000, 37_000),
        ("remove fc", "eager", 80_000, 80_000 - 21_335),
        ("remove fc", "graph", 52_000, 20_000),  # its 30 µs and a gap of 2
        ("all of these", "eager", 80_000, 80_000 - 21_335),
        ("all of these", "graph", 52_000, 20_000),
    ]
    assert [o.saved_ns for o in found[:2]] == [10_668, 15_000]


def test_what_is_asked_twice_is_done_once(profile: Path) -> None:
    for wish in (Wish("set", "fc", 0.5), Wish("remove", "fc"), Wish("overlap", "fc")):
        assert what_if(profile, [wish, wish]) == what_if(profile, [wish])


@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_what_is_saved_without_a_module_is_its_marginal_cost(
    device_type: str, tmp_path: Path
) -> None:
    drift = [k * 700 for k in range(9)]
    samples = [StepSamples(kind="bare", deployment="eager", ns=[80_000 + ns for ns in drift])]
    if device_type == "cuda":
        graph = [52_000 + ns for ns in drift]
        samples.append(StepSamples(kind="bare", deployment="graph", ns=graph))
    run = run_record(device_type=device_type)
    window = HostWindowRecord(
        host_ns=[70_000], closing_ns=[9_000], window_ns=[80_000], empty_ns=4_000
    )
    write_net_bundle(tmp_path / "net", step_samples=samples, run=run, host_window=window)
    profile = ingest(tmp_path / "net", tmp_path / "net.duckdb").profile
    with open_profile(profile) as connection:
        stored = connection.execute(
            "SELECT deployment, marginal.ns, low_ns, high_ns FROM marginal "
            "JOIN module USING (module_id) WHERE path = 'fc' ORDER BY deployment"
        ).fetchall()
    found = what_if(profile, [Wish("remove", "fc")])
    saved = [(o.deployment, o.saved_ns, o.saved_low_ns, o.saved_high_ns) for o in found]
    assert saved == stored
    assert any(low < ns < high for _, ns, low, high in stored)
    if device_type == "cuda":  # of what the host takes there, 5 µs less than the step, as above
        assert saved[0][1] == round((82_800 - 5_000) * 50 / 187.48)
    assert [o.now_ns - o.then_ns for o in found] == [ns for _, ns, _, _ in stored]


def test_bounds_on_a_cpu_hold_the_figures(tmp_path: Path) -> None:
    """Of a module inside another that changes too, only what is left of it comes or goes."""
    samples = [
        StepSamples(kind="bare", deployment="eager", ns=[80_000 + k * 700 for k in range(9)])
    ]
    write_net_bundle(tmp_path / "net", step_samples=samples, run=run_record(device_type="cpu"))
    profile = ingest(tmp_path / "net", tmp_path / "net.duckdb").profile
    doubled, without, both = what_if(profile, [Wish("set", "", 2.0), Wish("remove", "fc")])
    for found in (doubled, without, both):
        assert found.low_ns <= found.then_ns <= found.high_ns
        assert found.saved_low_ns <= found.saved_ns <= found.saved_high_ns  # type: ignore[operator]
        assert found.saved_ns == found.now_ns - found.then_ns
    assert doubled.then_ns == 2 * doubled.now_ns
    assert both.then_ns == pytest.approx(2 * without.then_ns, abs=1)
    (gone,) = what_if(profile, [Wish("remove", "")])
    assert (gone.then_ns, gone.low_ns, gone.high_ns) == (0, 0, 0)


def test_host_overheads_of_others(profile: Path, tmp_path: Path) -> None:
    found = with_overheads_of(profile, [profile, profile])
    assert (found.change, found.deployment) == ("host overheads of 2 other recordings", "eager")
    assert found.now_ns == 80_000
    assert found.low_ns <= found.then_ns <= found.high_ns
    assert found.saved_ns is None  # how far off the prediction is would be in it
    write_net_bundle(tmp_path / "cpu", run=run_record(device_type="cpu"))
    cpu = ingest(tmp_path / "cpu", tmp_path / "cpu.duckdb").profile
    with pytest.raises(CbTraceError, match="has no eager step on a device"):
        with_overheads_of(cpu, [profile])
    with pytest.raises(CbTraceError, match=r"cpu\.duckdb holds no host overheads"):
        with_overheads_of(profile, [cpu])


@pytest.mark.parametrize(
    ("gemm_us", "unwindowed_ns", "windowed_ns"),
    [
        # Before the first launch 2 µs outside operators, which shrink as gaps do, to 4.4 of 6, and
        # 1 in one; the launch 5, 2 to the device, kernels 120 + 20; less the empty window.
        (120, 149_466, 149_466 - 4_000),
        # The host is through later than the kernels, and closes the window in as long as is taken
        # off: 12 + 12 µs in operators, 4.4 of 6 between them, of 2 before and 68 after as much.
        (30, 79_733, 79_733),
    ],
)
def test_with_overheads_of_others_the_step_ends_with_its_window(
    gemm_us: int, unwindowed_ns: int, windowed_ns: int, tmp_path: Path
) -> None:
    alone = ReplayRecord(
        replay_id=0, path="fc", phase="forward", condition="hot", call_index=0, calls=1,
        measured_id=0, samples_ns=[15_000] * 5, calls_per_sample=10, profiled_calls=2,
    )  # fmt: skip
    window = HostWindowRecord(
        host_ns=[70_000], closing_ns=[9_000], window_ns=[80_000], empty_ns=4_000
    )
    found = []
    for name, known in (("unknown", None), ("known", window)):
        bundle = write_net_bundle(tmp_path / name, replays=[alone], host_window=known)
        made = [
            event
            for number in range(3)
            for event in step_events(number, gemm_us=gemm_us, add=(10 + gemm_us, 20))
        ]
        file = write_trace(bundle / "context.json.gz", made, baseTimeNanoseconds=0)
        context = TraceRecord(file=file.name, role="context", sha256=file_sha256(file))
        write_bundle(bundle, replace(open_bundle(bundle).manifest, traces=[context]))
        profile = ingest(bundle, tmp_path / f"{name}.duckdb").profile
        found.append(with_overheads_of(profile, [profile]).then_ns)
    assert found == [unwindowed_ns, windowed_ns]


def test_mistakes(profile: Path) -> None:
    with pytest.raises(CbTraceError, match="no module 'cf'"):
        what_if(profile, [Wish("remove", "cf")])
    with pytest.raises(CbTraceError, match="--set gives fc 2 factors"):
        what_if(profile, [Wish("set", "fc", 0.5), Wish("set", "fc", 0.4)])
    with pytest.raises(CbTraceError, match="nothing to change"):
        what_if(profile, [])
    for text in ("fc", "fc=", "fc=fast", "fc=-1x"):
        with pytest.raises(CbTraceError, match="wants PATH=FACTOR"):
            parse_setting(text)


@pytest.mark.parametrize("factor", ["9" * 20, "9" * 400, "1000000.1"])
def test_factors_that_no_step_can_take_are_refused(factor: str) -> None:
    with pytest.raises(CbTraceError, match="a factor is from 0 to 1,000,000, not"):
        parse_setting(f"fc={factor}x")
    for number in (float("nan"), float("inf"), -1.0):
        with pytest.raises(CbTraceError, match="a factor is from 0"):
            Wish("set", "fc", number)


def test_settings() -> None:
    assert parse_setting("h.0.mlp=0.5x") == Wish("set", "h.0.mlp", 0.5)
    assert parse_setting("a=50%") == Wish("set", "a", 0.5)
    assert parse_setting("=2") == Wish("set", "", 2.0)


def two_streams(number: int) -> list[Event]:
    """Two kernels of 80 µs that run at once on two streams."""
    return step_events(number, gemm_us=80, second=(18, 2), add=(22, 80), add_stream=8)


def in_turn(number: int) -> list[Event]:
    """A replay of the same two on one stream: 46 µs each."""
    return sequence_events(number, 120, 46, (60, 46))


def test_streams_slow_each_other_as_they_do_in_the_marginal_costs(tmp_path: Path) -> None:
    samples = [StepSamples(kind="bare", deployment="eager", ns=[102_000] * 3)]
    faster = SpeedupRecord(
        path="fc", deployment="eager", factor=2, base_ns=[102_000] * 3, faster_ns=[70_000] * 3
    )
    bundle = write_net_bundle(tmp_path / "net", step_samples=samples, speedups=[faster])
    manifest = open_bundle(bundle).manifest
    traces = [manifest.traces[1]]
    for role, events in (("context", two_streams), ("sequence", in_turn)):
        made = [event for number in range(3) for event in events(number)]
        file = write_trace(bundle / f"{role}.json.gz", made, baseTimeNanoseconds=0)
        traces.append(TraceRecord(file=file.name, role=role, sha256=file_sha256(file)))  # type: ignore[arg-type]
    write_bundle(bundle, replace(manifest, traces=traces))
    profile = ingest(bundle, tmp_path / "net.duckdb").profile
    with open_profile(profile) as connection:
        marginal = connection.execute(
            "SELECT round(marginal_us * 1000)::BIGINT FROM compare WHERE path = 'fc'"
        ).fetchall()
        predicted = connection.execute("SELECT predicted_ns FROM speedup").fetchall()
    removed, halved = (
        what_if(profile, [wish])[0] for wish in (Wish("remove", "fc"), Wish("set", "fc", 0.5))
    )
    assert [(removed.saved_ns,), (halved.saved_ns,)] == [*marginal, *predicted]
    assert (removed.saved_ns, halved.saved_ns) == (
        49_522,
        26_601,
    )  # 15,000 and 7,500 if they did not


def forked(number: int) -> list[Event]:
    """Kernels of 50 and, after it, 20 µs; beside them, on another stream, one of 30."""
    at, correlation = 1000.0 + 200 * number, 10 * number + 3
    return [
        *step_events(number, gemm_us=50, second=(18, 2), add=(62, 30), add_stream=8),
        op("aten::add", at + 32, 6),
        launch(at + 33, 2, correlation),
        kernel("last", at + 94, 20, correlation),
    ]


def test_the_graph_on_one_stream_is_heard_by_the_marginal_costs_and_by_whatif(
    tmp_path: Path,
) -> None:
    """On one stream 50 + 2 + 30 + 2 + 20; at once 40 at three quarters, 20 more, 2, and 20."""
    samples = [
        StepSamples(kind="bare", deployment="graph", ns=[82_000] * 3),
        StepSamples(kind="bare_one_stream", deployment="graph", ns=[104_000] * 3),
    ]
    bundle = write_net_bundle(tmp_path / "net", step_samples=samples)
    manifest = open_bundle(bundle).manifest
    made = [event for number in range(3) for event in forked(number)]
    file = write_trace(bundle / "context.json.gz", made, baseTimeNanoseconds=0)
    context = TraceRecord(file=file.name, role="context", sha256=file_sha256(file))
    write_bundle(bundle, replace(manifest, traces=[context]))
    profile = ingest(bundle, tmp_path / "net.duckdb").profile
    with open_profile(profile) as connection:
        marginal = connection.execute(
            "SELECT round(marginal_us * 1000)::BIGINT FROM compare WHERE path = 'fc'"
        ).fetchall()
    (found,) = what_if(profile, [Wish("remove", "fc")])
    assert [(found.saved_ns,)] == marginal
    assert found.then_ns == pytest.approx(36_667, abs=5)  # 20 at three quarters, then 10 of the 30


def test_two_factors_of_one_module_are_one_row_of_compare(tmp_path: Path) -> None:
    tried = [
        SpeedupRecord(
            path="fc", deployment="eager", factor=factor, base_ns=[80_000] * 3, faster_ns=[ns] * 3
        )
        for factor, ns in ((4, 66_000), (2, 68_000))
    ]
    bundle = write_net_bundle(tmp_path / "net", speedups=tried)
    with open_profile(ingest(bundle, tmp_path / "net.duckdb").profile) as connection:
        rows = connection.execute(
            "SELECT path, cost_us, speedup_factor, speedup_us, verdict FROM compare"
        ).fetchall()
    assert [row[:4] for row in rows] == [("", 80.0, None, None), ("fc", 30.0, 2, 12.0)]
    assert "on 1/2 of its batch the step is 12 µs shorter" in rows[1][4]
