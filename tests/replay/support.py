"""What the replay tests share: a replayer over a model, and one call of it run alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from cb_trace.capture.tree import module_tree
from cb_trace.replay.captures import Captures
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.hooks import Call
from cb_trace.replay.isolated import isolated
from cb_trace.replay.tree import modules_by_path
from cb_trace.replay.walk import Replayer, ReplayOptions

CPU = torch.device("cpu")
FLUSH = CacheFlush(CPU)


def replayer(model: nn.Module, step: Callable[[], object] | None, **options: Any) -> Replayer:
    """A replayer that measures fast: timing is not what these tests are about."""
    fast = {"min_samples": 3, "min_seconds": 0.0, "noise_ratio": 9.0, "profiled_calls": 2}
    given = ReplayOptions(**{"conditions": ("hot",), **fast, **options})
    return Replayer(model, step, module_tree(model).records, CPU, given, lambda _: None)


def captures(
    model: nn.Module,
    step: Callable[[], object],
    *,
    dedup: bool = True,
    limit: int | None = None,
    wrap: tuple[str, ...] = (),
) -> Captures:
    """The calls of one step."""
    records = module_tree(model).records
    signatures = {record.path: record.signature for record in records}
    modules = modules_by_path(model, records)
    made = Captures(modules, signatures, CPU, dedup=dedup, max_bytes=limit, wrap=wrap)
    with made.first_pass():
        step()
    return made


def call_of(model: nn.Module, step: Callable[[], object], path: str) -> Call:
    """The first captured call of one module."""
    return next(call for call in captures(model, step, dedup=False).calls if call.path == path)


def alone(call: Call) -> Any:
    """What the module gives when it is run alone, with its generators as they were."""
    with isolated(call, CPU, FLUSH) as ready:
        if call.rng is not None:
            call.rng.put()
        ready.prepare()
        return ready.run()


def in_context(model: nn.Module, step: Callable[[], object], path: str) -> Any:
    """A copy of what the module gives inside the step."""
    seen: list[Any] = []
    module = model.get_submodule(path)
    handle = module.register_forward_hook(lambda _m, _a, out: seen.append(out.detach().clone()))
    state = torch.get_rng_state()
    step()
    torch.set_rng_state(state)
    handle.remove()
    return seen[0]
