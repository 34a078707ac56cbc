"""Cold samples behind the step's graph: the clock is scripted, all else is the device's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import median

import pytest
import torch

from cb_trace.capture.tree import module_tree
from cb_trace.replay.behind import BehindStep
from cb_trace.replay.clock import Reading
from cb_trace.replay.graph import capture_step
from cb_trace.replay.timing import window_ns
from cb_trace.replay.walk import Replayer, ReplayOptions
from tests.gpu.test_replay_gpu import GPU, model_of

pytestmark = pytest.mark.gpu


class Scripted:
    """A clock that always reads the same."""

    driver_version: str | None = None

    def __init__(self, mhz: int) -> None:
        self.mhz = mhz

    def read(self) -> Reading:
        return Reading(self.mhz)


def test_cold_samples_behind_the_step_are_whole_and_leave_the_model_as_it_was(
    tmp_path: Path,
) -> None:
    model, step = model_of(16_384)  # rows: a step of some hundred µs, so few make a load
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.cuda.get_rng_state(GPU)
    options = ReplayOptions(budget_seconds=6.0)
    work = Replayer(model, step, module_tree(model).records, GPU, options, lambda _: None)
    work.capture()
    captured = capture_step(step, GPU)
    assert captured.reason is None
    torch.cuda.set_rng_state(rng, GPU)
    work._clock = Scripted(1980)
    work.behind = BehindStep(model, GPU, Scripted(1755))
    work.behind.replay = captured.replay
    work.time()
    said = [note.detail for note in work.notes if note.reason == "cold behind the step"]
    assert said == ["the step runs at 1755 MHz, modules alone at 1980"]
    found = {(r.path, r.condition): r for r in work.records}
    cold = [r for r in work.records if r.condition == "cold"]
    for record in cold:
        assert record.samples_ns
        assert sum(b.samples + b.dropped for b in record.blocks if b.turn) >= 8
    assert {(b.turn, b.samples > 0) for r in cold for b in r.blocks} >= {(0, False), (2, True)}
    for path in ("0", "3"):
        graph = median(found[path, "graph"].samples_ns)
        assert median(found[path, "cold"].samples_ns) >= 0.9 * graph
    (trace,) = work.profile(tmp_path)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.cuda.get_rng_state(GPU), rng)
    assert work.behind.load is not None
    assert 10e6 < window_ns(work.behind.load, GPU, 1) < 80e6
    events = json.loads(gzip.decompress((tmp_path / trace.file).read_bytes()))["traceEvents"]
    assert not [e for e in events if "GraphLaunch" in e["name"]]
    assert len([e for e in events if e.get("cat") == "kernel"]) < 1_000
