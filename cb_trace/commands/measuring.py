"""``doctor --measure``: ceilings of this device as people read them, beside the datasheet's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cb_trace.commands.machine import Finding
from cb_trace.commands.options import default_device, needs_recording_half
from cb_trace.datasheet import datasheet

if TYPE_CHECKING:
    from cb_trace.accounts import CeilingRecord

MEASURE = "measure"


def measured(show: Callable[[str], None]) -> tuple[str, list[CeilingRecord]]:
    """The device's name and its ceilings.

    :raises CbTraceError: torch is not installed.
    """
    needs_recording_half()
    import torch

    from cb_trace.capture.ceilings import measure_ceilings
    from cb_trace.capture.environment import environment
    from cb_trace.capture.options import device_of

    device = device_of(default_device())
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        ceilings = measure_ceilings(device, progress=show)
    return environment(device).device_name, ceilings


def ceilings_of(given: str, device: str) -> tuple[CeilingRecord, ...]:
    """Ceilings from a file that was measured on this kind of device.

    :raises CbTraceError: no such file, or one of another device.
    """
    import torch

    from cb_trace.capture.ceilings import read_ceilings
    from cb_trace.capture.environment import environment

    return tuple(read_ceilings(Path(given), environment(torch.device(device)).device_name))


def ceiling_findings(device_name: str, ceilings: list[CeilingRecord]) -> Iterator[Finding]:
    """The best of each kind as rows of the doctor's table."""
    known = datasheet(device_name)
    if known is None:
        remark = "no MFU against a datasheet; modules are held against what is measured here"
        yield Finding("datasheet", f"none for {device_name}", "limited", remark)
    for one in ceilings:
        if not one.chosen:
            continue
        peak = None
        if known is not None:
            peak = known.flops_per_s.get(one.dtype or "") if one.dtype else known.bytes_per_s
        topic = f"{one.kind.replace('_', ' ')} {one.dtype or ''}".strip()
        yield Finding(topic, _figure(one), remark=_share(one, peak))


def _figure(one: CeilingRecord) -> str:
    if one.unit == "ns":
        return f"{one.value / 1000:,.2f} µs"
    scale, letter = (1e12, "T") if one.value >= 1e12 else (1e9, "G")
    unit = "FLOP/s" if one.unit == "flop/s" else "B/s"
    return f"{one.value / scale:,.1f} {letter}{unit} at {one.shape}"


def _share(one: CeilingRecord, peak: float | None) -> str:
    if peak is None or one.unit == "ns":
        return ""
    if one.value > peak:
        return "above the datasheet: one of the two is wrong"
    return f"{100 * one.value / peak:.0f} % of the datasheet"
