"""Options and devices that do not exist are named in one line."""

from __future__ import annotations

import pytest
import torch

from cb_trace.capture.options import RecordOptions, device_of
from cb_trace.errors import CbTraceError


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dtype": "int8"}, "unknown dtype 'int8' (one of fp32, bf16, fp16)"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"warmup": 0}, "warmup must be at least 1"),
    ],
)
def test_bad_options(values: dict[str, object], words: str) -> None:
    with pytest.raises(CbTraceError) as caught:
        RecordOptions(**values)  # type: ignore[arg-type]
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu", "unknown device 'gpu'"),
        ("meta", "cannot record on meta"),
        ("cuda:64", "CUDA device"),
    ],
)
def test_bad_devices(name: str, words: str) -> None:
    with pytest.raises(CbTraceError, match=words):
        device_of(name)


def test_cpu_has_no_index() -> None:
    assert device_of("cpu") == device_of("cpu:0") == torch.device("cpu")
