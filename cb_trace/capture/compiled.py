"""A model under torch.compile for the time of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from cb_trace.bundle import ROOT_RANGE, Note
from cb_trace.capture.ranges import ModuleRanges

STEADY_LIMIT = 8  # steps after which a model that still compiles is taken as it is
_SLOT = "_compiled_call_impl"  # where nn.Module.compile puts what a call runs


class CompiledModel:
    """Calls of the model run compiled while :meth:`installed`, and eagerly while :meth:`off`.

    Modules inside get no hooks: they would change the program or not run at all (shared facts,
    torch.md section 6). Only the call of the whole stands in a range, where asked for.
    """

    def __init__(self, model: nn.Module, options: dict[str, Any]) -> None:
        self._model, self._options = model, options
        self._ranges = _RootRange()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Compile on the first call inside the block."""
        compiled: Any = torch.compile(self._model, **self._options)

        def call(*args: Any, **kwargs: Any) -> Any:
            with record_function(ROOT_RANGE) if self._ranges.on else nullcontext(), self.off():
                return compiled(*args, **kwargs)

        with _slot(self._model, call):
            yield

    @contextmanager
    def off(self) -> Iterator[None]:
        """Run the model eagerly for a while."""
        with _slot(self._model, None):
            yield

    def ranges(self) -> ModuleRanges:
        """What marks the model's calls in a trace while entered."""
        return self._ranges


class _RootRange(ModuleRanges):
    """Ranges with no hook: the call itself looks whether they are on."""

    def __init__(self) -> None:
        super().__init__({})
        self.on = False

    def __enter__(self) -> _RootRange:
        super().__enter__()
        self.on = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.on = False
        super().__exit__(kind, error, trace)


@contextmanager
def _slot(model: nn.Module, call: Callable[..., Any] | None) -> Iterator[None]:
    held = vars(model)
    before = held.pop(_SLOT, None)
    if call is not None:
        held[_SLOT] = call
    try:
        yield
    finally:
        held.pop(_SLOT, None)
        if before is not None:
            held[_SLOT] = before


@contextmanager
def fresh_compiler(device: torch.device) -> Iterator[None]:
    """An empty compiler with an empty cache on disk, which is gone afterwards.

    A graph taken from a cache brings no provenance (pytorch#167699). On the CPU generated
    kernels are made to show in a profile, which they do not by themselves.
    """
    from torch._inductor import config, utils

    fresh: Any = getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache
    with ExitStack() as stack:
        stack.callback(torch._dynamo.reset)
        torch._dynamo.reset()
        stack.enter_context(fresh())
        if device.type == "cpu":
            before = config.cpp.enable_kernel_profile
            stack.callback(setattr, config.cpp, "enable_kernel_profile", before)
            config.cpp.enable_kernel_profile = True
        yield


def settle(step: Callable[[], object]) -> list[Note]:
    """Run steps until one compiles nothing, and note what was unusual about the compilation."""
    graphs: list[int] = []
    breaks = _graph_breaks()
    while len(graphs) < STEADY_LIMIT:
        before = _compilations()
        step()
        graphs.append(_compilations() - before)
        if graphs[-1] == 0:
            break
    notes = []
    again = sum(graphs[1:])
    if again:
        state = "and still going on" if graphs[-1] else "then steady"
        detail = f"compiled again in {len(graphs[1:])} of the first {len(graphs)} steps, {state}"
        notes.append(Note(reason="recompiled", detail=detail, count=again))
    for reason, count in sorted((_graph_breaks() - breaks).items()):
        notes.append(Note(reason="graph break", detail=reason.partition("\n")[0], count=count))
    return notes


def _compilations() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _graph_breaks() -> Counter[str]:
    return Counter(torch._dynamo.utils.counters["graph_break"])
