"""The step's CUDA graph, profiled as it runs: what its deployment is explained by.

In an eager step that waits for the host no kernels overlap, and each finds the caches as the idle
time before it left them; in the graph both are otherwise.
"""

from __future__ import annotations

from pathlib import Path

import torch

from cb_trace.bundle import TraceRecord, file_sha256
from cb_trace.capture.profiled import profile_steps
from cb_trace.replay.graph import GraphCapture
from cb_trace.replay.timing import settle

GRAPH_TRACE = "graph.json.gz"
# Replays. On one stream all are alike, and the trace of a large model must stay small; how several
# streams meet differs from one to the next. The reader leaves out the first.
RUNS, RUNS_ON_STREAMS = 12, 24


def profile_graph(
    captured: GraphCapture, device: torch.device, folder: Path, *, streams: bool
) -> TraceRecord:
    """Profile some replays of the step's graph into ``folder``; ``streams``: it has several.

    They run back to back, as the bare ones do: which branch is ahead where two meet depends on what
    is still running when the graph starts (a product of a DLRM, H200, that took 70 µs instead of 17
    in 18 of 24 replays back to back did so in five of twelve that began on an idle device).
    """
    settle(captured.replay, device)
    target = folder / GRAPH_TRACE
    count = RUNS_ON_STREAMS if streams else RUNS
    profile_steps(captured.replay, device, steps=count, target=target, back_to_back=True)
    return TraceRecord(file=target.name, role="graph", sha256=file_sha256(target))
