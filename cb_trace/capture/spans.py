"""Which recordings read the host time of every module, and what a reader must know of it."""

from __future__ import annotations

import torch
from torch import nn

from cb_trace.bundle import HostSpanRecord, HostWindowRecord, Note
from cb_trace.capture.modes import Deployed
from cb_trace.capture.options import RecordOptions
from cb_trace.replay.host_spans import HostSpans
from cb_trace.replay.tree import data_parallel


class SpannedSteps:
    """Host spans of one recording: of eager steps on a device, which the host launches.

    A compiled step and a CUDA graph run no forward of a module; on a CPU the host is the device.
    """

    def __init__(
        self, model: nn.Module, how: Deployed, options: RecordOptions, device: torch.device
    ) -> None:
        self._spans: HostSpans | None = None
        self._reason: str | None = None
        if options.mode != "eager" or device.type != "cuda":
            return
        if data_parallel(model):
            self._reason = "a DataParallel runs replicas of its modules on other threads"
            return
        self._spans = HostSpans(how.tree.modules, how.step, device, options.wrap)

    def block(self) -> None:
        """A block of steps beside the bare ones."""
        if self._spans is not None:
            self._spans.block()

    @property
    def records(self) -> list[HostSpanRecord]:
        """One a module that the step calls, and one of the step."""
        return self._spans.records() if self._spans is not None else []

    @property
    def window(self) -> HostWindowRecord | None:
        """Of the steps that were read."""
        return self._spans.window() if self._spans is not None else None

    @property
    def notes(self) -> list[Note]:
        """Why there are none where there should be."""
        reason = self._spans.reason if self._spans is not None else self._reason
        return [Note(reason="no host spans", detail=reason)] if reason is not None else []
