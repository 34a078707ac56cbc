"""Hand-made attributed timelines: modules by name, kernels as (owner, start, dur)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tests.frames import frame

# root ─┬─ a ─── c
#       ├─ b
#       └─ list (never called) ─── d
ROOT, A, B, C, LIST, D = range(6)
PARENT = {ROOT: None, A: ROOT, B: ROOT, C: A, LIST: ROOT, D: LIST}

MODULE = frame(
    "module", *({"module_id": id_, "run_id": "r", "parent_id": up} for id_, up in PARENT.items())
)


@dataclass
class Timeline:
    """One context trace; ``add`` a kernel, a call, a step, a launch, then take the frames."""

    kernels: list[dict[str, Any]] = field(default_factory=list)
    owners: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)

    def kernel(
        self, owner: int | dict[int, float] | None, start: int, dur: int, **more: Any
    ) -> Timeline:
        """A kernel of one module, of none, or of several by share."""
        phase = more.pop("phase", "forward" if owner is not None else None)
        kernel_id = len(self.kernels)
        row = {"kernel_id": kernel_id, "trace_id": 0, "kind": "kernel", "name": "k", "device": 0}
        given = {"step": 0 if self.steps else None, "start_ns": start, "dur_ns": dur}
        self.kernels.append(row | {"stream": 7} | given | more)
        shares = owner if isinstance(owner, dict) else {owner: 1.0}
        rest = dur
        for number, (module, share) in enumerate(shares.items()):
            ns = rest if number == len(shares) - 1 else int(dur * share)
            rest -= ns
            part: dict[str, Any] = {"kernel_id": kernel_id, "module_id": module, "phase": phase}
            self.owners.append(part | {"share": share, "ns": ns})
        return self

    def call(self, module: int, start: int, dur: int, **more: Any) -> Timeline:
        row: dict[str, Any] = {
            "call_id": len(self.calls),
            "trace_id": 0,
            "module_id": module,
            "thread": 1,
        }
        row |= {"step": 0 if self.steps else None, "phase": "forward"}
        self.calls.append(row | {"start_ns": start, "dur_ns": dur} | more)
        return self

    def step(self, start: int, window: int) -> Timeline:
        row = {"trace_id": 0, "step": len(self.steps), "start_ns": start}
        self.steps.append(row | {"dur_ns": window, "window_ns": window})
        return self

    def launch(self, launch_id: int, name: str, start: int, dur: int, thread: int = 1) -> Timeline:
        row = {"launch_id": launch_id, "trace_id": 0, "name": name, "thread": thread}
        self.launches.append(row | {"start_ns": start, "dur_ns": dur})
        return self

    def frames(self) -> dict[str, Any]:
        """The arguments that the functions over one context trace share."""
        return {
            "kernel": frame("kernel", *self.kernels),
            "kernel_module": frame("kernel_module", *self.owners),
            "module_call": frame("module_call", *self.calls),
            "step": frame("step", *self.steps),
            "module": MODULE,
        }

    def launch_frame(self) -> pl.DataFrame:
        return frame("launch", *self.launches)
