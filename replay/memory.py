"""How much memory captured inputs may take, and where they go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from cb_trace.replay.hooks import Place

MEMINFO = Path("/proc/meminfo")


def free_bytes(device: torch.device) -> int:
    """Bytes a program could still take: device memory, or RAM that is available."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + idle
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


class CaptureBudget:
    """Places copies on their own device first, then in RAM, then nowhere."""

    def __init__(self, device: torch.device, limit: int | None) -> None:
        self._device = device
        self.limit = free_bytes(device) // 2 if limit is None else limit
        ram = free_bytes(torch.device("cpu")) // 2
        self.total = self.limit + ram if device.type == "cuda" else self.limit
        self._left = {"own": self.limit, "ram": ram if device.type == "cuda" else 0}
        self.taken = {"own": 0, "ram": 0}

    def fits_alone(self, nbytes: int) -> bool:
        """Whether an empty budget would have room."""
        return nbytes <= max(self.limit, self.total - self.limit)

    def place(self, wanted: Mapping[torch.device, int]) -> Place | None:
        """Reserve room for a call's inputs; None where there is none left."""
        total = sum(wanted.values())
        for kind, place in (("own", Place()), ("ram", Place(torch.device("cpu")))):
            if total <= self._left[kind] and (kind == "own" or self._left["ram"]):
                self._left[kind] -= total
                self.taken[kind] += total
                return place
        return None
