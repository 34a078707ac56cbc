"""A whole recording on the CPU: what is in the bundle, and that nothing else has changed."""

from __future__ import annotations

import gzip
import json
import random
import socket
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cb_trace.bundle import (
    ONE_STREAM,
    Manifest,
    SampleBlock,
    SampleKind,
    StepSamples,
    file_sha256,
    open_bundle,
)
from cb_trace.capture.bare import BareSteps, unsteady
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.output import bundle_at
from cb_trace.capture.record import record
from cb_trace.errors import CbTraceError
from cb_trace.providers import load
from cb_trace.providers.workload import Workload
from cb_trace.range_names import path_of_range
from cb_trace.replay.clock import clock_of
from cb_trace.replay.timing import time_block
from tests.capture.test_ranges import hook_count

# As short as a recording gets; the method is the same.
QUICK = RecordOptions(
    warmup=1, steps=2, bare_samples=3, bare_seconds=0.0, replay_seconds=3.0, profiled_calls=1
)
PROVIDERS = "tests.capture.models"


def quick(folder: Path, name: str, options: RecordOptions = QUICK) -> tuple[Workload, Manifest]:
    folder.mkdir(exist_ok=True)
    workload = load(name)
    return workload, record(workload, folder, options, provider=name)


def state(model: nn.Module) -> dict[str, object]:
    """Everything of a model that must not change, tensors as bytes."""

    def bits(tensor: Tensor | None) -> object:
        return None if tensor is None else (tensor.detach().view(-1).view(torch.uint8).tolist())

    found: dict[str, object] = {f"{n}.training": m.training for n, m in model.named_modules()}
    found |= {name: (id(b), bits(b)) for name, b in model.named_buffers()}
    for name, parameter in model.named_parameters():
        found[name] = (id(parameter), bits(parameter), bits(parameter.grad))
    return found


def generators() -> tuple[object, list[int]]:
    return random.getstate(), torch.get_rng_state().tolist()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the smallest preset with everything on."""
    target = tmp_path_factory.mktemp("recorded") / "nanogpt.zip"
    with bundle_at(target) as folder:
        record(load("nanogpt"), folder, QUICK, provider="nanogpt")
    return target


def test_a_bundle_reads_back_and_is_complete(bundle: Path) -> None:
    manifest = open_bundle(bundle).manifest
    run = manifest.run
    assert (run.workload, run.provider, run.mode, run.phases) == (
        "nanogpt", "nanogpt", "eager", ["forward"],
    )  # fmt: skip
    assert (run.dtype, run.seed, run.device_type) == ("fp32", 0, "cpu")
    assert run.settings["preset"] == "tiny"
    assert run.torch_version == torch.__version__
    assert run.cpu_threads == torch.get_num_threads()
    kinds = {(s.kind, s.deployment): len(s.ns) for s in manifest.step_samples}
    assert set(kinds) == {("bare", "eager"), ("profiled", "eager"), ("bare_after", "eager")}
    assert kinds["bare", "eager"] >= 3
    assert kinds["profiled", "eager"] == 2
    assert all(ns > 0 for s in manifest.step_samples for ns in s.ns)
    assert [p.name for p in manifest.parameters][:2] == ["wte.weight", "wpe.weight"]
    assert [n.detail for n in manifest.notes if n.reason == "grad mode"] == ["no_grad"]


def test_traces_hold_the_steps_and_match_their_digests(bundle: Path) -> None:
    opened = open_bundle(bundle)
    roles = [t.role for t in opened.manifest.traces]
    assert roles.count("context") == 1
    assert "isolated" in roles
    folder = bundle.parent / "unpacked"
    zipfile.ZipFile(bundle).extractall(folder)
    for trace in opened.manifest.traces:
        assert file_sha256(folder / trace.file) == trace.sha256
    events = json.loads(gzip.decompress((folder / "context.json.gz").read_bytes()))["traceEvents"]
    names = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert names.count("ProfilerStep#0") == names.count("ProfilerStep#1") == 1
    called = {path_of_range(name) for name in names} - {None}
    recorded = {m.path for m in opened.manifest.modules}
    assert called == recorded - {"h"}  # the list itself is never called


def test_every_called_module_was_replayed_hot_and_cold(bundle: Path) -> None:
    manifest = open_bundle(bundle).manifest
    replays = {(r.path, r.condition): r for r in manifest.replays}
    called = {m.path for m in manifest.modules} - {"h"}
    assert set(replays) == {(path, how) for path in called for how in ("hot", "cold")}
    measured = {r.replay_id: r for r in manifest.replays if r.measured_id == r.replay_id}
    assert all(r.measured_id in measured for r in manifest.replays)
    assert replays["h.1", "hot"].measured_id == replays["h.0", "hot"].replay_id
    assert all(r.samples_ns or r.skipped for r in measured.values())


def test_nothing_of_this_machine_is_in_a_bundle(bundle: Path) -> None:
    words = {socket.gethostname(), str(Path.home()), str(Path.cwd()), str(bundle.parent), "/tmp/"}
    archive = zipfile.ZipFile(bundle)
    for name in archive.namelist():
        data = archive.read(name)
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
        header = text.partition('"traceEvents"')[0] if name.endswith(".gz") else text
        assert "host_name" not in header
        for word in words - {"/", ""}:
            assert f'"{word}' not in text, (name, word)


@pytest.mark.parametrize("provider", ["everything", "training"])
def test_the_model_is_bit_equal_afterwards(tmp_path: Path, provider: str) -> None:
    workload = load(f"{PROVIDERS}:{provider}")
    if workload.step:
        workload.step()  # so that there are gradients to keep
    before, drawn = state(workload.model), generators()
    manifest = record(workload, tmp_path, QUICK)
    assert state(workload.model) == before
    assert generators() == drawn
    assert hook_count(workload.model) == 0
    grad = "grad" if workload.step else "no_grad"
    assert [n.detail for n in manifest.notes if n.reason == "grad mode"] == [grad]
    assert not [n for n in manifest.notes if n.reason == "parameters changed"]


def test_autocast_reaches_the_step(tmp_path: Path) -> None:
    _, manifest = quick(tmp_path, "nanogpt", replace(QUICK, dtype="bf16", replay=False))
    assert manifest.run.dtype == "bf16"
    text = gzip.decompress((tmp_path / "context.json.gz").read_bytes()).decode()
    assert "c10::BFloat16" in text
    assert manifest.replays == []


def test_a_model_in_another_dtype_says_so(tmp_path: Path) -> None:
    workload = load("nanogpt")
    workload.model.to(torch.bfloat16)
    assert record(workload, tmp_path, replace(QUICK, replay=False)).run.dtype == "bf16"


def test_a_step_that_raises_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    words = r"the step of .*:raising raised RuntimeError: mat1"
    with pytest.raises(CbTraceError, match=words), bundle_at(tmp_path / "a.zip") as folder:
        record(load(f"{PROVIDERS}:raising"), folder, QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_step_whose_data_ends_is_one_line(tmp_path: Path) -> None:
    model, batches = nn.Linear(4, 4), iter([torch.ones(2, 4)] * 8)
    workload = Workload("short", model, step=lambda: model(next(batches)))
    with pytest.raises(CbTraceError, match=r"the step of short raised StopIteration"):
        record(workload, tmp_path, QUICK)


def test_a_step_that_changes_speed_is_noted() -> None:
    def block(kind: SampleKind, *ns: int) -> StepSamples:
        return StepSamples(kind=kind, deployment="eager", ns=list(ns))

    steady = [block("bare", 100_000, 900_000, 100_000), block("bare_after", 104_000)]
    assert unsteady(steady) == []
    (note,) = unsteady([steady[0], block("bare_after", 60_000, 60_000)])
    assert note.reason == "unsteady step"
    assert note.detail == "bare step 100 µs before the profile, 60 µs after it"
    assert unsteady(steady[:1]) == []


def test_blocks_of_other_speeds_are_noted() -> None:
    blocks = [SampleBlock(turn=0, samples=2), SampleBlock(turn=1, samples=1)]
    fine = StepSamples(kind="bare", deployment="graph", ns=[10_000, 10_400, 11_000], blocks=blocks)
    moved = StepSamples(kind="bare", deployment="eager", ns=[10_000, 10_400, 17_000], blocks=blocks)
    (note,) = unsteady([fine, moved])
    assert note.detail == "blocks of bare steps, eager, from 10 to 17 µs"


class OnAThread(nn.Module):
    """One layer is called here and on another thread, one there only."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.there = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            other: Tensor = pool.submit(lambda: self.there(self.both(x))).result()
        here: Tensor = self.both(x)
        return here + other


def test_modules_that_another_thread_calls_are_told(tmp_path: Path) -> None:
    workload = Workload("threads", OnAThread(), (torch.ones(2, 4),))
    notes = record(workload, tmp_path, QUICK).notes
    assert [n.path for n in notes if n.reason == "called on another thread"] == ["both", "there"]
    assert not [n for n in notes if n.reason == "never called"]


def test_lazy_modules_get_their_shapes_first(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    manifest = record(Workload("lazy", model, (torch.ones(2, 3),)), tmp_path, QUICK)
    assert manifest.modules[1].parameters == 3 * 4 + 4
    assert model[0].weight.shape == (4, 3)


class Interrupt:
    """Raises Ctrl-C at its n-th call, else does what it stands for."""

    def __init__(self, real: Callable[..., object], at: int) -> None:
        self.real, self.left = real, at

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.real(*args, **kwargs)


@pytest.mark.parametrize("at", [1, 5])
def test_ctrl_c_during_replay_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr("cb_trace.replay.isolated.time_block", Interrupt(time_block, at))
    workload = load(f"{PROVIDERS}:everything")
    before = state(workload.model)
    record(workload, tmp_path, replace(QUICK, replay_seconds=60.0))
    assert state(workload.model) == before
    manifest = open_bundle(tmp_path).manifest
    assert manifest.traces[0].role == "context"
    own = [r for r in manifest.replays if r.measured_id == r.replay_id]
    assert sum(bool(r.samples_ns) for r in own) == at - 1
    assert {r.skipped for r in own if not r.samples_ns} == {"interrupted"}
    assert "interrupted" in {n.reason for n in manifest.notes}


def test_ctrl_c_before_the_bare_block_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cb_trace.capture.bare.time_block", Interrupt(time_block, 1))
    with pytest.raises(KeyboardInterrupt), bundle_at(tmp_path / "a.zip") as folder:
        record(load("nanogpt"), folder, QUICK)
    assert list(tmp_path.iterdir()) == []


def test_bare_steps_of_a_deployment_are_told_apart_by_kind() -> None:
    device = torch.device("cpu")
    bare = BareSteps(device, QUICK, clock_of(device), lambda _: None)
    runs: list[str] = []
    bare.add("graph", lambda: runs.append("several"))
    bare.add("graph", lambda: runs.append("one"), ONE_STREAM)
    bare.block(0)
    assert set(runs) == {"several", "one"}
    both = bare.samples()
    assert [(s.kind, s.deployment) for s in both] == [("bare", "graph"), (ONE_STREAM, "graph")]
    assert all(s.ns and len(s.ns) == s.blocks[0].samples for s in both)
