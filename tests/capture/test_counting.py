"""What a recording counts: in the bundle, of every module, in the step and alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cb_trace.accounts import CeilingRecord
from cb_trace.bundle import Manifest
from cb_trace.capture.record import record
from cb_trace.providers import load
from tests.capture.test_record import QUICK

KNOWN = CeilingRecord(kind="matmul", value=1e12, unit="flop/s", dtype="fp32", shape="8×8×8")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    options = replace(QUICK, ceilings=(KNOWN,))
    return record(load("deepfm"), tmp_path_factory.mktemp("deepfm"), options)


def test_every_called_module_is_counted(manifest: Manifest) -> None:
    never_called = {"sparse_arch.embedding_bags"}
    assert {c.path for c in manifest.costs} == {m.path for m in manifest.modules} - never_called
    assert not any(c.uncounted for c in manifest.costs)
    root = next(c for c in manifest.costs if c.path == "")
    assert root.flops == 2_236_544
    assert root.flops_by_dtype == {"fp32": 2_236_544}


def test_memory_is_there_in_the_step_and_alone(manifest: Manifest) -> None:
    held = {(m.path, m.scope): m.peak_bytes for m in manifest.memories}
    dense = "dense_arch.model.0"
    assert held[dense, "context"] == held[dense, "isolated"] == 64 * 128 * 4


def test_ceilings_that_are_known_are_kept(manifest: Manifest) -> None:
    assert manifest.ceilings == [KNOWN]


def test_without_replay_the_step_is_counted_all_the_same(tmp_path: Path) -> None:
    found = record(load("deepfm"), tmp_path, replace(QUICK, replay=False))
    assert found.costs
    assert {m.scope for m in found.memories} == {"context"}
