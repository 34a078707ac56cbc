"""Records of a manifest that were counted, not timed: work, memory, and the device's ceilings.

Standard library only, as ``bundle.py``, which these are part of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

WorkPhase = Literal["forward", "backward", "recompute", "optimizer"]
Scope = Literal["context", "isolated"]
CeilingKind = Literal[
    "matmul", "copy", "triad", "empty_event_pair", "eager_op", "graph_kernel"
]  # fmt: skip
CeilingUnit = Literal["flop/s", "byte/s", "ns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRecord:
    """Work of one call of a module, children included, counted on an uncompiled step.

    ``flops`` is what torch's own counter knows (2·m·n·k, causal attention in full, bias and softmax
    left out). ``flops_extended`` adds our formulas and halves causal attention. An operator that
    neither knows stands in ``uncounted``. ``bytes_compulsory``: what must cross the module's border
    once. ``bytes_requested``: what its operators ask for, one by one. docs/counting.md has more.
    """

    path: str
    phase: WorkPhase
    call_index: int  # of the first such call within the step, from 0; -1: outside every call
    calls: int  # calls a step with just these figures
    flops: int
    flops_extended: int
    bytes_compulsory: int
    bytes_requested: int
    uncounted: dict[str, int] = field(default_factory=dict)  # operator as in a trace → its calls
    flops_by_dtype: dict[str, int] = field(default_factory=dict)  # of ``flops``; tf32 is a dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """Bytes that one module needs while it runs, in the step or alone, children included."""

    path: str
    phase: WorkPhase
    scope: Scope
    peak_bytes: int  # above what was held when the call began; of its largest call
    saved_for_backward_bytes: int  # of all its calls in a step; parameters and buffers left out
    output_bytes: int  # of its largest call


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRecord:
    """One measurement of what the device, or the host that feeds it, can do at best."""

    kind: CeilingKind
    value: float
    unit: CeilingUnit
    dtype: str | None = None  # bf16, fp16, tf32, fp32, fp8
    shape: str | None = None  # m×n×k, or the bytes moved
    chosen: bool = True  # the best of its kind and dtype
