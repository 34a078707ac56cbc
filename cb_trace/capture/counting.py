"""What a recording counts beside timing: work, traffic, memory, and its own appetite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from cb_trace.accounts import CeilingRecord, CostRecord, MemoryRecord
from cb_trace.bundle import ModuleRecord, Note
from cb_trace.capture.ceilings import measure_ceilings
from cb_trace.capture.options import RecordOptions
from cb_trace.replay.cost import StepAccount
from cb_trace.replay.storages import CudaMeter
from cb_trace.replay.walk import Replayer

DEVICE_MEMORY = "device memory of recording"


class Counting:
    """The counted part of one recording; make it before the first step runs."""

    def __init__(self, device: torch.device, options: RecordOptions | None = None) -> None:
        self._options = options or RecordOptions()
        self.costs: list[CostRecord] = []
        self.memories: list[MemoryRecord] = []
        self.ceilings: list[CeilingRecord] = list(self._options.ceilings)
        self._device = device
        self._meter = CudaMeter(device) if device.type == "cuda" else None
        self._step_bytes = 0
        self._notes: list[Note] = []
        if self._meter:
            self._meter.take()

    def warmed_up(self) -> None:
        """Nothing but plain steps has run until now: what was in use is their own need."""
        if self._meter:
            self._step_bytes = self._meter.take()
            self._meter.highest = 0

    def count(
        self,
        model: nn.Module,
        tree: Sequence[ModuleRecord],
        step: Callable[[], object],
        replayer: Replayer | None,
        progress: Callable[[str], None],
    ) -> None:
        """Count one step, and every captured call alone: nothing of it is timed.

        Then measure the ceilings, where asked for, while no profiler has run.
        """
        account = StepAccount(model, tree, self._device, self._meter)
        account.run(step)
        self.take_over(account)
        if replayer is not None and not replayer.interrupted:
            self.memories += replayer.footprints(self._meter)
        if self._options.measure_ceilings:
            self.ceilings = measure_ceilings(self._device, progress=progress)

    def take_over(self, account: StepAccount) -> None:
        """Keep what a pass over one step has counted."""
        self.costs, self.memories = account.costs, account.memories
        self._notes += account.notes

    def notes(self) -> list[Note]:
        """What a reader must know; to be called when the recording is over."""
        if self._meter is None:
            return self._notes
        self._meter.take()
        extra = max(0, self._meter.highest - self._step_bytes)
        detail = f"peak {extra} bytes above the {self._step_bytes} that the step needs by itself"
        return [*self._notes, Note(reason=DEVICE_MEMORY, detail=detail)]
