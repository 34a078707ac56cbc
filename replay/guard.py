"""The state a call depends on: recorded at the call, reproduced in replay, restored after.

Two kinds: the process's (:class:`CallState`, :class:`RngState`) and the module's own
(:class:`ModuleState`: training flags, buffers, plain attributes and the containers they hold).
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

OBJECT_DEPTH = 2  # objects within objects that a module holds; deeper is not its own state

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
    """States of torch's generators, CPU and every CUDA device, and of ``random``."""

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...]
    python: Any

    @classmethod
    def now(cls) -> RngState:
        """A copy of all generator states."""
        used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = tuple(torch.cuda.get_rng_state_all()) if used else ()
        return cls(torch.get_rng_state(), cuda, random.getstate())

    def put(self) -> None:
        """Set all generators back to this."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        random.setstate(self.python)


@dataclass(frozen=True, slots=True)
class _TensorState:
    tensor: torch.Tensor
    version: int | None  # None: an inference tensor, which counts no versions
    value: torch.Tensor | None  # None for a parameter: too large to keep on suspicion
    volatile: bool  # a norm's running statistics: they change, and change no other work

    def changed(self) -> bool:
        """By bits where a copy was kept: batch norm's kernels write without counting a version."""
        if self.value is not None and _has_bits(self.value):
            return not _same_bits(self.tensor, self.value)
        return self.version is None or self.tensor._version != self.version


class ModuleState:
    """What a module and its descendants hold besides parameters, at one moment."""

    def __init__(self, module: nn.Module) -> None:
        self._training = [(m, m.training) for m in module.modules()]
        self._attributes: list[tuple[nn.Module, dict[str, Any]]] = []
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._tensors: dict[int, _TensorState] = {}
        for inner, _ in self._training:
            self._add_module(inner)

    def nbytes(self) -> int:
        """Bytes of the tensors kept."""
        return sum(s.value.nbytes for s in self._tensors.values() if s.value is not None)

    def changed(self) -> bool:
        """Whether a call since then has left something that the next call would see.

        Not counted: running statistics of norm layers, which change in every training call.
        """
        if any(s.changed() for s in self._tensors.values() if not s.volatile):
            return True
        if any(not _same_items(_plain(m), saved) for m, saved in self._attributes):
            return True
        return any(not _same_items(c, saved) for c, saved in self._containers.values())

    def changed_parameters(self) -> bool:
        """Whether parameters were written, which :meth:`put` cannot undo."""
        return any(s.value is None and s.changed() for s in self._tensors.values())

    def put(self) -> None:
        """Make everything as it was, in place: the same tensors and containers."""
        for module, training in self._training:
            module.training = training
        for module, saved in self._attributes:
            _put_attributes(module, saved)
        for container, saved in self._containers.values():
            _put_items(container, saved)
        for state in self._tensors.values():
            if state.value is not None and state.changed():
                with torch.inference_mode(state.version is None), torch.no_grad():
                    state.tensor.copy_(state.value)
        # A restored tensor has a higher version: take it as the new mark.
        for key, state in self._tensors.items():
            if state.version is not None:
                self._tensors[key] = replace(state, version=state.tensor._version)

    def _add_module(self, module: nn.Module) -> None:
        attributes = _plain(module)
        self._attributes.append((module, attributes))
        for parameter in module._parameters.values():
            if parameter is not None:
                self._add_tensor(parameter, keep=False, volatile=False)
        volatile = isinstance(module, _NormBase)
        for buffer in module._buffers.values():
            if buffer is not None:
                self._add_tensor(buffer, keep=True, volatile=volatile)
        for name, value in attributes.items():
            if name not in {"_buffers", "_parameters"}:
                self._add_value(value)

    def _add_value(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, torch.Tensor):
            self._add_tensor(value, keep=not isinstance(value, nn.Parameter), volatile=False)
        elif isinstance(value, dict | list | set | deque) and id(value) not in self._containers:
            self._containers[id(value)] = (value, value.copy())
            for inner in value.values() if isinstance(value, dict) else value:
                self._add_value(inner, depth)
        elif isinstance(value, tuple):
            for inner in value:
                self._add_value(inner, depth)
        elif depth < OBJECT_DEPTH and _is_holder(value):
            self._add_value(vars(value), depth + 1)

    def _add_tensor(self, tensor: torch.Tensor, *, keep: bool, volatile: bool) -> None:
        if id(tensor) in self._tensors:
            return
        version = None if tensor.is_inference() else tensor._version
        value = tensor.detach().clone() if keep else None
        self._tensors[id(tensor)] = _TensorState(tensor, version, value, volatile)


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


# Attributes that are machinery; hooks are removed by whoever put them there.
_MACHINERY = frozenset({"_modules", "_non_persistent_buffers_set", "training"})


def _is_holder(value: Any) -> bool:
    """A plain object, a cache say; no module, class, function or the like."""
    skipped = (nn.Module, type, types.FunctionType, types.MethodType, types.ModuleType)
    return isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, skipped)


def _plain(module: nn.Module) -> dict[str, Any]:
    """A module's attributes; the registries of buffers and parameters by their entries."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name in {"_buffers", "_parameters"}:
            found[name] = dict(value)
        elif name not in _MACHINERY and "_hooks" not in name:
            found[name] = value
    return found


def _put_attributes(module: nn.Module, saved: dict[str, Any]) -> None:
    now = vars(module)
    for name in [n for n in _plain(module) if n not in saved]:
        del now[name]
    for name, value in saved.items():
        if name in {"_buffers", "_parameters"}:
            if not _same_items(now[name], value):
                now[name].clear()
                now[name].update(value)
        else:
            now[name] = value


def _put_items(container: Any, saved: Any) -> None:
    if _same_items(container, saved):
        return
    container.clear()
    if isinstance(container, dict | set):
        container.update(saved)
    else:
        container.extend(saved)


def _same_items(now: Any, saved: Any) -> bool:
    """Whether two containers hold the same objects; equal numbers and strings are the same."""
    if len(now) != len(saved):
        return False
    if isinstance(now, set):
        return bool(now == saved)
    if isinstance(now, dict):
        return now.keys() == saved.keys() and all(_same(now[k], saved[k]) for k in saved)
    return all(_same(a, b) for a, b in zip(now, saved, strict=True))


def _same(now: Any, saved: Any) -> bool:
    if now is saved:
        return True
    if isinstance(now, dict) and isinstance(saved, dict):
        return _same_items(now, saved)
    plain = (int, float, complex, str, bytes, bool)
    return isinstance(now, plain) and type(now) is type(saved) and now == saved


def _has_bits(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_quantized)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(
        one.detach().contiguous().reshape(-1).view(torch.uint8),
        other.detach().contiguous().reshape(-1).view(torch.uint8),
    )
