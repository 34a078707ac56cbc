"""Whole recordings on the GPU: what a bundle holds, before any of the reading half sees it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from cb_trace.bundle import Manifest, file_sha256, open_bundle
from cb_trace.capture.again import replay_bundle
from cb_trace.capture.graph_runs import GRAPH_TRACE, RUNS
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.providers import load
from cb_trace.providers.workload import Workload
from cb_trace.range_names import path_of_range
from tests.capture.models import Everything
from tests.capture.test_record import generators, state

pytestmark = pytest.mark.gpu

Event = dict[str, Any]
LAUNCHES = ("cuda_runtime", "cuda_driver")
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Recorded:
    folder: Path
    manifest: Manifest
    events: list[Event]

    def of(self, *categories: str) -> list[Event]:
        return [e for e in self.events if e.get("cat") in categories and e["ph"] == "X"]


@pytest.fixture(scope="module", params=["nanogpt", "deepfm"])
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, device: torch.device
) -> Recorded:
    folder = tmp_path_factory.mktemp(request.param)
    workload = load(request.param, device=str(device))
    options = RecordOptions(device=str(device), bare_seconds=0.5, replay_seconds=10.0)
    record(workload, folder, options, provider=request.param)
    text = gzip.decompress((folder / "context.json.gz").read_bytes())
    return Recorded(folder, open_bundle(folder).manifest, json.loads(text)["traceEvents"])


def enclosing(event: Event, ranges: list[Event]) -> list[Event]:
    """The ranges of the event's thread around its start."""
    return [
        r for r in ranges
        if r["tid"] == event["tid"] and r["ts"] <= event["ts"] <= r["ts"] + r["dur"]
    ]  # fmt: skip


def test_the_device_is_described(recorded: Recorded, device: torch.device) -> None:
    run = recorded.manifest.run
    assert (run.device_type, run.device_name) == ("cuda", torch.cuda.get_device_name(device))
    assert run.cuda_version == torch.version.cuda
    assert run.driver_version is not None
    assert run.sm_clock_mhz is not None
    assert 200 < run.sm_clock_mhz < 4000
    assert run.l2_bytes is not None
    assert run.l2_bytes > 1 << 20


def test_bare_samples_are_there_for_both_deployments(recorded: Recorded) -> None:
    samples = {(s.kind, s.deployment): s.ns for s in recorded.manifest.step_samples}
    wanted = {("bare", "eager"), ("bare", "graph"), ("profiled", "eager"), ("bare_after", "eager")}
    assert set(samples) == {*wanted, ("sequence", "graph")}, recorded.manifest.notes
    assert len(samples["bare", "eager"]) >= 30
    assert len(samples["bare", "graph"]) >= 30
    assert all(1_000 < ns < 1_000_000_000 for taken in samples.values() for ns in taken)
    # A tiny step is host-bound: the graph of the same kernels is the faster one.
    assert median(samples["bare", "graph"]) < median(samples["bare", "eager"])


def test_every_kernel_of_a_step_has_a_launch_inside_a_module(recorded: Recorded) -> None:
    ranges = recorded.of("user_annotation")
    steps = [r for r in ranges if r["name"].startswith("ProfilerStep#")]
    assert len(steps) == 3
    launches = {
        e["args"]["correlation"]: e for e in recorded.of(*LAUNCHES) if "correlation" in e["args"]
    }
    modules = [r for r in ranges if path_of_range(r["name"]) is not None]
    in_step = 0
    for kernel in recorded.of(*DEVICE_WORK):
        launch = launches[kernel["args"]["correlation"]]
        if enclosing(launch, steps):
            in_step += 1
            assert enclosing(launch, modules), kernel["name"]
    assert in_step >= 3 * 10


def test_steps_are_alike_and_end_before_the_next_begins(recorded: Recorded) -> None:
    steps = [e for e in recorded.of("user_annotation") if e["name"].startswith("ProfilerStep#")]
    launches = recorded.of(*LAUNCHES)
    work = {e["args"]["correlation"]: e for e in recorded.of(*DEVICE_WORK)}
    names = []
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        inside = [e["args"].get("correlation") for e in launches if enclosing(e, [step])]
        kernels = [work[c] for c in inside if c in work]
        names.append(sorted(k["name"] for k in kernels))
        if following is not None:
            assert max(k["ts"] + k["dur"] for k in kernels) <= following["ts"]
    assert names[0] == names[1] == names[2]


def test_every_profiled_run_of_the_graph_has_the_kernels_of_the_step(recorded: Recorded) -> None:
    text = gzip.decompress((recorded.folder / GRAPH_TRACE).read_bytes())
    events = [e for e in json.loads(text)["traceEvents"] if e.get("ph") == "X"]
    launched = [e["args"]["correlation"] for e in events if e["name"] == "cudaGraphLaunch"]
    assert len(launched) == RUNS
    ran: dict[int, list[str]] = {}
    for e in events:
        if e.get("cat") == "kernel":
            ran.setdefault(e["args"]["correlation"], []).append(e["name"])
    step = Counter(e["name"] for e in recorded.of("kernel"))
    assert sorted(ran) == sorted(launched)
    for names in ran.values():
        assert {name: 3 * count for name, count in Counter(names).items()} == dict(step)


def test_replays_have_samples_and_kernels(recorded: Recorded) -> None:
    manifest = recorded.manifest
    called = {
        path_of_range(e["name"]) for e in recorded.of("user_annotation")
    } - {None}  # fmt: skip
    assert {r.path for r in manifest.replays} == called
    own = [r for r in manifest.replays if r.measured_id == r.replay_id]
    assert {r.condition for r in own} == {"hot", "cold", "graph"}
    assert [r.skipped for r in own if r.path == ""] == [None, None, None]
    ranges, kernels = set(), 0
    for trace in manifest.traces:
        assert file_sha256(recorded.folder / trace.file) == trace.sha256
        if trace.role == "isolated":
            text = gzip.decompress((recorded.folder / trace.file).read_bytes())
            events = json.loads(text)["traceEvents"]
            ranges |= {e["name"] for e in events if e.get("cat") == "user_annotation"}
            kernels += sum(e.get("cat") == "kernel" for e in events)
    measured = [r for r in own if r.samples_ns and r.condition != "graph"]
    assert {f"cb_replay:{r.replay_id}:0" for r in measured} <= ranges
    assert kernels > len(measured)


def test_every_called_module_has_its_host_time(recorded: Recorded) -> None:
    manifest = recorded.manifest
    assert [note for note in manifest.notes if note.reason == "no host spans"] == []
    paths = [path_of_range(e["name"]) for e in recorded.of("user_annotation")]
    called = Counter(path for path in paths if path is not None)
    steps = 3
    counted = {r.path: r.calls * steps for r in manifest.host_spans}
    assert counted.pop(None) == steps
    assert counted == called
    samples = {len(r.ns) for r in manifest.host_spans}
    assert len(samples) == 1
    assert samples.pop() >= 4 * 3
    assert all(median(r.ns) > 0 for r in manifest.host_spans if r.path is not None)
    # The host bounds a tiny step: what it takes is most of the step. (How well the two agree is a
    # matter of timing, and of what else runs: docs/accuracy.md.)
    bare = next(s for s in manifest.step_samples if (s.kind, s.deployment) == ("bare", "eager"))
    sums = [sum(sample) for sample in zip(*(r.ns for r in manifest.host_spans), strict=True)]
    assert 0.3 < median(sums) / median(bare.ns) < 3


def test_the_model_is_bit_equal_afterwards(tmp_path: Path, device: torch.device) -> None:
    model = Everything().to(device)
    workload = Workload("everything", model, (torch.randn(16, 8, device=device),))
    before, drawn, on_device = state(model), generators(), torch.cuda.get_rng_state(device)
    options = RecordOptions(device=str(device), bare_seconds=0.2, replay_seconds=5.0)
    record(workload, tmp_path, options)
    assert state(model) == before
    assert generators() == drawn
    assert torch.equal(torch.cuda.get_rng_state(device), on_device)


def test_autocast_runs_in_the_dtype(tmp_path: Path, device: torch.device) -> None:
    workload = load("nanogpt", device=str(device))
    options = RecordOptions(device=str(device), dtype="bf16", bare_seconds=0.2, replay_seconds=5.0)
    manifest = record(workload, tmp_path, options)
    assert manifest.run.dtype == "bf16"
    text = gzip.decompress((tmp_path / "context.json.gz").read_bytes()).decode()
    assert "c10::BFloat16" in text
    assert ("bare", "graph") in {(s.kind, s.deployment) for s in manifest.step_samples}


def test_a_bundle_is_replayed_again(recorded: Recorded, tmp_path: Path) -> None:
    options = RecordOptions(device="cuda", replay_seconds=5.0)
    manifest = replay_bundle(recorded.folder, tmp_path, options)
    assert {r.path for r in manifest.replays} == {r.path for r in recorded.manifest.replays}
    assert any(r.samples_ns for r in manifest.replays)
