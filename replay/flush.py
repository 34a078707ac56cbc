"""Emptying the last-level cache between calls, outside the timed window."""

from __future__ import annotations

import re
from pathlib import Path

import torch

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
FALLBACK_CACHE_BYTES = 32 << 20
CYCLES_A_NS = 2  # as fast as SM clocks are: 1.98 GHz on an H200
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class CacheFlush:
    """Call it to sweep a buffer of twice the cache: what was cached before is evicted.

    Twice, since a buffer of just the cache's size leaves lines behind (shared facts,
    measuring.md section 7). ``assumption`` says in words what was swept.
    """

    def __init__(self, device: torch.device) -> None:
        cache, source = _cache_bytes(device)
        self._cuda = device.type == "cuda"
        self._buffer = torch.zeros(2 * cache, dtype=torch.int8, device=device)
        self.assumption = f"{2 * cache >> 20} MiB swept, twice the {source}"

    def __call__(self, hold_ns: int = 0) -> None:
        """Sweep, on a GPU once the device was kept waiting: the host gets ahead meanwhile.

        :param hold_ns: for about how long, by an SM clock of 2 GHz: longer where it is lower.
        """
        if self._cuda:
            if hold_ns:
                torch.cuda._sleep(CYCLES_A_NS * hold_ns)  # type: ignore[no-untyped-call]
            self._buffer.zero_()
        else:
            self._buffer.add_(1)  # reads too: a plain fill may bypass the cache


def _cache_bytes(device: torch.device) -> tuple[int, str]:
    if device.type == "cuda":
        size = int(torch.cuda.get_device_properties(device).L2_cache_size)
        return size, f"L2 of {size >> 20} MiB"
    size = last_level_cache_bytes(CACHES)
    if size:
        return size, f"last-level cache of {size >> 20} MiB that the system reports"
    return FALLBACK_CACHE_BYTES, "32 MiB assumed, as the system reports no cache size"


def last_level_cache_bytes(folder: Path) -> int:
    """Size of the highest cache level under a sysfs ``cache`` folder; 0 where it does not say."""
    levels: dict[int, int] = {}
    for index in folder.glob("index*"):
        try:
            level = int((index / "level").read_text())
            size = re.fullmatch(r"(\d+)([KMG]?)\s*", (index / "size").read_text())
        except (OSError, ValueError):
            continue
        if size:
            levels[level] = max(levels.get(level, 0), int(size[1]) * _UNITS[size[2]])
    return levels[max(levels)] if levels else 0
