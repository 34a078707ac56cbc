"""Profiled replays of a step's graph, as far as a machine without one can tell."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from cb_trace.bundle import file_sha256
from cb_trace.capture.graph_runs import RUNS, RUNS_ON_STREAMS, profile_graph
from cb_trace.replay.graph import GraphCapture

CPU = torch.device("cpu")


class Replayed:
    """Stands for a CUDA graph, of one addition."""

    def __init__(self) -> None:
        self.x = torch.ones(2)

    def replay(self) -> None:
        self.x.add_(1)


@pytest.mark.parametrize(("streams", "runs"), [(False, RUNS), (True, RUNS_ON_STREAMS)])
def test_every_replay_is_a_step_of_the_trace(streams: bool, runs: int, tmp_path: Path) -> None:
    captured = GraphCapture(cast("Any", Replayed()))
    record = profile_graph(captured, CPU, tmp_path, streams=streams)
    file = tmp_path / record.file
    assert (record.file, record.role, record.sha256) == (
        "graph.json.gz",
        "graph",
        file_sha256(file),
    )
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = [e["name"] for e in events if e.get("cat") in {"user_annotation", "cpu_op"}]
    assert names.count("aten::add_") == runs
    steps = [name for name in names if name.startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{number}" for number in range(runs)]
