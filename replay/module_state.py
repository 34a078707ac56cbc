"""What a module holds besides parameters: read before a call, compared and put back after it.

Training flags, buffers, plain attributes and what they hold: containers, objects, arrays, random
generators, and modules that are registered nowhere.
"""

from __future__ import annotations

import random
import sys
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from cb_trace.replay.inputs import leaf_signature
from cb_trace.replay.tree import sharded

OBJECT_DEPTH = 2  # objects within objects that a module holds; deeper is not its own state


@dataclass(frozen=True, slots=True)
class _TensorState:
    tensor: torch.Tensor
    version: int | None  # None: an inference tensor, which counts no versions
    value: torch.Tensor | None  # None for a parameter: too large to keep on suspicion
    volatile: bool  # a norm's running statistics: they change, and change no other work
    place: torch.Tensor | None  # of a parameter: the memory that it lies in

    def changed(self) -> bool:
        """By bits where a copy was kept: batch norm's kernels write without counting a version."""
        if self.value is not None and _has_bits(self.value):
            return not _same_bits(self.tensor, self.value)
        return self.moved() or self.written()

    def written(self) -> bool:
        """Whether something was written to it, as far as versions tell."""
        return self.version is None or self.tensor._version != self.version

    def moved(self) -> bool:
        """Whether the ``data`` of a parameter was exchanged for another tensor."""
        return self.place is not None and self.tensor.data_ptr() != self.place.data_ptr()

    def put(self) -> None:
        """The values it had, in the memory it had; a parameter that was written stays so."""
        if self.place is not None and self.moved():
            self.tensor.data = self.place
        if self.value is None or not self.changed():
            return
        with torch.inference_mode(self.version is None), torch.no_grad():
            if self.tensor.shape != self.value.shape:
                self.tensor.data = self.value.clone()
            else:
                self.tensor.copy_(self.value)


class ModuleState:
    """What a module and its descendants hold besides parameters, at one moment."""

    def __init__(self, module: nn.Module, *, values: bool = True) -> None:
        """:param values: False: only what :meth:`sizes` needs, no copies."""
        self._values, self._places = values, values and not sharded(module)
        self._training: list[tuple[nn.Module, bool]] = []
        self._attributes: list[tuple[nn.Module, dict[str, Any]]] = []
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._slotted: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._arrays: dict[int, tuple[Any, Any]] = {}
        self._generators: dict[int, tuple[Callable[[Any], object], Any]] = {}
        self._tensors: dict[int, _TensorState] = {}
        self._known: set[int] = set()
        for inner in module.modules():
            self._add_module(inner)

    def nbytes(self) -> int:
        """Bytes of the tensors kept."""
        return sum(s.value.nbytes for s in self._tensors.values() if s.value is not None)

    def sizes(self) -> tuple[object, ...]:
        """Layouts of all tensors but parameters: a cache that has grown is other work."""
        return tuple(
            leaf_signature(s.tensor)
            for s in self._tensors.values()
            if not isinstance(s.tensor, nn.Parameter)
        )

    def changed(self) -> bool:
        """Whether a call since then has left something that the next call would see.

        Not counted: running statistics of norm layers, which change in every training call, and
        random generators.
        """
        if any(s.changed() for s in self._tensors.values() if not s.volatile):
            return True
        if any(not _same_items(_plain(m), saved) for m, saved in self._attributes):
            return True
        if any(not _same_items(_slots(o), saved) for o, saved in self._slotted.values()):
            return True
        if any(a.tobytes() != saved.tobytes() for a, saved in self._arrays.values()):
            return True
        return any(not _same_items(c, saved) for c, saved in self._containers.values())

    def changed_parameters(self) -> bool:
        """Whether parameters were written, which :meth:`put` cannot undo."""
        return any(s.value is None and s.written() for s in self._tensors.values())

    def put(self) -> None:
        """Make everything as it was, in place: the same tensors and containers."""
        for module, training in self._training:
            module.training = training
        for module, attributes in self._attributes:
            _put_attributes(module, attributes)
        for owner, slots in self._slotted.values():
            _put_slots(owner, slots)
        for container, saved in self._containers.values():
            _put_items(container, saved)
        for array, saved in self._arrays.values():
            if array.tobytes() != saved.tobytes():
                array[...] = saved
        for put, saved in self._generators.values():
            put(saved)
        # A restored tensor has a higher version: take it as the new mark.
        for key, state in self._tensors.items():
            state.put()
            if state.version is not None:
                self._tensors[key] = replace(state, version=state.tensor._version)

    def _add_module(self, module: nn.Module) -> None:
        if id(module) in self._known:
            return
        self._known.add(id(module))
        self._training.append((module, module.training))
        attributes = _plain(module)
        self._attributes.append((module, attributes))
        for parameter in attributes["_parameters"].values():
            if parameter is not None:
                self._add_tensor(parameter, volatile=False)
        volatile = isinstance(module, _NormBase)
        for buffer in attributes["_buffers"].values():
            if buffer is not None:
                self._add_tensor(buffer, volatile=volatile)
        for name, value in attributes.items():
            if name not in _REGISTRIES:
                self._add_value(value)

    def _add_value(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, _ATOMS):
            return
        if isinstance(value, torch.Tensor):
            self._add_tensor(value, volatile=False)
        elif isinstance(value, nn.Module):
            for inner in value.modules():
                self._add_module(inner)
        elif isinstance(value, dict | list | set | deque):
            self._add_container(value, depth)
        elif isinstance(value, tuple):
            for inner in value:
                self._add_value(inner, depth)
        elif not self._add_opaque(value) and depth < OBJECT_DEPTH:
            self._add_object(value, depth + 1)

    def _add_container(self, value: Any, depth: int) -> None:
        if id(value) in self._containers:
            return
        self._containers[id(value)] = (value, value.copy())
        for inner in value.values() if isinstance(value, dict) else value:
            self._add_value(inner, depth)

    def _add_opaque(self, value: Any) -> bool:
        """Arrays and generators, which change in place and show it in no attribute."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            if self._values and not value.dtype.hasobject and value.flags.writeable:
                self._arrays[id(value)] = (value, value.copy())
            return True
        found = _generator(value)
        if found is not None and self._values:
            read, put = found
            self._generators[id(value)] = (put, read())
        return found is not None

    def _add_object(self, value: Any, depth: int) -> None:
        if isinstance(value, type | types.FunctionType | types.MethodType | types.ModuleType):
            return
        fields = getattr(value, "__dict__", None)
        if isinstance(fields, dict):
            self._add_container(fields, depth)
        slots = _slots(value)
        if slots and id(value) not in self._slotted:
            self._slotted[id(value)] = (value, slots)
            for inner in slots.values():
                self._add_value(inner, depth)

    def _add_tensor(self, tensor: torch.Tensor, *, volatile: bool) -> None:
        if id(tensor) in self._tensors:
            return
        version = None if tensor.is_inference() else tensor._version
        value = place = None
        if not isinstance(tensor, nn.Parameter):
            value = tensor.detach().clone() if self._values else None
        elif self._places and _has_bits(tensor) and type(tensor.data) is torch.Tensor:
            place = tensor.detach()
        self._tensors[id(tensor)] = _TensorState(tensor, version, value, volatile, place)


# Attributes that are machinery; hooks are removed by whoever put them there.
_MACHINERY = frozenset({"_modules", "_non_persistent_buffers_set", "training"})
_REGISTRIES = ("_buffers", "_parameters")
_ATOMS = (type(None), bool, int, float, complex, str, bytes)


def _generator(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """How a random generator's state is read and set; None for anything else."""
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate, value.setstate
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.RandomState):
        return value.get_state, value.set_state
    if numpy is not None and isinstance(value, numpy.Generator):
        bits: Any = value.bit_generator
        return (lambda: bits.state), (lambda state: setattr(bits, "state", state))
    return None


def _slots(value: Any) -> dict[str, Any]:
    """The fields of an object that keeps them in slots, a cache say."""
    found: dict[str, Any] = {}
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if not name.startswith("__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _put_slots(owner: Any, saved: dict[str, Any]) -> None:
    """As a frozen dataclass sets its own fields."""
    for name in [name for name in _slots(owner) if name not in saved]:
        object.__delattr__(owner, name)
    for name, value in saved.items():
        object.__setattr__(owner, name, value)


def _plain(module: nn.Module) -> dict[str, Any]:
    """A module's attributes; the registries of buffers and parameters by their entries."""
    found: dict[str, Any] = {
        name: value
        for name, value in vars(module).items()
        if name not in _MACHINERY and name not in _REGISTRIES and "_hooks" not in name
    }
    return found | {name: dict(getattr(module, name).items()) for name in _REGISTRIES}


def _put_attributes(module: nn.Module, saved: dict[str, Any]) -> None:
    now = vars(module)
    for name in [n for n in _plain(module) if n not in saved]:
        del now[name]
    for name, value in saved.items():
        if name in _REGISTRIES:
            _put_registry(module, getattr(module, name), value)
        else:
            now[name] = value


def _put_registry(module: nn.Module, registry: Any, saved: dict[str, Any]) -> None:
    if _same_items(dict(registry.items()), saved):
        return
    if isinstance(registry, dict):
        registry.clear()
        registry.update(saved)
    else:  # of a scripted module
        for name, value in saved.items():
            setattr(module, name, value)


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
