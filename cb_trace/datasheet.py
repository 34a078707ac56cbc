"""Peaks of devices by their makers' datasheets: dense figures only, with the document.

Vendors print the sparse figure first: 1,979 TFLOP/s of bf16 on an H100 is with sparsity, 989 is
dense (shared facts, measuring.md row 73). A device that is not here has no MFU.
"""

from __future__ import annotations

from dataclasses import dataclass

T = 1e12


@dataclass(frozen=True, slots=True)
class Device:
    """One product; the names are those that the driver gives it."""

    names: tuple[str, ...]
    source: str
    processors: int
    bytes_per_s: float
    flops_per_s: dict[str, float]  # dense, by precision


_HOPPER = {"bf16": 989.5 * T, "fp16": 989.5 * T, "fp8": 1979 * T, "tf32": 494.5 * T, "fp32": 67 * T}
_AMPERE = {"bf16": 312 * T, "fp16": 312 * T, "tf32": 156 * T, "fp32": 19.5 * T}

DEVICES = (
    Device(("NVIDIA H200",), "NVIDIA H200 Tensor Core GPU datasheet", 132, 4.8 * T, _HOPPER),
    Device(
        ("NVIDIA H100 80GB HBM3",),
        "NVIDIA H100 Tensor Core GPU datasheet, SXM",
        132,
        3.35 * T,
        _HOPPER,
    ),
    Device(
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
        "NVIDIA A100 Tensor Core GPU datasheet, 40 GB",
        108,
        1.555 * T,
        _AMPERE,
    ),
    Device(
        ("NVIDIA A100-SXM4-80GB",),
        "NVIDIA A100 Tensor Core GPU datasheet, SXM 80 GB",
        108,
        2.039 * T,
        _AMPERE,
    ),
    Device(
        ("NVIDIA A100 80GB PCIe",),
        "NVIDIA A100 Tensor Core GPU datasheet, PCIe 80 GB",
        108,
        1.935 * T,
        _AMPERE,
    ),
    Device(
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
        "NVIDIA V100 Tensor Core GPU datasheet, SXM2",
        80,
        0.9 * T,
        {"fp16": 125 * T, "fp32": 15.7 * T},
    ),
)
_BY_NAME = {name: device for device in DEVICES for name in device.names}


def datasheet(device_name: str | None) -> Device | None:
    """The entry of a device by its exact name; None where we know none."""
    return _BY_NAME.get(device_name or "")
