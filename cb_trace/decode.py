"""JSON to records: a frozen dataclass from an object, every type checked, nothing else carried.

Standard library only, for both halves: see ``bundle.py``.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def build(cls: type[T], value: Any) -> T:
    """Build a record from JSON, checking every type; unknown keys are ignored, not kept."""
    if not isinstance(value, dict):
        raise TypeError(f"{cls.__name__} must be an object")
    hints: dict[str, Any] = _hints(cls)  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for item in fields(cls):  # type: ignore[arg-type]
        if item.name in value:
            given[item.name] = _checked(hints[item.name], value[item.name], item.name)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise KeyError(f"{cls.__name__} has no {item.name}")
    return cls(**given)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _checked(kind: Any, value: Any, name: str) -> Any:
    """Check a JSON value against a type annotation and return it, records built."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value)
    if origin is list and isinstance(value, list):
        return [_checked(inner[0], item, name) for item in value]
    if origin is dict and isinstance(value, dict):
        return {str(key): _checked(inner[1], item, name) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        records = [option for option in inner if is_dataclass(option)]
        if records and isinstance(value, dict):
            return _checked(records[0], value, name)
        if any(_fits(option, value) for option in inner):
            return value
    elif (origin is Literal and value in inner) or (origin is None and _fits(kind, value)):
        return value
    raise TypeError(f"{name} has the wrong type: {type(value).__name__} {str(value)[:40]!r}")


def _fits(kind: Any, value: Any) -> bool:
    if kind is type(None):
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)
