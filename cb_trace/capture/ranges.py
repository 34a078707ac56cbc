"""One named profiler range a module call, by hooks that are gone afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from types import TracebackType
from typing import Any

from torch import nn
from torch.profiler import record_function

from cb_trace.range_names import range_name
from cb_trace.replay.methods import FORWARD, StepThread, hooked, in_backward, stand_ins


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that goes on. Without a region it is part of the call around it."""

    path: str
    method: str
    region: record_function | None


class ModuleRanges:
    """While entered, every call of the modules stands in a range that carries its path.

    A call is that of ``forward`` or of a method in ``wrap``, on the thread that entered or in the
    autograd run it started. One of them right inside another of the same module is part of it
    (``forward`` that calls ``encode``, say); a method inside itself, or one that another module
    calls, is a call of its own. A forward that raises closes its range by ``always_call``; what a
    ``BaseException`` such as Ctrl-C leaves open is closed by the enclosing call's hook, or at exit
    for the own thread.

    ``called`` holds the paths seen, ``elsewhere`` those seen on another thread; ``recomputed`` says
    whether a call came from the backward.
    """

    def __init__(self, modules: Mapping[str, nn.Module], wrap: Sequence[str] = ()) -> None:
        self.called: set[str] = set()
        self.elsewhere: set[str] = set()
        self.recomputed = False
        self._modules, self._wrap = modules, wrap
        self._stack_of_hooks = ExitStack()
        self._open = threading.local()

    def __enter__(self) -> ModuleRanges:
        self._step = StepThread()
        for path, module in self._modules.items():
            # First before and last after: the work of other hooks is part of the call.
            for handle in hooked(module, self._opener(path), self._closer(path)):
                self._stack_of_hooks.callback(handle.remove)
        self._stack_of_hooks.enter_context(stand_ins(self._modules, self._wrap, self._around))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack_of_hooks.close()
        self._close_to(0)

    def _stack(self) -> list[_Open]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[_Open] = self._open.stack
        return stack

    def _opener(self, path: str, method: str = FORWARD) -> Callable[..., None]:
        name = range_name(path)

        def opened(*_: Any) -> None:
            if not self._step.holds():
                self.elsewhere.add(path)
                return
            self.called.add(path)
            self.recomputed |= in_backward()
            stack = self._stack()
            region = None if _is_part(stack, path, method) else record_function(name)
            if region is not None:
                region.__enter__()  # type: ignore[no-untyped-call]
            stack.append(_Open(path, method, region))

        return opened

    def _closer(self, path: str, method: str = FORWARD) -> Callable[..., None]:
        def closed(*_: Any) -> None:
            for height, call in reversed(list(enumerate(self._stack()))):
                if (call.path, call.method) == (path, method):
                    self._close_to(height)
                    return

        return closed

    def _around(
        self, path: str, _module: nn.Module, name: str, method: Callable[..., Any]
    ) -> Callable[..., Any]:
        opened, closed = self._opener(path, name), self._closer(path, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            opened()
            try:
                return method(*args, **kwargs)
            finally:
                closed()

        return call

    def _close_to(self, height: int) -> None:
        stack = self._stack()
        while len(stack) > height:
            region = stack.pop().region
            if region is not None:
                region.__exit__(None, None, None)


def _is_part(stack: Sequence[_Open], path: str, method: str) -> bool:
    """Whether a call stands right in a call of another method of the same module."""
    own = [call.method for call in takewhile(lambda call: call.path == path, reversed(stack))]
    return bool(own) and method not in own
