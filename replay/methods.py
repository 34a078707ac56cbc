"""Watching module calls: forward by hooks, other methods by a stand-in on the instance."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

FORWARD = "__call__"

Method = Callable[..., Any]
# Makes the stand-in of a module's method: (path, module, name, method) -> method.
Around = Callable[[str, nn.Module, str, Method], Method]


class StepThread:
    """Tells calls of the step from those of other threads, and forwards from recomputed ones."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def holds(self) -> bool:
        """Whether this is the step's own thread, or autograd at work for it."""
        return threading.get_ident() == self._thread or in_backward()


def in_backward() -> bool:
    """Whether autograd is running this code: a hook, or a forward that is recomputed."""
    probe = getattr(torch._C, "_current_graph_task_id", None)
    return bool(probe is not None and probe() != -1)


def hooked(
    module: nn.Module, before: Callable[..., None], after: Callable[..., None]
) -> list[RemovableHandle]:
    """Hooks around the calls of a module: ``before(module, args, kwargs)`` ahead of its other
    hooks, ``after(module, args, output)`` behind them, with no output where a call raises.

    By the class's own functions: a scripted module, which runs hooks of its own, refuses the names.
    """
    pre: Any = nn.Module.register_forward_pre_hook
    post: Any = nn.Module.register_forward_hook
    return [
        pre(module, before, with_kwargs=True, prepend=True),
        post(module, after, always_call=True),
    ]


@contextmanager
def stand_ins(
    modules: Mapping[str, nn.Module], names: Sequence[str], around: Around
) -> Iterator[None]:
    """Put what ``around`` makes in the place of the methods named, for as long as the block lasts.

    It stands on the instances; classes are left alone.
    """
    placed: list[tuple[nn.Module, str, bool, Any]] = []
    try:
        for path, module in modules.items():
            for name in names:
                method = getattr(module, name, None)
                if not callable(method) or isinstance(method, nn.Module):
                    continue
                own = name in vars(module)
                placed.append((module, name, own, vars(module).get(name)))
                stand_in = functools.wraps(method)(around(path, module, name, method))
                vars(module)[name] = stand_in
        yield
    finally:
        for module, name, own, value in reversed(placed):
            if own:
                vars(module)[name] = value
            else:
                vars(module).pop(name, None)
