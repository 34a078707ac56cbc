"""What a recording does: the options of the command line and of the Python API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from cb_trace.accounts import CeilingRecord
from cb_trace.bundle import Mode
from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    import torch

    from cb_trace.replay.knockout import Job, KnockoutOptions

Dtype = Literal["fp32", "bf16", "fp16"]
StepPhase = Literal["forward", "train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options of a recording; the defaults are the main job's.

    ``grad`` None leaves autograd on in training and for a workload with a step of its own, and
    runs a plain forward under ``torch.no_grad()``. ``dtype`` is autocast's; fp32 means no
    autocast. ``wrap`` names methods that count as a call of their module as ``forward`` does;
    ``compile`` holds keyword arguments of ``torch.compile``.
    """

    device: str = "cpu"
    phase: StepPhase = "forward"
    mode: Mode = "eager"
    wrap: tuple[str, ...] = ()
    compile: dict[str, Any] = field(default_factory=dict)
    compare_plain: bool = True  # run once more with nobody looking, and compare the kernels
    dtype: Dtype = "fp32"
    seed: int = 0
    warmup: int = 3  # steps before anything is measured
    steps: int = 3  # profiled steps
    grad: bool | None = None
    graph: bool = True  # also time the step as a CUDA graph, where it can be captured
    replay: bool = True
    dedup: bool = True
    bare_samples: int = 30  # at the least, and
    bare_seconds: float = 2.0  # at the least
    replay_seconds: float = 25.0  # for all isolated timing
    profiled_calls: int = 3  # of every replay
    knockout: KnockoutOptions | None = None  # modules to take out of the step
    speedups: tuple[Job, ...] = ()  # modules to run on a part of their batch
    ceilings: tuple[CeilingRecord, ...] = ()  # known of this device
    measure_ceilings: bool = False  # measure them; takes seconds
    max_capture_bytes: int | None = None  # of live inputs; None: half of the free memory

    def __post_init__(self) -> None:
        if self.dtype not in get_args(Dtype):
            raise _unknown("dtype", self.dtype, Dtype)
        if self.phase not in get_args(StepPhase):
            raise _unknown("phase", self.phase, StepPhase)
        if self.mode not in get_args(Mode):
            raise _unknown("mode", self.mode, Mode)
        for name in ("warmup", "steps", "bare_samples", "profiled_calls"):
            if getattr(self, name) < 1:
                raise CbTraceError(f"{name} must be at least 1")

    @property
    def compiled(self) -> bool:
        """Whether the model runs compiled."""
        return self.mode in ("compile", "compile+cudagraph")

    @property
    def graphed(self) -> bool:
        """Whether the step runs as one CUDA graph."""
        return self.mode in ("cudagraph", "compile+cudagraph")


def _unknown(what: str, given: str, known: Any) -> CbTraceError:
    return CbTraceError(f"unknown {what} {given!r}", hint=f"one of {', '.join(get_args(known))}")


def device_of(name: str) -> torch.device:
    """The device a name stands for, ``cuda`` with its index.

    :raises CbTraceError: torch does not know it or this machine has none.
    """
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise CbTraceError(f"unknown device {name!r}", hint="cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise CbTraceError(f"cannot record on {device.type}", hint="cpu, cuda or cuda:N")
    if device.type == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = device.index if device.index is not None else 0
    if index >= count:
        raise CbTraceError(
            f"this machine has {count or 'no'} CUDA device{'s' * (count > 1)}",
            hint="use --device cpu" if not count else f"use cuda:0 to cuda:{count - 1}",
        )
    return torch.device("cuda", index)
