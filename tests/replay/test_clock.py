"""What a device's clock says, and which samples count by it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from cb_trace.replay.clock import (
    LOW_CLOCK,
    NvmlClock,
    Reading,
    UnknownClock,
    clock_of,
    parse_smi,
    reading_of,
    sound,
)

CAPPED = Reading(1700, 60, ("power cap",))
HOT = Reading(1500, 90, ("thermal slowdown",))
FINE = Reading(1980, 45)


def test_a_cpu_is_unknown() -> None:
    clock = clock_of(torch.device("cpu"))
    assert isinstance(clock, UnknownClock)
    assert clock.read() == Reading(None, None, ())
    assert not clock.read().throttled


@pytest.mark.parametrize(
    ("bits", "limits"),
    [
        (None, ()),
        (0x0, ()),
        (0x1 | 0x2 | 0x10 | 0x100, ()),  # idle, set clocks, sync boost, display clocks
        (0x4, ("power cap",)),
        (0x28, ("hardware slowdown", "thermal slowdown")),
        (0xC0, ("hardware thermal slowdown", "power brake")),
    ],
)
def test_reasons_by_name(bits: int | None, limits: tuple[str, ...]) -> None:
    assert reading_of(1980, 1980, 40, bits) == Reading(1980, 40, limits)


def test_a_clock_below_three_quarters_of_the_highest_is_a_limit() -> None:
    assert reading_of(1484, 1980, 40, 0).limits == (LOW_CLOCK,)
    assert reading_of(1485, 1980, 40, 0).limits == ()
    assert reading_of(100, None, 40, 0).limits == ()


def test_a_power_cap_is_no_throttling_but_a_low_clock_under_it_is() -> None:
    assert not CAPPED.throttled
    assert HOT.throttled
    assert reading_of(1200, 1980, 60, 0x4).throttled


@pytest.mark.parametrize(
    ("readings", "counts"),
    [
        ([FINE, HOT, CAPPED], [True, False, True]),
        ([HOT, HOT], [True, True]),  # nothing else was measured
        ([Reading(), HOT], [True, False]),
        ([], []),
    ],
)
def test_samples_of_a_throttled_device_do_not_count(
    readings: list[Reading], counts: list[bool]
) -> None:
    assert sound(readings) == counts


def test_a_line_of_nvidia_smi() -> None:
    line = "1755, 1980, 61, 0x0000000000000004, 580.159.03\n"
    assert parse_smi(line) == (Reading(1755, 61, ("power cap",)), "580.159.03")
    unknown = "[N/A], [N/A], 33, [N/A], 550.1\n"
    assert parse_smi(unknown) == (Reading(None, 33, ()), "550.1")
    assert parse_smi("No devices were found\n") == (Reading(), None)


class FakeNvml:
    """Answers as the C library does, through pointers and status codes."""

    def __init__(self, *, refuses: tuple[str, ...] = ()) -> None:
        self.refuses = refuses

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *given: self._answer(name, given)

    def _answer(self, name: str, given: tuple[Any, ...]) -> int:
        if name in self.refuses:
            return 3  # NVML_ERROR_NOT_SUPPORTED
        figures = {
            "nvmlDeviceGetClockInfo": 1410,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetTemperature": 88,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x21,
        }
        if name in figures:
            given[-1]._obj.value = figures[name]
        if name == "nvmlSystemGetDriverVersion":
            ctypes.memmove(given[0], b"580.1\0", 6)
        return 0


def test_nvml_is_asked() -> None:
    clock = NvmlClock(FakeNvml(), "GPU-0")
    assert clock.driver_version == "580.1"
    assert clock.read() == Reading(1410, 88, ("thermal slowdown", LOW_CLOCK))


def test_what_nvml_refuses_is_unknown() -> None:
    refuses = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksThrottleReasons")
    assert NvmlClock(FakeNvml(refuses=refuses), "GPU-0").read() == Reading(None, 88, ())
