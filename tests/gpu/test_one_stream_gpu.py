"""On a GPU: the graph of a step as it runs, and on one stream where it has several."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import Tensor, nn

from cb_trace.bundle import ONE_STREAM, Manifest
from cb_trace.capture.graph_runs import GRAPH_TRACE, RUNS, RUNS_ON_STREAMS
from cb_trace.capture.one_stream import NO_FIGURE, capture_on_one_stream
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.providers.workload import Workload
from cb_trace.replay.graph import capture_graph
from cb_trace.replay.timing import settle, time_block

pytestmark = pytest.mark.gpu

QUICK = RecordOptions(
    device="cuda", warmup=2, steps=2, bare_samples=12, bare_seconds=0.2, replay=False,
    compare_plain=False,
)  # fmt: skip
KERNELS = 60  # of a branch, so small that two branches do not feel each other


class Branch(nn.Module):
    """Small kernels one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        for _ in range(KERNELS):
            x = x.sin()
        return x


class Pair(nn.Module):
    """Two branches; ``beside`` runs the second one, given the stream for it."""

    def __init__(self, beside: Callable[[torch.cuda.Stream, nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.main, self.side, self.beside = Branch(), Branch(), beside
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        aside = self.beside(self.stream, self.side, x)
        ahead: Tensor = self.main(x)
        here.wait_stream(self.stream)
        return ahead + aside


def switched(stream: torch.cuda.Stream, branch: nn.Module, x: Tensor) -> Tensor:
    with torch.cuda.stream(stream):
        out: Tensor = branch(x)
    return out


def entered(stream: torch.cuda.Stream, branch: nn.Module, x: Tensor) -> Tensor:
    """Switches below Python."""
    with stream:
        out: Tensor = branch(x)
    return out


def in_line(_: torch.cuda.Stream, branch: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = branch(x)
    return out


def recorded(
    folder: Path,
    device: torch.device,
    beside: Callable[[torch.cuda.Stream, nn.Module, Tensor], Tensor],
    options: RecordOptions = QUICK,
) -> tuple[Pair, Manifest]:
    model = Pair(beside).to(device)
    x = torch.randn(256, device=device)
    return model, record(Workload("pair", model, (x,)), folder, options)


def bare(manifest: Manifest) -> dict[str, float]:
    """Median µs of the graph by kind of timing."""
    graphs = [s for s in manifest.step_samples if s.deployment == "graph"]
    return {s.kind: median(s.ns) / 1e3 for s in graphs if s.ns}


def kernels_by_run(trace: Path) -> list[list[tuple[float, float, int]]]:
    """Start, end and stream of the kernels of every profiled run."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    runs: dict[int, list[tuple[float, float, int]]] = {}
    for e in events:
        if e.get("cat") == "kernel":
            kernel = (e["ts"], e["ts"] + e["dur"], e["args"]["stream"])
            runs.setdefault(e["args"]["correlation"], []).append(kernel)
    return list(runs.values())


def notes(manifest: Manifest) -> list[str]:
    return [note.detail for note in manifest.notes if note.reason == NO_FIGURE]


def graph_us(run: Callable[[], object], device: torch.device) -> float:
    captured = capture_graph(run, device)
    assert captured.reason is None
    settle(captured.replay, device)
    timed = time_block(captured.replay, device, min_samples=12, min_seconds=0.1, calls=50)
    return median(timed.ns) / 1e3


def test_two_streams_are_also_timed_as_one(tmp_path: Path, device: torch.device) -> None:
    switch = torch.cuda.set_stream
    model, manifest = recorded(tmp_path, device, switched)
    assert torch.cuda.set_stream is switch
    found = bare(manifest)
    assert notes(manifest) == []
    assert found[ONE_STREAM] > 1.2 * found["bare"]
    x = torch.randn(256, device=device)
    with torch.no_grad():
        alone = sum(graph_us(partial(branch, x), device) for branch in (model.main, model.side))
    assert found[ONE_STREAM] == pytest.approx(alone, rel=0.2)
    assert [t.role for t in manifest.traces] == ["context", "sequence", "graph"]
    runs = kernels_by_run(tmp_path / GRAPH_TRACE)
    assert len(runs) == RUNS_ON_STREAMS
    for kernels in runs:
        assert len(kernels) == 2 * (KERNELS + 1) + 1
        assert len({stream for _, _, stream in kernels}) == 2
        busy = sum(end - start for start, end, _ in kernels)
        # 1.02 on an H200; one after another, with gaps as long as these kernels, less than 0.7.
        assert busy > 0.85 * (max(k[1] for k in kernels) - min(k[0] for k in kernels))


def test_a_graphed_training_step_on_two_streams_too(tmp_path: Path, device: torch.device) -> None:
    options = replace(QUICK, phase="train", mode="cudagraph")
    model, manifest = recorded(tmp_path, device, switched, options)
    found = bare(manifest)
    assert notes(manifest) == []
    assert found[ONE_STREAM] > 0.95 * found["bare"]
    assert all(p.grad is None for p in model.parameters())


def test_one_stream_has_no_such_figure_and_no_note(tmp_path: Path, device: torch.device) -> None:
    _, manifest = recorded(tmp_path, device, in_line)
    assert "bare" in bare(manifest)
    assert ONE_STREAM not in bare(manifest)
    assert [t.role for t in manifest.traces] == ["context", "sequence", "graph"]
    assert notes(manifest) == []
    runs = kernels_by_run(tmp_path / GRAPH_TRACE)
    assert [len(kernels) for kernels in runs] == [2 * (KERNELS + 1) + 1] * RUNS
    assert all(len({stream for _, _, stream in kernels}) == 1 for kernels in runs)
    spans = sorted((min(k[0] for k in run), max(k[1] for k in run)) for run in runs)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_switch_below_python_is_not_taken_for_one_stream(
    tmp_path: Path, device: torch.device
) -> None:
    _, manifest = recorded(tmp_path, device, entered)
    found = bare(manifest)
    assert "bare" in found, manifest.notes
    if ONE_STREAM in found:
        assert found[ONE_STREAM] > 1.2 * found["bare"]
    else:
        assert len(notes(manifest)) == 1


def test_a_step_that_cannot_be_captured_so_says_why(device: torch.device) -> None:
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    x = torch.ones(8, device=device)

    def reads_back() -> float:
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            out = x.sum()
        torch.cuda.current_stream(device).wait_stream(side)
        return float(out.item())  # a copy to the host cannot be captured

    found = capture_on_one_stream(reads_back, device)
    assert found.capture is None
    assert [note.reason for note in found.notes] == [NO_FIGURE]
    assert "cannot be captured" in found.notes[0].detail
