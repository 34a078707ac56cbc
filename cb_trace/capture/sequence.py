"""The sequence run: the whole step as one CUDA graph on one stream, profiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from cb_trace.bundle import Note, StepSamples, TraceRecord, file_sha256
from cb_trace.capture.profiled import profile_steps
from cb_trace.capture.step import Step
from cb_trace.replay.sequence import capture_sequence
from cb_trace.replay.timing import settle

SEQUENCE_TRACE = "sequence.json.gz"


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """What a sequence run leaves: nothing but a note where the step cannot be captured."""

    traces: list[TraceRecord] = field(default_factory=list)
    samples: list[StepSamples] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def record_sequence(step: Step, device: torch.device, folder: Path, steps: int) -> SequenceRun:
    """Capture the step on one stream and profile some replays of it into ``folder``."""
    captured, switches = capture_sequence(step, device)
    if captured.reason is not None:
        return SequenceRun(notes=[Note(reason="no sequence run", detail=captured.reason)])
    settle(captured.replay, device)
    target = folder / SEQUENCE_TRACE
    ns = profile_steps(captured.replay, device, steps=steps, target=target)
    notes = []
    if switches.left_out:
        detail = "work of other streams was put on one, in the order it was launched in"
        count = len(switches.left_out)
        notes.append(Note(reason="sequence serialised", detail=detail, count=count))
    return SequenceRun(
        [TraceRecord(file=target.name, role="sequence", sha256=file_sha256(target))],
        [StepSamples(kind="sequence", deployment="graph", ns=ns)],
        notes,
    )
