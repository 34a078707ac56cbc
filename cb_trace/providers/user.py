"""A user's own provider: ``pkg.module:function`` that returns a workload."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.errors import CbTraceError
from cb_trace.providers.settings import accepted
from cb_trace.providers.workload import Setting, Workload

if TYPE_CHECKING:
    from torch import nn

SHAPES = "a Workload, (model, args), (model, args, kwargs) or (model, args, kwargs, step)"


def imported(target: str) -> Any:
    """The object that ``pkg.module:name`` names; the working folder is importable, as in Python.

    :raises CbTraceError: the module cannot be imported, or has no such name.
    """
    module_name, _, name = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # importing runs the user's code: anything may come
        raise CbTraceError(
            f"cannot import {module_name}: {type(error).__name__}: {error}",
            hint="run from the folder that holds it, or install it",
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise CbTraceError(f"{module_name} has no {name!r}", hint="check the name after ':'")
        found = getattr(found, part)
    return found


def built(
    function: Callable[..., object],
    name: str,
    settings: Mapping[str, Setting],
    device: str,
    seed: int,
) -> Workload:
    """Call a provider function and make a workload of what it returns.

    The function gets the given settings, and ``device`` and ``seed`` where it names them; model
    and inputs are moved to the device afterwards. A step function that holds tensors of its own
    must take ``device``.

    :raises CbTraceError: it raises, or returns something else.
    """
    if not callable(function):
        raise CbTraceError(f"{name} is no function", hint=f"name a function that returns {SHAPES}")
    values = accepted(function, settings)
    takes = inspect.signature(function).parameters
    extra = {key: value for key, value in (("device", device), ("seed", seed)) if key in takes}
    try:
        result = function(**(extra | values))
    except Exception as error:  # the user's code: anything may come
        raise CbTraceError(
            f"provider {name} raised {type(error).__name__}: {error}",
            hint="call it in Python to see the traceback",
        ) from error
    workload = _workload(result, name, values)
    try:
        return _moved(workload, device)
    except (RuntimeError, NotImplementedError) as error:  # no memory, or tensors without data
        reason = str(error).partition("\n")[0]
        raise CbTraceError(
            f"{name} cannot be moved to {device}: {reason}",
            hint="return a model and inputs that hold data and fit the device",
        ) from error


def _workload(result: object, name: str, settings: dict[str, Setting]) -> Workload:
    from torch import nn

    if isinstance(result, Workload):
        return replace(result, name=name, settings=settings)
    if isinstance(result, tuple) and 2 <= len(result) <= 4 and isinstance(result[0], nn.Module):
        model, args, kwargs, step = (*result, None, None)[:4]
        if not isinstance(args, list | tuple):
            args = (args,)  # (model, batch) is what people write
        if isinstance(kwargs or {}, dict) and (step is None or callable(step)):
            return Workload(name, model, tuple(args), dict(kwargs or {}), step, settings)
    raise CbTraceError(f"provider {name} returned {type(result).__name__}", hint=f"return {SHAPES}")


def _moved(workload: Workload, device: str) -> Workload:
    import torch
    from torch.utils import _pytree as pytree

    def move(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    model: nn.Module = workload.model.to(device)
    args, kwargs = pytree.tree_map(move, (workload.args, workload.kwargs))
    return replace(workload, model=model, args=args, kwargs=kwargs)
