"""The table of peaks: dense figures, exact names."""

from __future__ import annotations

import pytest

from cb_trace.datasheet import DEVICES, datasheet


def test_the_h200_has_its_dense_peaks() -> None:
    device = datasheet("NVIDIA H200")
    assert device is not None
    assert device.flops_per_s["bf16"] == 989.5e12  # 1,979 is with sparsity
    assert device.flops_per_s["fp8"] == 1979e12
    assert device.bytes_per_s == 4.8e12
    assert "H200" in device.source


def test_an_unknown_device_has_none() -> None:
    assert datasheet("NVIDIA H200 NVL") is None  # slower: no guess by a part of the name
    assert datasheet("AMD EPYC") is None
    assert datasheet(None) is None


def test_half_the_bytes_double_the_rate() -> None:
    """A sparse figure, or one of another precision, would break the ladder."""
    for device in DEVICES:
        peaks = device.flops_per_s
        assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
        # to the digits that the vendor prints
        assert peaks["fp16"] == pytest.approx(2 * peaks.get("tf32", peaks["fp16"] / 2), rel=1e-3)
        assert peaks.get("fp8", 2 * peaks["fp16"]) == 2 * peaks["fp16"]


def test_names_are_given_once() -> None:
    names = [name for device in DEVICES for name in device.names]
    assert len(names) == len(set(names))
