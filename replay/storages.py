"""Tensor storages seen while a step runs: how large, whether alive, and how many bytes in all."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(slots=True, eq=False)
class Storage:
    """One block of memory behind tensors; ``alive`` until the last of them is gone."""

    nbytes: int
    own_device: bool  # on the device that is measured
    alive: bool = True
    counted: bool = False  # among the live bytes, as it was made while we looked
    readers_to_tell: tuple[Any, ...] = ()  # backward calls that made it


class Storages:
    """Finds the storage behind a tensor, and hears of its end by a weak reference.

    ``live_bytes`` sums what was made on the device since the start and is not freed yet.
    """

    def __init__(self, device: torch.device) -> None:
        self.live_bytes = 0
        self.top_bytes = 0
        self._device_type = device.type
        self._known: dict[int, Storage] = {}
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def of(self, tensor: torch.Tensor) -> Storage | None:
        """The storage of a tensor; None where it has none (sparse) or holds no bytes."""
        try:
            untyped = tensor.untyped_storage()
            key, nbytes = untyped._cdata, untyped.nbytes()
        except (RuntimeError, NotImplementedError):
            return None
        found = self._known.get(key)
        if found is None and nbytes:
            found = self._watch(untyped, key, nbytes)
        return found

    def born(self, storage: Storage) -> None:
        """Count a storage that an operator has just made."""
        if storage.own_device and not storage.counted and storage.alive:
            storage.counted = True
            self.live_bytes += storage.nbytes
            self.top_bytes = max(self.top_bytes, self.live_bytes)

    def _watch(self, untyped: torch.UntypedStorage, key: int, nbytes: int) -> Storage:
        made = Storage(nbytes, untyped.device.type == self._device_type)
        self._known[key] = made

        def gone(_: object) -> None:
            made.alive = False
            if self._known.get(key) is made:
                del self._known[key], self._watched[key]
            if made.counted:
                self.live_bytes -= made.nbytes

        self._watched[key] = weakref.ref(untyped, gone)
        return made


class Meter(Protocol):
    """Reads how much memory of the device is in use."""

    highest: int  # of all readings

    def now(self) -> int:
        """Bytes in use."""

    def take(self) -> int:
        """The most that was in use since the last time; reading starts over."""


class TensorMeter:
    """Bytes of live tensor storages: what the CPU offers. Scratch space in a kernel goes unseen."""

    def __init__(self, storages: Storages) -> None:
        self.highest = 0
        self._storages = storages

    def now(self) -> int:
        return self._storages.live_bytes

    def take(self) -> int:
        top, self._storages.top_bytes = self._storages.top_bytes, self._storages.live_bytes
        self.highest = max(self.highest, top)
        return top


class CudaMeter:
    """The caching allocator's own count, scratch space included, whoever asked for it.

    Reading starts torch's peak statistics over: ``torch.cuda.max_memory_allocated`` of the process
    counts from the last reading afterwards.
    """

    def __init__(self, device: torch.device) -> None:
        self.highest = 0
        self._device = device

    def now(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def take(self) -> int:
        top = torch.cuda.max_memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self.highest = max(self.highest, top)
        return top
