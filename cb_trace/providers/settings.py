"""Settings from the command line (``--set key=value``) to the types a provider declares."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, get_type_hints

from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Setting

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def configured(config: Any, settings: Mapping[str, Setting], provider: str) -> Any:
    """A copy of a config dataclass with settings applied, each cast to its field's type.

    :raises CbTraceError: unknown setting, a value of the wrong type, or one the config refuses.
    """
    hints = get_type_hints(type(config))
    known = [item.name for item in fields(config)]
    values: dict[str, Setting] = {}
    for name, value in settings.items():
        if name not in known:
            raise CbTraceError(
                f"{provider} has no setting {name!r}", hint=f"it has: {', '.join(known)}"
            )
        values[name] = cast(value, hints[name], name)
    try:
        return replace(config, **values)
    except ValueError as error:
        raise CbTraceError(f"{provider}: {error}", hint="change it with --set") from error


def accepted(function: Callable[..., object], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The settings as keyword arguments of a user's function, cast by its annotations.

    :raises CbTraceError: the function does not take one of them.
    """
    parameters = inspect.signature(function).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {
        n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in named and not anything:
            takes = f"it takes: {', '.join(named)}" if named else "it takes no settings"
            raise CbTraceError(f"the provider takes no setting {name!r}", hint=takes)
        values[name] = cast(value, _kind(named.get(name)), name)
    return values


def cast(value: Setting, kind: object, name: str) -> Setting:
    """A setting as the type asked for; text is read, a number is never bent into another.

    :raises CbTraceError: it does not fit.
    """
    if not isinstance(value, str):
        return _fitting(value, kind, name)
    if kind is bool:
        if value.lower() not in _WORDS:
            raise _misfit(name, value, "true or false")
        return _WORDS[value.lower()]
    if kind is int or kind is float:
        try:
            return int(value.replace("_", "")) if kind is int else _finite(value)
        except ValueError:
            raise _misfit(name, value, "a whole number" if kind is int else "a number") from None
    return value if kind is str else _guess(value)


def _finite(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):  # JSON, and so the manifest, has no such number
        raise ValueError(value)
    return number


def _fitting(value: int | float | bool, kind: object, name: str) -> Setting:
    if kind is bool and not isinstance(value, bool):
        raise _misfit(name, value, "true or false")
    if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise _misfit(name, value, "a whole number")
    if kind is float and not isinstance(value, bool):
        return float(value)
    if kind is float or kind is str:
        raise _misfit(name, value, "a number" if kind is float else "text")
    return value


def _guess(value: str) -> Setting:
    """The plainest reading of a value whose type nobody declared: what looks like a whole number,
    a number, true or false is one; ``inf`` and ``nan`` are words.
    """
    if value.lower() in ("true", "false"):
        return _WORDS[value.lower()]
    for kind in (int, _finite):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _kind(parameter: inspect.Parameter | None) -> object:
    """int, float, bool or str where a parameter says so by annotation or default."""
    if parameter is None:
        return None
    names = {"int": int, "float": float, "bool": bool, "str": str}
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = names.get(annotation)
    if annotation in names.values():
        return annotation
    default = type(parameter.default)
    return default if default in names.values() else None


def _misfit(name: str, value: object, wanted: str) -> CbTraceError:
    return CbTraceError(
        f"setting {name}={value!r} is not {wanted}", hint=f"give it as --set {name}=VALUE"
    )
