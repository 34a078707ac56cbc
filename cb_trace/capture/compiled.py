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

from cb_trace.bundle import Note
from cb_trace.capture.given import slot
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.range_names import ROOT_RANGE

STEADY_LIMIT = 8  # steps after which a model that still compiles is taken as it is


class CompiledModel:
    """Calls of the model run compiled while :meth:`installed`, and eagerly while :meth:`off`.

    Modules inside get no hooks: they would change the program or not run at all (shared facts,
    torch.md section 6). Only the call of the whole stands in a range, where asked for.

    ``form`` is what the model came compiled as; ``options`` are torch.compile's where it did not.
    """

    def __init__(
        self,
        model: nn.Module,
        options: dict[str, Any],
        form: Callable[..., Any] | None = None,
    ) -> None:
        self._model, self._options, self._form = model, options, form
        self._ranges = _RootRange()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Compile on the first call inside the block."""
        compiled: Any = self._form or torch.compile(self._model, **self._options)

        def call(*args: Any, **kwargs: Any) -> Any:
            with record_function(ROOT_RANGE) if self._ranges.on else nullcontext(), self.off():
                return compiled(*args, **kwargs)

        with slot(self._model, call):
            yield

    @contextmanager
    def off(self) -> Iterator[None]:
        """Run the model eagerly for a while."""
        with slot(self._model, None):
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


def settle(step: Callable[[], object]) -> Compilations:
    """Run steps until one compiles nothing."""
    seen = Compilations()
    while len(seen.graphs) < STEADY_LIMIT and not seen.steady:
        step()
        seen.step_ended()
    return seen


class Compilations:
    """What was compiled, step by step: ``graphs`` holds how many graphs each has compiled."""

    def __init__(self) -> None:
        self.graphs: list[int] = []
        self._before, self._breaks = _compilations(), _graph_breaks()

    @property
    def steady(self) -> bool:
        """Whether the last step compiled nothing."""
        return bool(self.graphs) and self.graphs[-1] == 0

    def step_ended(self) -> None:
        """Count what was compiled since the last time."""
        now = _compilations()
        self.graphs.append(now - self._before)
        self._before = now

    def notes(self) -> list[Note]:
        """What was unusual."""
        notes = []
        again = self.graphs[1:]
        if sum(again):
            state = "then steady" if self.steady else "and still going on"
            times = sum(count > 0 for count in again)
            detail = f"compiled again in {times} of the first {len(self.graphs)} steps, {state}"
            notes.append(Note(reason="recompiled", detail=detail, count=sum(again)))
        for reason, count in sorted((_graph_breaks() - self._breaks).items()):
            notes.append(Note(reason="graph break", detail=reason.partition("\n")[0], count=count))
        return notes


def _compilations() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _graph_breaks() -> Counter[str]:
    return Counter(torch._dynamo.utils.counters["graph_break"])
