"""A short range from each parameter's hook, which tells whose gradient was just accumulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from torch import nn
from torch.profiler import record_function
from torch.utils.hooks import RemovableHandle

from cb_trace.range_names import gradient_range


class GradientMarkers:
    """While entered, every accumulated gradient leaves a range that carries its parameter's name.

    The hook runs on the autograd thread inside the accumulation's own operator, which names no
    parameter. ``fired`` says whether a gradient was accumulated at all.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.fired = False
        self._parameters = parameters
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> GradientMarkers:
        for name, parameter in self._parameters.items():
            if parameter.requires_grad:
                hook = self._marker(gradient_range(name))
                register: Any = parameter.register_post_accumulate_grad_hook
                self._handles.append(register(hook))
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

    def _marker(self, name: str) -> Callable[[Any], None]:
        def mark(_: Any) -> None:
            self.fired = True
            with record_function(name):
                pass

        return mark
