"""Counted work of one call, and the precision it was done in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from cb_trace.replay.formulas import Counted, operator_name
from cb_trace.replay.traffic import tensors

_NAMES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int8: "int8",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}


@dataclass(slots=True)
class Work:
    """Sums over the operators of a call; Python integers, which do not overflow."""

    flops: int = 0
    extended: int = 0
    asked_bytes: int = 0
    uncounted: Counter[str] = field(default_factory=Counter)
    by_dtype: Counter[str] = field(default_factory=Counter)

    def add(self, func: Any, counted: Counted, dtype: str, asked_bytes: int) -> None:
        """Add one operator call."""
        self.flops += counted.flops
        self.extended += counted.extended
        self.asked_bytes += asked_bytes
        if counted.flops:
            self.by_dtype[dtype] += counted.flops
        if not counted.known:
            self.miss(operator_name(func))

    def miss(self, name: str) -> None:
        """Add one call of an operator that no formula covers."""
        self.uncounted[name] += 1

    def figures(self) -> tuple[Any, ...]:
        """All sums, to tell whether two calls did the same work."""
        return (
            *(self.flops, self.extended, self.asked_bytes),
            *(tuple(sorted(self.uncounted.items())), tuple(sorted(self.by_dtype.items()))),
        )


def work_dtype(func: Any, args: Any, device: torch.device) -> str:
    """The precision that an operator's first tensor asks for; fp32 may run as tf32 on CUDA."""
    first = next(tensors(args), None)
    if first is None:
        return "unknown"
    name = _NAMES.get(first.dtype, str(first.dtype).removeprefix("torch."))
    convolves = "conv" in operator_name(func)
    return "tf32" if name == "fp32" and device.type == "cuda" and _tf32(convolves) else name


def _tf32(convolves: bool) -> bool:
    if convolves:
        return bool(torch.backends.cudnn.allow_tf32)
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # torch refuses while old and new precision settings are mixed
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
