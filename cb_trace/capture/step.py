"""One step of a workload as a callable without arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from traceback import walk_tb

import torch

from cb_trace.bundle import Note
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.training import TrainingStep
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload

Step = Callable[[], object]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def step_of(workload: Workload, options: RecordOptions, device: torch.device) -> Step:
    """The step under the phase, grad mode and autocast of the options."""
    if trains_by_us(workload, options):
        return TrainingStep(workload, lambda: _autocast(options, device))
    call = workload.step or (lambda: workload.model(*workload.args, **workload.kwargs))
    grad = uses_grad(workload, options)

    def step() -> object:
        with torch.set_grad_enabled(grad):
            return call()

    def cast_step() -> object:
        with _autocast(options, device):
            return step()

    return step if options.dtype == "fp32" else cast_step


def _autocast(options: RecordOptions, device: torch.device) -> AbstractContextManager[object]:
    """Autocast of the options; a disabled one would override a step's own, so fp32 has none."""
    if options.dtype == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[options.dtype])


def trains_by_us(workload: Workload, options: RecordOptions) -> bool:
    """Whether the step is our training step; a step of the workload's own is used as it is."""
    return options.phase == "train" and workload.step is None


def uses_grad(workload: Workload, options: RecordOptions) -> bool:
    """Whether autograd records the step: asked for, in training, or in a step of one's own."""
    if trains_by_us(workload, options):
        return True
    return workload.step is not None if options.grad is None else options.grad


def check_mode(options: RecordOptions, device: torch.device) -> None:
    """:raises CbTraceError: the device has no such way of running."""
    if options.graphed and device.type != "cuda":
        instead = "compile" if options.compiled else "eager"
        raise CbTraceError(f"mode {options.mode} needs a CUDA device", hint=f"use --mode {instead}")


def warm_up(step: Step, name: str, times: int, device: torch.device) -> None:
    """Run the step before anything is measured.

    :raises CbTraceError: it raises; the model's own fault, named in one line.
    """
    with raising(name):
        for _ in range(times):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)


@contextmanager
def raising(name: str, step: Step | None = None) -> Iterator[None]:
    """Turn what a user's step raises into one line; with ``step`` only what came out of that."""
    try:
        yield
    except CbTraceError:
        raise
    except Exception as error:  # the user's model: anything may come
        if step is not None and not _came_out_of(step, error):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise CbTraceError(
            f"the step of {name} raised {type(error).__name__}: {reason}",
            hint="run one step without cb-trace to see the traceback",
        ) from error


def _came_out_of(step: Step, error: Exception) -> bool:
    code = getattr(step, "__code__", None) or type(step).__call__.__code__
    return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


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
