"""Replay every module of a model alone, breadth first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from cb_trace.bundle import Condition, ModuleRecord, Note, ReplayRecord, TraceRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is measured, and how much time and memory it may take."""

    dedup: bool = True
    conditions: tuple[Condition, ...] = ("hot", "cold", "graph")  # graph on CUDA only
    budget_seconds: float = 30.0  # for all timing; profiling comes on top
    max_capture_bytes: int | None = None  # None: half of the free memory
    profiled_calls: int = 3
    min_samples: int = 10
    noise_ratio: float = 0.005


class Replayer:
    """Replays the modules of a model one by one on the inputs they had in the step."""

    def __init__(  # noqa: PLR0917 - the parts of one measurement, named at every call
        self,
        model: nn.Module,
        step: Callable[[], object] | None,
        tree: Sequence[ModuleRecord],
        device: torch.device,
        options: ReplayOptions,
        progress: Callable[[str], None],
    ) -> None:
        self.model, self.step, self.tree, self.device = model, step, tree, device
        self.options, self.progress = options, progress
        self.records: list[ReplayRecord] = []
        self.notes: list[Note] = []
        self.interrupted = False

    def capture(self) -> None:
        """Run the step once and keep the live inputs of the calls to replay."""
        raise NotImplementedError

    def time(self) -> None:
        """Time every module alone, with no profiler attached."""
        raise NotImplementedError

    def profile(self, folder: Path) -> list[TraceRecord]:
        """Record the kernels of every timed module into ``isolated-*.json.gz``."""
        raise NotImplementedError
