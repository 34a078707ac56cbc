"""One named profiler range a module call, by hooks that are gone afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from torch import nn
from torch.profiler import record_function
from torch.utils.hooks import RemovableHandle

from cb_trace.bundle import range_name


class ModuleRanges:
    """While entered, every forward of the modules stands in a range that carries its path.

    A forward that raises closes its range by ``always_call``; what a ``BaseException`` such as
    Ctrl-C leaves open is closed by the enclosing call's hook, or at exit for the own thread.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._handles: list[RemovableHandle] = []
        self._open = threading.local()

    def __enter__(self) -> ModuleRanges:
        for path, module in self._modules.items():
            # First before and last after: the work of other hooks is part of the call.
            self._handles += (
                module.register_forward_pre_hook(self._opener(range_name(path)), prepend=True),
                module.register_forward_hook(self._closer(range_name(path)), always_call=True),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._close_to(0)

    def _stack(self) -> list[tuple[str, record_function]]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[tuple[str, record_function]] = self._open.stack
        return stack

    def _opener(self, name: str) -> Callable[..., None]:
        def opened(*_: Any) -> None:
            region = record_function(name)
            region.__enter__()  # type: ignore[no-untyped-call]
            self._stack().append((name, region))

        return opened

    def _closer(self, name: str) -> Callable[..., None]:
        def closed(*_: Any) -> None:
            stack = self._stack()
            height = next((i for i in reversed(range(len(stack))) if stack[i][0] == name), None)
            if height is not None:
                self._close_to(height)

        return closed

    def _close_to(self, height: int) -> None:
        stack = self._stack()
        while len(stack) > height:
            stack.pop()[1].__exit__(None, None, None)
