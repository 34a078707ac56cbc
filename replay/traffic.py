"""Bytes that operators touch: at a call's border once, and as asked for one by one.

Conventions in docs/counting.md: a tensor counts at its true size (an expanded one at what it
expands), a view is free, an in-place operator reads and writes, a lookup reads the rows it names.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from cb_trace.replay.formulas import base_name, bind, moves_nothing
from cb_trace.replay.storages import Storage, Storages

SECTOR_BYTES = 32  # the unit in which a GPU reads memory


class Touch(NamedTuple):
    """Part of a storage that an operator reads or writes; ``key`` tells equal parts."""

    storage: Storage
    key: Hashable
    once: int  # bytes, each place counted once
    asked: int  # bytes as asked for: rows as often as named, in whole sectors


class Traffic(NamedTuple):
    """What one operator call touched; ``made`` are storages that it allocated."""

    reads: list[Touch]
    writes: list[Touch]
    made: list[Storage]

    @property
    def asked(self) -> int:
        """Bytes that the operator asks for."""
        return sum(touch.asked for touch in (*self.reads, *self.writes))


@dataclass(slots=True)
class Border:
    """What a call, as one black box, must read and write at least once."""

    born: set[Storage] = field(default_factory=set)
    kept: set[Storage] = field(default_factory=set)  # born here, read by others later
    reads: dict[Storage, dict[Hashable, int]] = field(default_factory=dict)
    writes: dict[Storage, dict[Hashable, int]] = field(default_factory=dict)
    made_bytes: int = 0

    def add(self, traffic: Traffic) -> None:
        """Count an operator that ran inside."""
        self.born.update(traffic.made)
        for side, touches in ((self.reads, traffic.reads), (self.writes, traffic.writes)):
            for touch in touches:
                if touch.storage not in self.born:
                    side.setdefault(touch.storage, {})[touch.key] = touch.once

    def close(self) -> None:
        """The call is over: what it made and is still there, it had to write. Twice is once."""
        self.made_bytes += sum(s.nbytes for s in self.born if s.alive or s in self.kept)
        self.born.clear()
        self.kept.clear()

    def compulsory(self) -> int:
        """Bytes across the border; views of one storage no more than the storage."""
        sides = (*self.reads.items(), *self.writes.items())
        return self.made_bytes + sum(min(sum(p.values()), s.nbytes) for s, p in sides)


def traffic(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, storages: Storages
) -> Traffic:
    """What one operator call reads, writes and allocates."""
    bound, given, results = bind(func, args, kwargs), list(tensors((args, kwargs))), [*tensors(out)]
    sources = [storage for tensor in given if (storage := storages.of(tensor)) is not None]
    made = _made(results, sources, storages)
    name = base_name(func)
    if moves_nothing(func) or name in _FREE:
        return Traffic([], [], made)
    written = list(tensors([bound.get(key) for key in _written(func)]))
    done = _Done(name, bound, given, results, written, made, storages)
    return Traffic(list(done.reads()), list(done.writes()), made)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested containers."""
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def view_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements that a tensor shows, one that it repeats by stride 0 once."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(n if step or not n else 1 for n, step in pairs) * tensor.element_size()


# --- parts ------------------------------------------------------------------------------------


def _made(
    results: Iterable[torch.Tensor], sources: list[Storage], storages: Storages
) -> list[Storage]:
    """Storages of results that no argument had."""
    made: list[Storage] = []
    for tensor in results:
        storage = storages.of(tensor)
        if storage is not None and storage not in sources and storage not in made:
            storages.born(storage)
            made.append(storage)
    return made


def _written(func: Any) -> list[str]:
    """Names of the arguments that an operator writes to."""
    schema = getattr(func, "_schema", None)
    arguments = schema.arguments if schema is not None else ()
    return [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]


@dataclass(frozen=True, slots=True)
class _Done:
    """An operator call that is over."""

    name: str
    bound: dict[str, Any]
    given: list[torch.Tensor]
    results: list[torch.Tensor]
    written: list[torch.Tensor]
    made: list[Storage]
    storages: Storages

    def reads(self) -> Iterator[Touch]:
        name, source = self.name, None
        if name in _LOOKUPS or name in _PICKS or name in _SCATTERS:
            source = next(iter(self.bound.values()))
        unread = self.written if name in _ONLY_WRITES else []
        for tensor in self.given:
            if tensor is not source and not _is_one_of(tensor, unread):
                yield from _whole(tensor, self.storages)
        if isinstance(source, torch.Tensor) and name not in _SCATTERS:
            yield from self._part(source)

    def writes(self) -> Iterator[Touch]:
        if self.name in _SCATTERS and self.written:
            storage = self.storages.of(self.written[0])
            given = self.bound.get(_SCATTERS[self.name])
            if storage is not None and isinstance(given, torch.Tensor):
                nbytes = view_bytes(given)
                yield Touch(storage, object(), nbytes, nbytes)
            return
        fresh = [tensor for tensor in self.results if self.storages.of(tensor) in self.made]
        for tensor in (*self.written, *fresh):
            yield from _whole(tensor, self.storages)

    def _part(self, source: torch.Tensor) -> Iterator[Touch]:
        """What is read of a source that ids pick from."""
        storage = self.storages.of(source)
        if storage is None:
            return
        if self.name in _LOOKUPS and (self.name != "index_select" or self.bound.get("dim") == 0):
            yield _rows(source, self.bound[_LOOKUPS[self.name]], storage)
            return
        asked = sum(view_bytes(tensor) for tensor in self.results[:1])  # no more than comes out
        yield Touch(storage, object(), min(asked, view_bytes(source)), asked)


def _whole(tensor: torch.Tensor, storages: Storages) -> Iterator[Touch]:
    storage = storages.of(tensor)
    if storage is not None:
        nbytes = view_bytes(tensor)
        key = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
        yield Touch(storage, key, nbytes, nbytes)


def _rows(table: Any, ids: torch.Tensor, storage: Storage) -> Touch:
    """Rows of a table by their numbers: the distinct ones once, and all in whole sectors."""
    row = table[:1].numel() * table.element_size()
    distinct = int(torch.unique(ids.detach().cpu()).numel())  # not on the device: it takes memory
    sectors = -(-row // SECTOR_BYTES) * SECTOR_BYTES
    key = ("rows", ids.data_ptr(), tuple(ids.shape), None if ids.is_inference() else ids._version)
    return Touch(storage, key, distinct * row, ids.numel() * sectors)


def _is_one_of(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    return any(tensor is other for other in others)


_LOOKUPS = {
    "embedding": "indices",
    "_embedding_bag": "indices",
    "_embedding_bag_forward_only": "indices",
    "index_select": "index",
}
_PICKS = frozenset({"index", "gather", "masked_select", "take"})
_SCATTERS = {
    "index_put": "values",
    "_index_put_impl": "values",
    "index_copy": "source",
    "index_add": "source",
    "scatter": "src",
    "scatter_add": "src",
}
_ONLY_WRITES = frozenset({"copy", "fill", "zero", "uniform", "normal", "bernoulli", "random"})
_FREE = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "_unsafe_view", "_reshape_alias", "detach", "lift_fresh", "set"),
        *("resize", "alias", "view", "_efficientzerotensor"),
    }
)
