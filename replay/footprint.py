"""Memory of one captured call alone: the same pass as in the step, over the call only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import nn

from cb_trace.accounts import MemoryRecord
from cb_trace.replay.accounting import Accounting, Frame
from cb_trace.replay.captures import Captures
from cb_trace.replay.cost import saved_bytes
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.hooks import Call
from cb_trace.replay.isolated import IsolatedCall, SkippedError, isolated
from cb_trace.replay.storages import CudaMeter


def footprint(
    call: Call, ready: IsolatedCall, device: torch.device, meter: CudaMeter | None
) -> Frame | None:
    """Run a call once and return what was held meanwhile; None where the module was not called, or
    does not run while it is counted (one that differentiates by ``torch.func`` does not).

    Its output, and with it what it keeps for a backward, is let go before the next call.
    """
    accounting = Accounting({call.path: call.module}, device, meter)
    ready.prepare()
    try:
        with accounting.counting():
            ready.run()
    except Exception:  # the module's own code, under hooks that it may refuse
        return None
    return next((frame for frame in accounting.frames if frame.path == call.path), None)


def footprints(
    captures: Captures,
    model: nn.Module,
    step: Callable[[], object] | None,
    device: torch.device,
    flush: CacheFlush,
    *,
    meter: CudaMeter | None,
) -> list[MemoryRecord]:
    """Memory of every captured call that can be replayed, alone; nothing is timed."""
    found: dict[Call, Frame] = {}
    wanted = [call for call in captures.to_measure() if call.reason is None]
    for group in captures.in_memory(wanted, model, step):
        for call in group:
            with suppress(SkippedError), isolated(call, device, flush) as ready:
                frame = footprint(call, ready, device, meter)
                if frame is not None:
                    found[call] = frame
    return records_alone(captures.calls, captures.measured_by, found)


def records_alone(
    calls: Sequence[Call], measured_by: Callable[[Call], Call], found: Mapping[Call, Frame]
) -> list[MemoryRecord]:
    """One record a module; a call that another stands for has the other's figures."""
    of_module: dict[str, list[tuple[Call, Frame]]] = {}
    for call in calls:
        frame = found.get(measured_by(call))
        if frame is not None:
            of_module.setdefault(call.path, []).append((call, frame))
    return [
        MemoryRecord(
            path=path,
            phase="forward",
            scope="isolated",
            peak_bytes=max(frame.peak for _, frame in group),
            saved_for_backward_bytes=sum(
                call.calls * saved_bytes(iter([frame.saved])) for call, frame in group
            ),
            output_bytes=max(frame.output_bytes for _, frame in group),
        )
        for path, group in of_module.items()
    ]
