"""Inputs of a small batch, repeated to a large one."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from cb_trace.bundle import Note
from cb_trace.errors import CbTraceError


class Replication:
    """Repeats every tensor along its batch dimension, the first.

    Bags are repeated whole: a vector of offsets beside a vector of values goes on counting. So are
    jagged tensors, and keyed ones (KeyedJaggedTensor) key by key. What has no batch dimension
    stays.
    """

    def __init__(self, name: str, inputs: Any, batch: int) -> None:
        leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        floats = [t for t in leaves if t.is_floating_point() and t.dim() and not t.is_nested]
        first = next(iter([*floats, *(t for t in leaves if t.dim())]), None)
        if first is None:
            raise CbTraceError(f"{name} has no input tensor to replicate")
        self.batch, self.before = batch, int(first.size(0))
        if self.before == 0 or batch % self.before:
            raise CbTraceError(
                f"a batch of {self.before} cannot be replicated to {batch}",
                hint=f"choose a multiple of {self.before}",
            )
        self.times = batch // self.before
        self._repeated = self._left = 0

    def note(self, reason: str) -> Note:
        """What was done, for who reads the figures."""
        left = f"; {self._left} without a batch dimension left as they are" if self._left else ""
        detail = (
            f"{self._repeated} inputs repeated {self.times} times, from {self.before} to "
            f"{self.batch}{left}: caches meet the same rows again"
        )
        return Note(reason=reason, detail=detail)

    def value(self, value: Any) -> Any:
        """An input or a container of inputs, repeated."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if _is_keyed(value):
            return self._keyed(value)
        children, spec = pytree.tree_flatten(value, is_leaf=lambda inner: inner is not value)
        if spec.is_leaf():
            return value
        bag = _bag(children, self.before)
        if bag is None:
            return pytree.tree_unflatten([self.value(child) for child in children], spec)
        values, offsets = bag
        made = {values: self._repeat(children[values]), offsets: self._offsets(children, bag)}
        rest = [made.get(place, child) for place, child in enumerate(children)]
        return pytree.tree_unflatten(rest, spec)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_nested:
            self._repeated += 1
            parts = [*tensor.unbind()] * self.times
            return torch.nested.nested_tensor(parts, layout=tensor.layout, device=tensor.device)
        if tensor.dim() == 0 or tensor.size(0) != self.before:
            self._left += 1
            return tensor
        return self._repeat(tensor)

    def _repeat(self, tensor: torch.Tensor) -> torch.Tensor:
        self._repeated += 1
        return tensor.detach().repeat(self.times, *[1] * (tensor.dim() - 1))

    def _offsets(self, children: list[Any], bag: tuple[int, int]) -> torch.Tensor:
        self._repeated += 1
        length, offsets = children[bag[0]].numel(), children[bag[1]]
        closed = offsets.numel() == self.before + 1
        once = offsets[:-1] if closed else offsets
        parts = [once + number * length for number in range(self.times)]
        if closed:
            parts.append(offsets.new_tensor([self.times * length]))
        return torch.cat(parts)

    def _keyed(self, keyed: Any) -> Any:
        self._repeated += 1
        keys, batch = list(keyed.keys()), int(keyed.stride())
        lengths = keyed.lengths().view(len(keys), batch)
        segments = torch.split(keyed.values(), lengths.sum(1).tolist())
        values = torch.cat([segment.repeat(self.times) for segment in segments])
        weights = keyed.weights_or_none()
        if weights is not None:
            parts = torch.split(weights, lengths.sum(1).tolist())
            weights = torch.cat([part.repeat(self.times) for part in parts])
        return type(keyed)(
            keys=keys,
            values=values,
            weights=weights,
            lengths=lengths.repeat(1, self.times).reshape(-1),
        )


def _is_keyed(value: Any) -> bool:
    """Whether a value is a KeyedJaggedTensor, by what it can do."""
    needed = ("keys", "values", "lengths", "stride", "weights_or_none")
    return not isinstance(value, dict | torch.Tensor) and all(hasattr(value, n) for n in needed)


def _bag(children: list[Any], batch: int) -> tuple[int, int] | None:
    """Places of values and offsets in a container that holds one bag; None: it holds none.

    Offsets begin at 0, never fall, and end with the number of values (one more than the batch), or
    say where each of the batch begins.
    """
    vectors = [
        place
        for place, child in enumerate(children)
        if isinstance(child, torch.Tensor) and child.dim() == 1 and not child.is_floating_point()
    ]
    for offsets in vectors:
        for values in vectors:
            if values != offsets and _fits(children[values], children[offsets], batch):
                return values, offsets
    return None


def _fits(values: torch.Tensor, offsets: torch.Tensor, batch: int) -> bool:
    if offsets.numel() not in {batch, batch + 1} or int(offsets[0]) != 0:
        return False
    if bool((offsets[1:] < offsets[:-1]).any()):
        return False
    if offsets.numel() == batch + 1:
        return int(offsets[-1]) == values.numel()
    return values.numel() != batch and int(offsets[-1]) <= values.numel()
