"""A model that came compiled: its compiled form is taken off for a recording, and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from cb_trace.bundle import Mode, Note
from cb_trace.capture.options import RecordOptions
from cb_trace.errors import CbTraceError
from cb_trace.replay.tree import children_of

SLOT = "_compiled_call_impl"  # where nn.Module.compile puts what a call runs
_COMPILED: dict[Mode, Mode] = {"eager": "compile", "cudagraph": "compile+cudagraph"}


@dataclass(frozen=True, slots=True)
class Given:
    """A model as it was written, and how it was to run."""

    model: nn.Module
    form: Callable[..., Any] | None = None  # what a call was to run; None: the model as written
    compile: dict[str, Any] = field(default_factory=dict)  # how to compile a part of it likewise

    def options(self, options: RecordOptions) -> RecordOptions:
        """A compiled model is recorded compiled, whatever its mode would be."""
        if self.form is None:
            return options
        mode = _COMPILED.get(options.mode, options.mode)
        return replace(options, mode=mode, compile=self.compile)

    def notes(self) -> list[Note]:
        """What a reader must know: the mode was not chosen."""
        if self.form is None:
            return []
        return [Note(reason="compiled model", detail="the model came compiled and ran so")]


@contextmanager
def as_written(model: nn.Module) -> Iterator[Given]:
    """Take off what ``torch.compile(model)`` or ``model.compile()`` put around a model.

    Calls of the wrapper reach the model itself meanwhile. The form that is taken off compiles
    anew, under the user's own settings, when it is first called in an empty compiler.

    :raises CbTraceError: only a part of the model is compiled. Parts of one class share their
        compiled code, so that nothing tells which of them a graph's kernels belong to.
    """
    inner = children_of(model).get("_orig_mod")
    if inner is not None:
        _check_parts(inner)
        form: Any = model.forward
        with slot(model, inner):
            yield Given(inner, form, _likewise(getattr(model, "dynamo_ctx", None)))
        return
    _check_parts(model)
    form = vars(model).get(SLOT)
    with slot(model, None):
        yield Given(model, form, _likewise(_context_of(form)))


@contextmanager
def slot(model: nn.Module, call: Callable[..., Any] | None) -> Iterator[None]:
    """What a call of the module runs for a while; None: the module as it is written."""
    held = vars(model)
    before = held.pop(SLOT, None)
    if call is not None:
        held[SLOT] = call
    try:
        yield
    finally:
        held.pop(SLOT, None)
        if before is not None:
            held[SLOT] = before


def _check_parts(model: nn.Module) -> None:
    for name, module in model.named_modules():
        compiled = name and vars(module).get(SLOT) is not None
        if compiled or "_orig_mod" in module._modules:
            raise CbTraceError(
                f"only a part of the model is compiled: {name or 'what is inside it'}",
                hint="compile the whole model, or give it uncompiled and use --mode compile",
            )


def _context_of(form: Any) -> Any:
    """What torch.compile has made of its arguments, kept in a closure of the function it gave."""
    cells = getattr(form, "__closure__", None) or ()
    values = (cell.cell_contents for cell in cells)
    return next((value for value in values if hasattr(value, "callback")), None)


def _likewise(context: Any) -> dict[str, Any]:
    """Arguments of torch.compile with the same backend; the defaults where it cannot be known."""
    backend: Any = getattr(context, "callback", None)
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    return {"backend": backend} if callable(backend) else {}
