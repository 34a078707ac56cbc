"""The live inputs of a call: planned, copied, and thawed again as often as needed.

Containers that pytree knows (a KeyedJaggedTensor among them, without its cached fields) are taken
apart and rebuilt by pytree; any other object by its own reduction, as ``copy.deepcopy`` would.
What cannot be copied so raises :class:`UncopyableError`; nothing is guessed.
"""

from __future__ import annotations

import copy
import enum
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from cb_trace.replay.tensors import (
    Signature,
    StorageCopy,
    TensorPlan,
    TensorSpec,
    UncopyableError,
    build_tensors,
    copy_storage,
    is_wrapper,
)

_ATOMIC: tuple[type, ...] = (
    *(type(None), bool, int, float, complex, str, bytes, type, range, slice, enum.Enum),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.EllipsisType),
    *(weakref.ref, nn.Module, torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(torch.Size, torch.Stream),
)

# A recipe builds a value from the rebuilt tensors; one object named twice is built once.
Recipe = Callable[[Sequence[torch.Tensor], dict[int, Any]], Any]


@dataclass(frozen=True, slots=True)
class InputPlan:
    """What a call's inputs are made of: how to rebuild them, and what sets them apart."""

    recipe: Recipe
    tensors: TensorPlan
    given: list[torch.Tensor]  # the tensors themselves, without the parts they consist of
    signature: Signature
    holders: list[Any]  # objects that pytree takes apart; it may leave fields of theirs out

    def identities(self) -> tuple[object, ...]:
        """Which objects the inputs hold now; other ones later mean a changed container.

        Fields that pytree does not show count too: what a call has cached in its input, a
        KeyedJaggedTensor say, would spare the next call the work.
        """
        held = (tuple((name, id(v)) for name, v in vars(h).items()) for h in self.holders)
        return (tuple(id(tensor) for tensor in self.given), tuple(held))


@dataclass(slots=True)
class FrozenInputs:
    """A pristine copy of a call's inputs, which can be thawed any number of times."""

    recipe: Recipe
    specs: list[TensorSpec]
    copies: list[StorageCopy]

    def matches(self, plan: InputPlan) -> bool:
        """Whether the originals still hold the bytes that were copied."""
        pairs = zip(self.copies, plan.tensors.storages, strict=True)
        return all(copied.matches(spec.storage) for copied, spec in pairs)

    def thaw(self, *, own: bool) -> ThawedInputs:
        """Inputs to call the module with: on copies of their ``own``, or on the pristine bytes.

        The pristine bytes are used only where they lie on the original's device.
        """
        working = [c.working() if own or c.data.device != c.device else c.data for c in self.copies]
        return ThawedInputs(self, working)


class ThawedInputs:
    """Arguments ready for a call; :meth:`restore` undoes what the call did to them."""

    def __init__(self, frozen: FrozenInputs, working: list[torch.Tensor]) -> None:
        self._frozen, self._working = frozen, working
        self.args: tuple[Any, ...]
        self.kwargs: dict[str, Any]
        self._build()

    def restore(self) -> None:
        """Pristine bytes, tensors and containers again, at the same addresses."""
        with torch.no_grad():
            for copied, data in zip(self._frozen.copies, self._working, strict=True):
                if data is not copied.data:
                    data.copy_(copied.data)
        self._build()

    def mutated(self) -> bool:
        """Whether bytes differ from the pristine ones; only where thawed on its own copies."""
        pairs = zip(self._frozen.copies, self._working, strict=True)
        return any(not torch.equal(c.data.to(w.device), w) for c, w in pairs)

    def _build(self) -> None:
        tensors = build_tensors(self._frozen.specs, self._frozen.copies, self._working)
        self.args, self.kwargs = self._frozen.recipe(tensors, {})


def plan_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], keep: set[int]) -> InputPlan:
    """Take a call's arguments apart without copying anything.

    ``keep`` holds the ids of tensors that stay themselves: the model's own parameters.

    :raises UncopyableError: something in there cannot be copied.
    """
    planner = _Planner(keep)
    try:
        recipe, signature = planner.value((args, kwargs))
    except RecursionError:
        raise UncopyableError("a container that refers to itself") from None
    return InputPlan(recipe, planner.tensors, planner.given, signature, planner.holders)


def leaves_of(tree: Any, around: frozenset[int] = frozenset()) -> list[Any]:
    """The leaves of nested containers. A dataclass that pytree does not know is one, and so are
    the leaves of its fields, behind it.
    """
    found: list[Any] = []
    for leaf in pytree.tree_leaves(tree):
        found.append(leaf)
        if is_dataclass(leaf) and not isinstance(leaf, type) and id(leaf) not in around:
            values = [getattr(leaf, item.name, None) for item in fields(leaf)]
            found += leaves_of(values, around | {id(leaf)})
    return found


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors among :func:`leaves_of`."""
    return [leaf for leaf in leaves_of(tree) if isinstance(leaf, torch.Tensor)]


def leaf_signature(leaf: Any) -> Hashable:
    """Type, dtype, layout and sizes of a tensor, jagged ones as such; the type of all else."""
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__qualname__
    if leaf.is_nested and leaf.layout == torch.strided:
        return type(leaf).__qualname__, str(leaf.dtype), str(leaf._nested_tensor_size().tolist())
    sizes = tuple(n if isinstance(n, int) else "jagged" for n in leaf.size())
    return type(leaf).__qualname__, str(leaf.dtype), str(leaf.layout), sizes


def freeze(plan: InputPlan, place: torch.device | None = None) -> FrozenInputs:
    """Copy the planned inputs, to ``place`` or each storage to its own device."""
    with torch.inference_mode(False), torch.no_grad():
        copies = [copy_storage(spec, place) for spec in plan.tensors.storages]
    return FrozenInputs(plan.recipe, plan.tensors.specs, copies)


class _Planner:
    def __init__(self, keep: set[int]) -> None:
        self.tensors = TensorPlan()
        self.given: list[torch.Tensor] = []
        self.holders: list[Any] = []
        self._keep = keep
        self._done: dict[int, tuple[Recipe, Signature]] = {}
        self._alive: list[Any] = []  # ids stay unique while their objects live
        self._open: set[int] = set()

    def value(self, value: Any) -> tuple[Recipe, Signature]:
        if isinstance(value, _ATOMIC) and not isinstance(value, torch.Tensor):
            return _constant(value), (type(value).__qualname__, _described(value))
        if id(value) in self._done:
            return self._done[id(value)]
        if id(value) in self._open:
            raise UncopyableError(f"a {_name(value)} that refers to itself")
        self._open.add(id(value))
        made = self._compound(value)
        self._open.discard(id(value))
        self._alive.append(value)
        self._done[id(value)] = made
        return made

    def _compound(self, value: Any) -> tuple[Recipe, Signature]:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.Generator):
            return _generator(value), ("Generator", str(value.device))
        whole = id(value)  # pytree's own closure refers to itself, and would hold the value
        children, spec = pytree.tree_flatten(value, is_leaf=lambda inner: id(inner) != whole)
        if not spec.is_leaf():
            if hasattr(value, "__dict__"):
                self.holders.append(value)
            parts = [self.value(child) for child in children]
            return _container(parts, spec), (str(spec), tuple(sign for _, sign in parts))
        if hasattr(value, "__deepcopy__"):
            return _own_copy(value), ("object", _name(value), self._outline(value))
        return self._reduced(value)

    def _tensor(self, tensor: torch.Tensor) -> tuple[Recipe, Signature]:
        if id(tensor) in self._keep:
            return _constant(tensor), ("parameter", str(tensor.dtype), tuple(tensor.shape))
        index = self.tensors.add(tensor)
        self.given.append(tensor)
        signature, attributes = self.tensors.signature(index), _attributes(tensor)
        if not attributes:
            return (lambda tensors, _: tensors[index]), signature
        recipe, more = self.value(attributes)
        return _with_attributes(index, recipe), (signature, more)

    def _outline(self, value: Any) -> Signature:
        """What of an object with a copy of its own decides its work: sizes, and plain fields."""
        array = tuple(str(getattr(value, name, None)) for name in ("dtype", "shape", "strides"))
        apart = _Planner(self._keep)  # its tensors are the object's to copy
        try:
            return array, apart.value(dict(getattr(value, "__dict__", {})))[1]
        except UncopyableError:
            return (array,)

    def _reduced(self, value: Any) -> tuple[Recipe, Signature]:
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            raise UncopyableError(f"a {_name(value)}") from error
        if isinstance(reduced, str):
            return _constant(value), ("global", reduced)
        function, *rest = reduced
        args, state, items, pairs = (*rest, None, None, None)[:4]
        content = (args, state, list(items or ()), list(pairs or ()))
        inner, signature = self.value(content)
        return _reconstruction(function, inner), (_name(value), signature)


def _attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """What somebody has set on a tensor; the fields of a wrapper are what it is made of."""
    return {} if is_wrapper(tensor) else dict(vars(tensor))


def _with_attributes(index: int, attributes: Recipe) -> Recipe:
    def build(tensors: Sequence[torch.Tensor], memo: dict[int, Any]) -> Any:
        vars(tensors[index]).update(attributes(tensors, memo))
        return tensors[index]

    return build


def _constant(value: Any) -> Recipe:
    return lambda _tensors, _memo: value


def _generator(value: torch.Generator) -> Recipe:
    device, state = value.device, value.get_state().clone()

    def build(_tensors: Sequence[torch.Tensor], memo: dict[int, Any]) -> Any:
        if id(state) not in memo:
            memo[id(state)] = torch.Generator(device)
            memo[id(state)].set_state(state)
        return memo[id(state)]

    return build


def _container(parts: list[tuple[Recipe, Signature]], spec: pytree.TreeSpec) -> Recipe:
    def build(tensors: Sequence[torch.Tensor], memo: dict[int, Any]) -> Any:
        if id(parts) not in memo:
            children = [recipe(tensors, memo) for recipe, _ in parts]
            memo[id(parts)] = pytree.tree_unflatten(children, spec)
        return memo[id(parts)]

    return build


def _own_copy(value: Any) -> Recipe:
    try:
        pristine = copy.deepcopy(value)
    except Exception as error:
        raise UncopyableError(f"a {_name(value)}") from error

    def build(_tensors: Sequence[torch.Tensor], memo: dict[int, Any]) -> Any:
        if id(pristine) not in memo:
            memo[id(pristine)] = copy.deepcopy(pristine)
        return memo[id(pristine)]

    return build


def _reconstruction(function: Callable[..., Any], content: Recipe) -> Recipe:
    def build(tensors: Sequence[torch.Tensor], memo: dict[int, Any]) -> Any:
        if id(content) not in memo:
            args, state, items, pairs = content(tensors, memo)
            made = function(*args)
            _set_state(made, state)
            if items:
                made.extend(items)
            for key, item in pairs:
                made[key] = item
            memo[id(content)] = made
        return memo[id(content)]

    return build


def _set_state(made: Any, state: Any) -> None:
    """Give a new object its state as pickle and deepcopy do (``object.__reduce_ex__``)."""
    if state is None:
        return
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    plain, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if plain:
        made.__dict__.update(plain)
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _described(value: Any) -> str:
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, nn.Module | types.ModuleType | weakref.ref | torch.Stream):
        return ""
    return repr(value)
