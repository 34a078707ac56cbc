"""The header of a Kineto file, by an allow-list: other keys hold host, user and job names."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cb_trace.trace.results import Header

_RANK_IN_NAME = re.compile(r"(?:rank|worker|host|proc|gpu)[-_ .]?(\d{1,6})", re.IGNORECASE)
_VERSION = re.compile(r"\d{1,4}(\.\d{1,6}){1,3}[0-9a-zA-Z.+-]{0,32}")
_INT64 = 2**63


def parse_header(before: bytes, after: bytes) -> Header:
    """Read the allowed facts from the text around ``traceEvents``; either part may be broken."""
    document: dict[str, Any] = {}
    for text in (before.rstrip().rstrip(b",") + b"}", b"{" + after.lstrip().lstrip(b",")):
        document |= object_in(text) or {}
    return _header(document)


def rank_in_name(path: PurePath) -> int | None:
    """The rank a file's name states, as in ``rank3.json.gz`` or ``worker0.pt.trace.json``."""
    found = _RANK_IN_NAME.findall(path.name)
    return int(found[-1]) if found else None


def object_in(text: bytes) -> dict[str, Any] | None:
    """The JSON object that a text begins with, illegal escapes mended; None where it is none."""
    source = text.decode("utf-8", "replace").strip()
    try:
        value = _value_in(source)
    except (ValueError, RecursionError):
        from cb_trace.trace.salvage import escapes

        try:
            value = _value_in(escapes(source))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _value_in(text: str) -> object:
    value, _ = json.JSONDecoder(strict=False).raw_decode(text)
    return value


def _header(document: dict[str, Any]) -> Header:
    from cb_trace.trace.results import Header

    distributed = document.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return Header(
        device_names=_device_names(document),
        rank=_count(distributed.get("rank")),
        world_size=_count(distributed.get("world_size")),
        backend=_word(distributed.get("backend")),
        base_ns=_integer(document.get("baseTimeNanoseconds")) or 0,
        cuda_version=_cuda_version(document.get("cuda_runtime_version")),
        driver_version=_cuda_version(document.get("cuda_driver_version")),
        hip_version=_cuda_version(document.get("hip_runtime_version")),
        torch_version=_torch_version(document),
    )


def _device_names(document: dict[str, Any]) -> tuple[str, ...]:
    devices = document.get("deviceProperties", document.get("computeProperties"))
    if not isinstance(devices, list):
        return ()
    names = (_word(device.get("name")) for device in devices if isinstance(device, dict))
    return tuple(name for name in names if name)


def _torch_version(document: dict[str, Any]) -> str | None:
    found = document.get("torch_version", document.get("pytorch_version"))
    return found if isinstance(found, str) and _VERSION.fullmatch(found) else None


def _cuda_version(value: object) -> str | None:
    """12090 is CUDA 12.9; HIP packs its number another way and stays as it is."""
    number = _integer(value)
    if number is None or number <= 0:
        return None
    return f"{number // 1000}.{number % 1000 // 10}" if number < 1_000_000 else str(number)


def _integer(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_INT64 <= value < _INT64 else None


def _count(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and 0 <= number < 2**31 else None


def _word(value: object) -> str | None:
    """A short printable string, else nothing."""
    return value if isinstance(value, str) and value.isprintable() and len(value) <= 80 else None
