"""One named profiler range a module call, by hooks that are gone afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from torch import nn
from torch.profiler import record_function

from cb_trace.range_names import range_name
from cb_trace.replay.methods import StepThread, hooked, in_backward, stand_ins


class ModuleRanges:
    """While entered, every call of the modules stands in a range that carries its path.

    A call is that of ``forward`` or of a method in ``wrap``, on the thread that entered or in the
    autograd run it started. A forward that raises closes its range by ``always_call``; what a
    ``BaseException`` such as Ctrl-C leaves open is closed by the enclosing call's hook, or at exit
    for the own thread.

    ``called`` holds the paths seen; ``recomputed`` says whether a call came from the backward.
    """

    def __init__(self, modules: Mapping[str, nn.Module], wrap: Sequence[str] = ()) -> None:
        self.called: set[str] = set()
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

    def _stack(self) -> list[tuple[str, record_function]]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[tuple[str, record_function]] = self._open.stack
        return stack

    def _opener(self, path: str) -> Callable[..., None]:
        name = range_name(path)

        def opened(*_: Any) -> None:
            if not self._step.holds():
                return
            self.called.add(path)
            self.recomputed |= in_backward()
            region = record_function(name)
            region.__enter__()  # type: ignore[no-untyped-call]
            self._stack().append((name, region))

        return opened

    def _closer(self, path: str) -> Callable[..., None]:
        name = range_name(path)

        def closed(*_: Any) -> None:
            stack = self._stack()
            height = next((i for i in reversed(range(len(stack))) if stack[i][0] == name), None)
            if height is not None:
                self._close_to(height)

        return closed

    def _around(
        self, path: str, _module: nn.Module, _name: str, method: Callable[..., Any]
    ) -> Callable[..., Any]:
        opened, closed = self._opener(path), self._closer(path)

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
            stack.pop()[1].__exit__(None, None, None)
