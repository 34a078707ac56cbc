"""Counted work and held memory of a step, as records: see :mod:`cb_trace.replay.accounting`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from cb_trace.accounts import CostRecord, MemoryRecord, WorkPhase
from cb_trace.bundle import ModuleRecord, Note
from cb_trace.replay.accounting import Accounting, Frame
from cb_trace.replay.graph import one_line
from cb_trace.replay.guard import preserved
from cb_trace.replay.storages import CudaMeter, Storage
from cb_trace.replay.tree import modules_by_path


class StepAccount:
    """Counts one step of a model: fresh counters every time, so that a second pass agrees.

    ``costs``, ``memories`` and ``notes`` are filled when the step is over. A ``meter`` that is
    given is read instead of one of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        tree: Sequence[ModuleRecord],
        device: torch.device,
        meter: CudaMeter | None = None,
    ) -> None:
        self.costs: list[CostRecord] = []
        self.memories: list[MemoryRecord] = []
        self.notes: list[Note] = []
        self._model, self._device, self._meter = model, device, meter
        self._modules = modules_by_path(model, tree)

    def run(self, step: Callable[[], object]) -> None:
        """Count one run of a step and leave the model as it was; a failure is a note."""
        try:
            with preserved(self._model, self._device), self.counting():
                step()
        except Exception as error:  # hooks that a model refuses, say
            self.costs, self.memories = [], []
            self.notes = [Note(reason="work not counted", detail=one_line(error))]

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the caller runs one step inside the block."""
        accounting = Accounting(self._modules, self._device, self._meter)
        with accounting.counting():
            yield
        frames = [frame for frame in accounting.frames if _counts(frame)]
        order = {path: place for place, path in enumerate(self._modules)}
        frames.sort(
            key=lambda frame: (order.get(frame.path, -1), frame.phase, frame.index < 0, frame.index)
        )
        self.costs, self.memories = cost_records(frames), memory_records(frames)
        self.notes = _failures(accounting.failures)


def cost_records(frames: Sequence[Frame]) -> list[CostRecord]:
    """One record for all calls of a module and phase that did just the same work."""
    alike: dict[tuple[object, ...], list[Frame]] = {}
    for frame in frames:
        figures = (*frame.work.figures(), frame.border.compulsory())
        alike.setdefault((frame.path, frame.phase, figures), []).append(frame)
    return [_cost(same) for same in alike.values()]


def memory_records(frames: Sequence[Frame]) -> list[MemoryRecord]:
    """One record a module and phase, from its calls in the step."""
    calls: dict[tuple[str, WorkPhase], list[Frame]] = {}
    for frame in frames:
        calls.setdefault((frame.path, frame.phase), []).append(frame)
    return [
        MemoryRecord(
            path=path,
            phase=phase,
            scope="context",
            peak_bytes=max(frame.peak for frame in group),
            saved_for_backward_bytes=saved_bytes(frame.saved for frame in group),
            output_bytes=max(frame.output_bytes for frame in group),
        )
        for (path, phase), group in calls.items()
    ]


def saved_bytes(saved: Iterator[Mapping[Storage, int]]) -> int:
    """Bytes of distinct storages."""
    merged: dict[Storage, int] = {}
    for part in saved:
        merged.update(part)
    return sum(merged.values())


def _cost(same: Sequence[Frame]) -> CostRecord:
    first, work = same[0], same[0].work
    return CostRecord(
        path=first.path,
        phase=first.phase,
        call_index=first.index,
        calls=len(same),
        flops=work.flops,
        flops_extended=work.extended,
        bytes_compulsory=first.border.compulsory(),
        bytes_requested=work.asked_bytes,
        uncounted=dict(sorted(work.uncounted.items())),
        flops_by_dtype=dict(sorted(work.by_dtype.items())),
    )


def _counts(frame: Frame) -> bool:
    """Not a call of a module inside a call of itself, whose work is in the outer one."""
    return frame.module is None or frame in frame.chain


def _failures(failures: Mapping[str, int]) -> list[Note]:
    return [
        Note(reason="operator not examined", detail=name, count=count)
        for name, count in sorted(failures.items())
    ]
