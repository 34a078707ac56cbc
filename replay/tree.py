"""From canonical module paths to the modules of a model."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torch import nn

from cb_trace.bundle import ModuleRecord
from cb_trace.errors import CbTraceError

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def modules_by_path(model: nn.Module, tree: Sequence[ModuleRecord]) -> dict[str, nn.Module]:
    """The module behind every record, wrappers opened; breadth first, in order within a depth.

    :raises CbTraceError: the model holds a DataParallel, whose replicas share their hooks.
    """
    if data_parallel(model):
        raise CbTraceError(
            "a model in DataParallel cannot be replayed", hint="use DistributedDataParallel"
        )
    found: dict[str, nn.Module] = {}
    for record in sorted(tree, key=lambda r: (r.depth, r.ordinal)):
        if record.parent is None:
            found[record.path] = unwrapped(model)
            continue
        name = record.path[len(record.parent) + 1 :] if record.parent else record.path
        parent = found.get(record.parent)
        child = children_of(parent).get(name) if parent is not None else None
        if child is not None:
            found[record.path] = unwrapped(child)
    return found


def data_parallel(model: nn.Module) -> bool:
    """Whether replicas of modules run on other threads, with what stands on the instance."""
    return any(isinstance(module, nn.DataParallel) for module in model.modules())


def sharded(model: nn.Module) -> frozenset[int]:
    """Ids of the modules whose parameters FSDP gathers for a call: its units, and what is inside
    or around them. None of them can be called outside the step.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")  # a model without it has not imported it
    names = ("FSDPModule", "FullyShardedDataParallel")
    kinds = tuple(getattr(fsdp, name) for name in names if hasattr(fsdp, name))
    units = {id(module) for module in model.modules() if isinstance(module, kinds)}
    if not units:
        return frozenset()
    inside = {
        id(inner) for unit in model.modules() if id(unit) in units for inner in unit.modules()
    }
    around = {
        id(module)
        for module in model.modules()
        if any(id(inner) in units for inner in module.modules())
    }
    return frozenset(inside | around)


def configuration_key(module: nn.Module) -> tuple[object, ...]:
    """What of a module besides its printed configuration decides its kernels.

    Training flags, and layout, device and trainability of every parameter and buffer.
    """
    flags = tuple(inner.training for inner in module.modules())
    tensors = tuple(
        (name, tuple(t.shape), t.dtype, str(t.device), t.requires_grad, _strides(t))
        for name, t in (*module.named_parameters(), *module.named_buffers())
    )
    return (flags, tensors)


def _strides(tensor: nn.Parameter | object) -> object:
    try:
        return tuple(tensor.stride())  # type: ignore[union-attr]
    except (RuntimeError, AttributeError):
        return None  # sparse, nested


def children_of(module: nn.Module) -> dict[str, nn.Module]:
    """Direct children by attribute name; a scripted module keeps them in no dict."""
    return {name: child for name, child in module._modules.items() if child is not None}


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside any wrappers: of torch.compile, FSDP, checkpointing, data parallelism."""
    while True:
        parallel = isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel)
        names = (*WRAPPERS, "module") if parallel else WRAPPERS
        children = children_of(module)
        inner = next((children[name] for name in names if name in children), None)
        if inner is None:
            return module
        module = inner
