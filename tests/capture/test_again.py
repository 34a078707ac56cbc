"""Replay of a bundle that exists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cb_trace.bundle import MANIFEST, Manifest, open_bundle, write_bundle
from cb_trace.capture.again import replay_bundle
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.capture.step import Step, step_of
from cb_trace.errors import CbTraceError
from cb_trace.providers import load
from cb_trace.providers.workload import Workload
from cb_trace.replay import tour
from tests.capture.test_record import PROVIDERS, QUICK, quick


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    options = replace(QUICK, replay=False, seed=4, dtype="bf16")
    few = {"tables": 1, "batch": 8}
    record(load("deepfm", settings=few, seed=4), folder, options, provider="deepfm")
    return folder


def test_replays_are_renewed_and_the_rest_is_kept(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "DEVICES", ("cpu",))
    before = open_bundle(recorded).manifest
    returned = replay_bundle(recorded, tmp_path, replace(QUICK, replay_seconds=5.0))
    after = open_bundle(tmp_path).manifest
    assert after == returned
    assert (after.run, after.modules, after.step_samples) == (
        before.run, before.modules, before.step_samples,
    )  # fmt: skip
    assert [t for t in after.traces if t.role == "context"] == before.traces
    assert (tmp_path / "context.json.gz").read_bytes() == (
        recorded / "context.json.gz"
    ).read_bytes()
    assert "isolated" in {t.role for t in after.traces}
    assert {r.path for r in after.replays if r.samples_ns} >= {"dense_arch", "inter_arch.fm"}
    assert before.host_tours == []
    assert {r.path for r in after.host_tours} >= {"inter_arch.fm"}


def changed(recorded: Path, folder: Path, manifest: Manifest) -> Path:
    write_bundle(folder, manifest)
    return folder


def test_a_live_model_cannot_be_built_again(tmp_path: Path) -> None:
    workload, _ = quick(tmp_path / "a", f"{PROVIDERS}:everything", replace(QUICK, replay=False))
    manifest = open_bundle(tmp_path / "a").manifest
    write_bundle(tmp_path / "a", replace(manifest, run=replace(manifest.run, provider=None)))
    with pytest.raises(CbTraceError, match="names no provider"):
        replay_bundle(tmp_path / "a", tmp_path, QUICK)
    assert workload.model.training


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is here")
def test_a_recording_of_a_device_that_is_not_here(recorded: Path, tmp_path: Path) -> None:
    manifest = open_bundle(recorded).manifest
    run = replace(manifest.run, device_type="cuda", device_name="NVIDIA H200")
    other = changed(recorded, tmp_path, replace(manifest, run=run))
    with pytest.raises(
        CbTraceError, match="recorded on NVIDIA H200; this machine has no"
    ) as caught:
        replay_bundle(other, tmp_path, QUICK)
    assert "of the kind cuda" in caught.value.hint


def test_another_model_than_the_recorded_one_is_refused(recorded: Path, tmp_path: Path) -> None:
    manifest = open_bundle(recorded).manifest
    settings = {**manifest.run.settings, "hidden": 64}
    other = replace(manifest, run=replace(manifest.run, settings=settings))
    with pytest.raises(CbTraceError, match="no longer builds the model that was recorded"):
        replay_bundle(changed(recorded, tmp_path, other), tmp_path, QUICK)


def test_a_provider_that_is_gone_is_one_line(recorded: Path, tmp_path: Path) -> None:
    manifest = open_bundle(recorded).manifest
    other = replace(manifest, run=replace(manifest.run, provider="gone:model"))
    with pytest.raises(CbTraceError, match="cannot import gone"):
        replay_bundle(changed(recorded, tmp_path, other), tmp_path, QUICK)


def asked(
    folder: Path, name: str, options: RecordOptions, monkeypatch: pytest.MonkeyPatch
) -> RecordOptions:
    """What a replay of a bundle does, of all that may change what is measured."""
    quick(folder, f"{PROVIDERS}:{name}", replace(options, replay=False))
    seen: list[RecordOptions] = []

    def step(workload: Workload, given: RecordOptions, device: torch.device) -> Step:
        seen.append(given)
        return step_of(workload, given, device)

    monkeypatch.setattr("cb_trace.capture.again.step_of", step)
    (folder / "again").mkdir()
    replay_bundle(folder, folder / "again", QUICK)
    return replace(seen[0], replay=False)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("caller_in_bf16", QUICK),
        ("caller_in_bf16", replace(QUICK, wrap=("encode",), seed=3, grad=True)),
        ("everything", replace(QUICK, dtype="bf16", phase="train", grad=True)),
    ],
)
def test_a_replay_has_the_options_of_the_recording(
    name: str, options: RecordOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = replace(options, replay=False, grad=bool(options.grad))
    assert asked(tmp_path / "a", name, options, monkeypatch) == expected


def test_wrapped_methods_are_replayed_as_calls(tmp_path: Path) -> None:
    """What the replay measures is what a recording with replay measures, and the step had."""
    options, name = replace(QUICK, wrap=("encode",)), f"{PROVIDERS}:caller_in_bf16"
    _, whole = quick(tmp_path / "whole", name, options)
    quick(tmp_path / "a", name, replace(options, replay=False))
    (tmp_path / "again").mkdir()
    replayed = replay_bundle(tmp_path / "a", tmp_path / "again", QUICK)

    def calls(manifest: Manifest) -> list[tuple[str, str, int, int]]:
        return [(r.path, r.condition, r.call_index, r.calls) for r in manifest.replays]

    assert calls(replayed) == calls(whole)
    assert [r.path for r in replayed.replays if r.samples_ns].count("coder") == 2  # hot and cold


def test_a_bundle_that_does_not_say_what_was_wrapped_opens(tmp_path: Path) -> None:
    quick(tmp_path / "a", f"{PROVIDERS}:caller_in_bf16", replace(QUICK, replay=False))
    document = json.loads((tmp_path / "a" / MANIFEST).read_text())
    del document["run"]["wrap"], document["run"]["autocast"]
    (tmp_path / "a" / MANIFEST).write_text(json.dumps(document))
    run = open_bundle(tmp_path / "a").manifest.run
    assert (run.wrap, run.autocast, run.dtype) == ([], None, "bf16")
    (tmp_path / "again").mkdir()
    assert replay_bundle(tmp_path / "a", tmp_path / "again", QUICK).replays
