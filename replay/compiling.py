"""A module compiled alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import torch

_NUMBER = count()


def compiled_alone(call: Callable[..., object], options: dict[str, Any]) -> Callable[..., object]:
    """``call`` under torch.compile, which compiles on its first run.

    Each gets a code object of its own: the compiler keeps its results by code object, and modules
    of one class would otherwise share, and soon fill, one list.
    """

    def alone(*args: Any, **kwargs: Any) -> object:
        return call(*args, **kwargs)

    name = f"alone_{next(_NUMBER)}"
    alone.__code__ = alone.__code__.replace(co_name=name, co_qualname=name)
    compiled: Callable[..., object] = torch.compile(alone, **options)
    return compiled
