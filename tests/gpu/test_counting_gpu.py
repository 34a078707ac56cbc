"""Counting on the GPU: the kernels that CUDA chooses, the allocator's bytes, real ceilings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.bundle import Manifest
from cb_trace.capture.ceilings import measure_ceilings
from cb_trace.capture.counting import DEVICE_MEMORY
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.capture.tree import module_tree
from cb_trace.datasheet import datasheet
from cb_trace.providers import load
from cb_trace.replay.cost import StepAccount

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Manifest:
    options = RecordOptions(
        device=str(device), dtype="bf16", bare_seconds=0.2, bare_samples=5, replay_seconds=5.0
    )
    settings = {"batch": 2, "seq": 128, "layers": 2, "width": 768, "heads": 12, "vocab": 1024}
    workload = load("nanogpt", settings=settings, device=str(device))
    return record(workload, tmp_path_factory.mktemp("gpt"), options)


def test_attention_is_in_flops_in_full_and_halved_in_extended(manifest: Manifest) -> None:
    costs = {c.path: c for c in manifest.costs if c.call_index >= 0}
    tokens, seq, width = 256, 128, 768
    linear = tokens * (2 * width * 3 * width + 2 * width * width)
    assert costs["h.0.attn"].flops == linear + tokens * 4 * seq * width
    assert costs["h.0.attn"].flops_by_dtype == {"bf16": costs["h.0.attn"].flops}
    difference = costs["h.0.attn"].flops - costs["h.0.attn"].flops_extended
    assert difference == tokens * 2 * seq * width


def test_nothing_of_it_is_uncounted(manifest: Manifest) -> None:
    assert {name for c in manifest.costs for name in c.uncounted} == set()
    assert not [n for n in manifest.notes if n.reason in ("work not counted",
                                                          "operator not examined")]  # fmt: skip


def test_the_memory_that_recording_takes_is_stated(manifest: Manifest) -> None:
    notes = [n.detail for n in manifest.notes if n.reason == DEVICE_MEMORY]
    assert len(notes) == 1
    assert notes[0].startswith("peak ")


def test_memory_of_a_layer(device: torch.device) -> None:
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU()).to(device)
    given = torch.ones(512, 1024, device=device)
    net(given).sum().backward()  # cuBLAS takes its workspace once
    account = StepAccount(net, module_tree(net).records, device)
    account.run(lambda: net(given))
    held = {m.path: m for m in account.memories if m.phase == "forward"}
    hidden = 512 * 4096 * 4
    assert held["0"].output_bytes == hidden
    assert hidden <= held["0"].peak_bytes < hidden + (64 << 20)  # and scratch space
    assert held["1"].peak_bytes == hidden
    assert held["1"].saved_for_backward_bytes == hidden
    assert held[""].saved_for_backward_bytes == given.nbytes + hidden


def test_backward_on_the_devices_thread_belongs_to_its_modules(device: torch.device) -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).to(device)
    given = torch.ones(32, 64, device=device)
    account = StepAccount(net, module_tree(net).records, device)
    account.run(lambda: net(given).sum().backward())
    flops = {c.path: c.flops for c in account.costs if c.phase == "backward" and c.flops}
    one = 2 * 32 * 64 * 64
    assert flops == {"": 3 * one, "0": one, "1": 2 * one}


def test_fp32_products_are_named_for_what_they_run_as(device: torch.device) -> None:
    net, given = nn.Linear(64, 64).to(device), torch.ones(32, 64, device=device)

    def dtypes() -> dict[str, int]:
        account = StepAccount(net, module_tree(net).records, device)
        account.run(lambda: net(given))
        return account.costs[0].flops_by_dtype

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert set(dtypes()) == {"fp32"}
        torch.set_float32_matmul_precision("high")
        assert set(dtypes()) == {"tf32"}
    finally:
        torch.set_float32_matmul_precision(before)


def test_ceilings_lie_below_the_datasheet_and_not_far(device: torch.device) -> None:
    known = datasheet(torch.cuda.get_device_properties(device).name)
    if known is None:
        pytest.skip("no datasheet of this device")
    best = {(c.kind, c.dtype): c.value for c in measure_ceilings(device) if c.chosen}
    for dtype in ("bf16", "tf32", "fp32"):
        assert 0.5 < best["matmul", dtype] / known.flops_per_s[dtype] <= 1.0, dtype
    assert 0.7 < best["copy", None] / known.bytes_per_s <= 1.0
    assert best["graph_kernel", None] < best["eager_op", None]
    assert torch.get_float32_matmul_precision() == "highest"


def test_recording_can_measure_them(tmp_path: Path, device: torch.device) -> None:
    options = RecordOptions(device=str(device), replay=False, bare_seconds=0.1, bare_samples=3)
    workload = load("nanogpt", device=str(device))
    found = record(workload, tmp_path, replace(options, measure_ceilings=True))
    assert {c.kind for c in found.ceilings} == {
        "matmul", "copy", "triad", "empty_event_pair", "eager_op", "graph_kernel",
    }  # fmt: skip
