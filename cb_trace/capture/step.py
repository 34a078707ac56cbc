"""One step of a workload as a callable without arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cb_trace.bundle import Note
from cb_trace.capture.options import RecordOptions
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload

Step = Callable[[], object]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def step_of(workload: Workload, options: RecordOptions, device: torch.device) -> Step:
    """The step under the grad mode and autocast of the options."""
    call = workload.step or (lambda: workload.model(*workload.args, **workload.kwargs))
    grad, dtype = uses_grad(workload, options), DTYPES[options.dtype]

    def step() -> object:
        with torch.set_grad_enabled(grad):
            return call()

    def cast_step() -> object:
        with torch.autocast(device.type, dtype):
            return step()

    # A disabled autocast context would override a step's own, so fp32 enters none.
    return step if options.dtype == "fp32" else cast_step


def uses_grad(workload: Workload, options: RecordOptions) -> bool:
    """Whether autograd records the step: asked for, or the step is the workload's own."""
    return workload.step is not None if options.grad is None else options.grad


def warm_up(step: Step, name: str, times: int, device: torch.device) -> None:
    """Run the step before anything is measured.

    :raises CbTraceError: it raises; the model's own fault, named in one line.
    """
    try:
        for _ in range(times):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:  # the user's model: anything may come
        reason = str(error).strip().partition("\n")[0]
        raise CbTraceError(
            f"the step of {name} raised {type(error).__name__}: {reason}",
            hint="run one step without cb-trace to see the traceback",
        ) from error


def dtype_name(model: torch.nn.Module, autocast: str) -> str:
    """The dtype of a run: autocast's, else the one most parameter bytes have."""
    if autocast != "fp32":
        return autocast
    held: dict[torch.dtype, int] = {}
    for parameter in model.parameters():
        size = parameter.numel() * parameter.element_size()
        held[parameter.dtype] = held.get(parameter.dtype, 0) + size
    most = max(held, key=lambda dtype: held[dtype], default=torch.float32)
    return _NAMES.get(most, str(most).removeprefix("torch."))


def grad_note(grad: bool) -> Note:
    """Which grad mode the step ran in, for who reads the figures."""
    return Note(reason="grad mode", detail="grad" if grad else "no_grad")
