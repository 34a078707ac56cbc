"""Clock, temperature and throttling of a device, read between timed windows and never in one.

NVML is asked where its library loads, else ``nvidia-smi``; where neither answers, and on a CPU,
every reading is empty: unknown. (``pynvml`` is a binding of the same library, so it would find
nothing more.)
"""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

# Bits of nvmlDeviceGetCurrentClocksThrottleReasons. Idle, clocks that somebody set, and the sync
# of several boards hold a clock without anything being amiss.
LIMITS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_CAP = LIMITS[0x04]
LOW_RATIO = 0.75  # of the highest clock, as nvbench has it (shared facts, measuring.md section 7)
LOW_CLOCK = "clock below 75 % of its maximum"
SMI_SECONDS = 2.0  # nvidia-smi takes a good part of a second, so an answer serves for a while
_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU


@dataclass(frozen=True, slots=True)
class Reading:
    """The device at one moment; None is unknown. ``limits`` held its clock, or the host, down."""

    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    limits: tuple[str, ...] = ()

    @property
    def throttled(self) -> bool:
        """Whether what was timed just before does not count.

        A power cap alone does: a step may run under it like every long run of heavy kernels, and
        where it costs more than a quarter of the clock :data:`LOW_CLOCK` is among the limits.
        """
        return any(limit != POWER_CAP for limit in self.limits)


class Clock(Protocol):
    """Reads a device."""

    driver_version: str | None

    def read(self) -> Reading:
        """The device now."""


class UnknownClock:
    """A device that nobody can be asked about."""

    driver_version: str | None = None

    def read(self) -> Reading:
        return Reading()


def clock_of(device: torch.device) -> Clock:
    """What reads a device's clock here."""
    if device.type != "cuda":
        return UnknownClock()
    uuid = _uuid(device)
    try:
        return NvmlClock(ctypes.CDLL(_LIBRARY), uuid)
    except (OSError, AttributeError, _NvmlError):
        smi = SmiClock(uuid or str(device.index or 0))
        return smi if smi.driver_version is not None else UnknownClock()


def reading_of(
    clock_mhz: int | None, highest_mhz: int | None, temperature_c: int | None, bits: int | None
) -> Reading:
    """A reading from raw figures; ``bits`` are NVML's reasons."""
    limits = [name for bit, name in LIMITS.items() if (bits or 0) & bit]
    if clock_mhz is not None and highest_mhz and clock_mhz < LOW_RATIO * highest_mhz:
        limits.append(LOW_CLOCK)
    return Reading(clock_mhz, temperature_c, tuple(limits))


def sound(readings: Sequence[Reading]) -> list[bool]:
    """Which blocks of samples count, by the reading after each.

    Those of a throttled device or a slowed host do not, unless there are no others: then all do.
    """
    fine = [not reading.throttled for reading in readings]
    return fine if any(fine) else [True] * len(fine)


class NvmlClock:
    """Asks NVML; a figure that it refuses (under MIG, say) is unknown.

    :raises OSError, AttributeError: the library is not what it should be.
    """

    def __init__(self, library: Any, uuid: str | None) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        _check(library.nvmlInit_v2())
        name = (uuid or "").encode()
        _check(library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._handle)))
        version = ctypes.create_string_buffer(80)
        known = library.nvmlSystemGetDriverVersion(version, 80) == 0
        self.driver_version: str | None = version.value.decode() if known else None
        self._highest = self._figure("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)

    def read(self) -> Reading:
        bits = ctypes.c_ulonglong()
        ask = self._library.nvmlDeviceGetCurrentClocksThrottleReasons
        known = ask(self._handle, ctypes.byref(bits)) == 0
        return reading_of(
            self._figure("nvmlDeviceGetClockInfo", _SM_CLOCK),
            self._highest,
            self._figure("nvmlDeviceGetTemperature", _GPU_TEMPERATURE),
            bits.value if known else None,
        )

    def _figure(self, function: str, which: int) -> int | None:
        value = ctypes.c_uint()
        status = getattr(self._library, function)(self._handle, which, ctypes.byref(value))
        return value.value if status == 0 else None


class SmiClock:
    """Asks ``nvidia-smi``, at most every :data:`SMI_SECONDS`."""

    _FIELDS = (
        "clocks.sm,clocks.max.sm,temperature.gpu,clocks_throttle_reasons.active,driver_version"
    )

    def __init__(self, device: str) -> None:
        self._command = ["nvidia-smi", f"--query-gpu={self._FIELDS}", f"--id={device}"]
        self._command.append("--format=csv,noheader,nounits")
        self._last, self._read_at = Reading(), -SMI_SECONDS
        self.driver_version: str | None = None
        self._ask()

    def read(self) -> Reading:
        if time.monotonic() - self._read_at >= SMI_SECONDS:
            self._ask()
        return self._last

    def _ask(self) -> None:
        self._read_at = time.monotonic()
        try:
            answer = subprocess.run(
                self._command, capture_output=True, timeout=30, check=True, text=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            self._last = Reading()
            return
        self._last, self.driver_version = parse_smi(answer)


def parse_smi(answer: str) -> tuple[Reading, str | None]:
    """Reading and driver version from a line of ``nvidia-smi``; what is no figure is unknown."""
    parts = [part.strip() for part in answer.strip().split(",")]
    if len(parts) != 5:
        return Reading(), None
    clock, highest, temperature = (int(p) if p.isdecimal() else None for p in parts[:3])
    try:
        bits = int(parts[3], 16)
    except ValueError:
        bits = 0
    return reading_of(clock, highest, temperature, bits), parts[4] or None


class _NvmlError(Exception):
    """NVML answered with an error code."""


def _check(status: int) -> None:
    if status != 0:
        raise _NvmlError(f"NVML status {status}")


def _uuid(device: torch.device) -> str | None:
    found = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if found is None else f"GPU-{found}"
