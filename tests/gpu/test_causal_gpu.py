"""On a GPU: knock-out in both deployments, and the sequence run on one stream."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.capture.sequence import record_sequence
from cb_trace.replay.knockout import Job, Knockout, KnockoutOptions
from cb_trace.replay.sequence import capture_sequence

pytestmark = pytest.mark.gpu


class TwoStreams(nn.Module):
    """``side`` runs beside ``main`` on a stream of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.side, self.last = (nn.Linear(2048, 2048, bias=False) for _ in range(3))
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            aside = self.side(x)
        ahead = self.main(x)
        here.wait_stream(self.stream)
        out: torch.Tensor = self.last(ahead + aside)
        return out


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device("cuda", 0)


def in_line(device: torch.device) -> nn.Sequential:
    layers = [nn.Linear(4096, 4096, bias=False) for _ in range(4)]
    return nn.Sequential(*layers, nn.Identity()).to(device)


def test_knock_out_of_one_of_four_equal_layers_saves_a_quarter(device: torch.device) -> None:
    model, x = in_line(device), torch.randn(4096, 4096, device=device)

    def step() -> object:
        with torch.no_grad():
            return model(x)

    options = KnockoutOptions(budget_seconds=4)
    knockout = Knockout(dict(model.named_modules()), step, device, options, print)
    knockout.run([Job("1"), Job("4")], graph=True, known={})
    layer, same = knockout.outcomes[:2], knockout.outcomes[2:]
    assert [record.deployment for record in layer] == ["eager", "graph"]
    assert all(r.skipped == "its output shares memory with its inputs" for r in same)
    for record in layer:
        assert record.skipped is None
        lost = sorted(b - k for b, k in zip(record.base_ns, record.changed_ns, strict=True))
        base = sorted(record.base_ns)
        ratio = lost[len(lost) // 2] / base[len(base) // 2]
        assert 0.2 < ratio < 0.3, record.deployment
    assert "forward" not in vars(model[1])


def test_the_sequence_runs_the_steps_kernels_one_after_another(
    device: torch.device, tmp_path: Path
) -> None:
    model, x = TwoStreams().to(device), torch.randn(512, 2048, device=device)

    def step() -> object:
        with torch.no_grad():
            return model(x)

    recorded = record_sequence(step, device, tmp_path, 2)
    (trace,) = recorded.traces
    assert [note.reason for note in recorded.notes] == ["sequence serialised"]
    assert len(recorded.samples[0].ns) == 2
    events = json.loads(gzip.decompress((tmp_path / trace.file).read_bytes()))["traceEvents"]
    found = [e for e in events if e.get("cat") == "kernel"]
    spans = sorted((float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in found)
    assert len(spans) >= 8
    assert len({e["args"]["stream"] for e in found}) == 1
    # The start of a kernel may reach into the end of the one before (programmatic launch).
    assert all(after[0] >= before[1] - 2 for before, after in pairwise(spans))


def test_the_switch_of_streams_works_again_afterwards(device: torch.device) -> None:
    switch = torch.cuda.set_stream
    x = torch.ones(8, device=device)
    captured, switches = capture_sequence(lambda: x + 1, device)
    assert captured.reason is None
    assert not switches.left_out
    assert torch.cuda.set_stream is switch


def test_a_step_that_cannot_be_captured_leaves_a_note(device: torch.device, tmp_path: Path) -> None:
    x = torch.ones(8, device=device)
    recorded = record_sequence(lambda: x.sum().item(), device, tmp_path, 1)
    assert not recorded.traces
    assert [note.reason for note in recorded.notes] == ["no sequence run"]
