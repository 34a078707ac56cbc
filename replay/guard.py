"""The process's state that a call depends on: recorded at the call, reproduced in replay, restored
after. The module's own is :class:`cb_trace.replay.module_state.ModuleState`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from cb_trace.replay.module_state import ModuleState

# Flags of the process that choose kernels or precision: name, getter, setter.
_FLAGS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    ("default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("deterministic", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    ("matmul", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    *(
        (
            f"cudnn.{name}",
            lambda name=name: getattr(torch.backends.cudnn, name),
            lambda value, name=name: setattr(torch.backends.cudnn, name, value),
        )
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
    ),
    *(
        (
            f"sdp.{name}",
            getattr(torch.backends.cuda, f"{name}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{name}_sdp"),
        )
        for name in ("flash", "mem_efficient", "math", "cudnn")
    ),
)


@dataclass(frozen=True, slots=True)
class CallState:
    """The process's state as a call saw it. ``key`` of two calls is equal if it decides alike."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    autocast_cache: bool
    flags: tuple[Any, ...]
    default_device: torch.device
    stream: torch.cuda.Stream | None

    @classmethod
    def now(cls, device: torch.device) -> CallState:
        """The state of the moment on this thread."""
        kinds = dict.fromkeys(("cpu", device.type))
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
                for kind in kinds
            ),
            autocast_cache=torch.is_autocast_cache_enabled(),
            flags=tuple(_read(get) for _, get, _ in _FLAGS),
            default_device=torch.get_default_device(),
            stream=torch.cuda.current_stream(device) if device.type == "cuda" else None,
        )

    @property
    def key(self) -> tuple[object, ...]:
        """All but the stream, for call signatures."""
        plain = replace(self, stream=None)
        return (
            *(plain.grad, plain.inference, plain.autocast, plain.autocast_cache),
            *(plain.flags, plain.default_device),
        )

    @contextmanager
    def entered(self, device: torch.device) -> Iterator[None]:
        """Reproduce this state; what was before comes back at the end."""
        before = CallState.now(device)
        with ExitStack() as stack:
            stack.callback(before._set_globals)
            self._set_globals()
            if any(enabled for _, enabled, _ in self.autocast):
                stack.callback(_leave_autocast)
                torch.autocast_increment_nesting()
            if self.default_device != before.default_device:
                stack.enter_context(self.default_device)
            if self.stream is not None:
                stack.enter_context(torch.cuda.stream(self.stream))
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            yield

    def _set_globals(self) -> None:
        for kind, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(self.autocast_cache)
        for (_, get, put), value in zip(_FLAGS, self.flags, strict=True):
            if value is not None and _read(get) != value:  # an equal one may warn of deprecation
                put(value)


def _read(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except RuntimeError:  # torch refuses while a user mixes its old and new precision settings
        return None


def _leave_autocast() -> None:
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


@dataclass(frozen=True, slots=True)
class RngState:
    """States of torch's generators, CPU and every CUDA device, of ``random`` and NumPy's own."""

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...]
    python: Any
    numpy: Any  # None: not in use

    @classmethod
    def now(cls) -> RngState:
        """A copy of all generator states."""
        used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = tuple(torch.cuda.get_rng_state_all()) if used else ()
        numpy = sys.modules.get("numpy.random")
        own = numpy.get_state() if numpy is not None else None
        return cls(torch.get_rng_state(), cuda, random.getstate(), own)

    def put(self) -> None:
        """Set all generators back to this."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)

    def same(self, other: RngState) -> bool:
        """Whether no generator has drawn between the two."""
        return (
            torch.equal(self.cpu, other.cpu)
            and self.python == other.python
            and _comparable(self.numpy) == _comparable(other.numpy)
            and len(self.cuda) == len(other.cuda)
            and all(torch.equal(a, b) for a, b in zip(self.cuda, other.cuda, strict=True))
        )


def _comparable(state: Any) -> Any:
    """NumPy's state with its array as bytes."""
    return state and tuple(p.tobytes() if hasattr(p, "tobytes") else p for p in state)


@contextmanager
def preserved(module: nn.Module, device: torch.device) -> Iterator[ModuleState]:
    """Leave the process and the module as they were, whatever happens inside."""
    process, rng = CallState.now(device), RngState.now()
    with torch.inference_mode(False), torch.no_grad():
        state = ModuleState(module)
    try:
        yield state
    finally:
        process._set_globals()
        state.put()
        rng.put()
