"""The nodes of a graph that Inductor lowered: whose they are and how much work they do."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cb_trace.bundle import CompiledNode, Phase
from cb_trace.capture.owners import Before, Owners, done_again


def operators(graph: Any) -> list[Any]:
    """The nodes of an FX graph that do something."""
    return [node for node in graph.nodes if node.op == "call_function"]


def graph_nodes(
    graph: Any, owners: Owners, before: list[Before], *, backward: bool
) -> dict[str, CompiledNode]:
    """A record of every operator of an FX graph, by node name."""
    nodes = operators(graph)
    paths = owners.of(nodes, before)
    return {node.name: _record(node, paths[node], _phase(node, backward)) for node in nodes}


def _phase(node: Any, backward: bool) -> Phase:
    if not backward:
        return "forward"
    return "recompute" if done_again(node) else "backward"


def _record(node: Any, path: str | None, phase: Phase) -> CompiledNode:
    return CompiledNode(
        name=node.name,
        target=_target(node.target),
        path=path,
        phase=phase,
        bytes=0 if _moves_nothing(node.target) else _bytes(node),
        flops=_flops(node),
    )


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def _moves_nothing(target: Any) -> bool:
    """Views, and picking one output of several."""
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", "") == "getitem"
    returns = target._schema.returns
    aliases = [r.alias_info for r in returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


def _bytes(node: Any) -> int:
    """Bytes of the tensors that go in and come out."""
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]
    return sum(prod(map(_size, t.shape)) * t.element_size() for t in tensors)


def _size(size: Any) -> int:
    """A size as a number: of a dynamic one the value it was compiled with, with no guard added."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return int(hint) if hint is not None else 0


def _flops(node: Any) -> int:
    """By PyTorch's own formulas (2·m·n·k for a product); 0 where there is none."""
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(getattr(node.target, "_overloadpacket", None))
    if formula is None:
        return 0
    try:
        args, kwargs = pytree.tree_map(_shaped, (node.args, node.kwargs))
        return int(formula(*args, **kwargs, out_val=_shaped(node)))
    except Exception:  # a formula that does not take this call: unknown work, not wrong work
        return 0


def _shaped(value: Any) -> Any:
    """A node as tensors of its sizes without data; anything else as it is."""
    if not isinstance(value, torch.fx.Node):
        return value

    def shaped(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.empty([_size(n) for n in leaf.shape], dtype=leaf.dtype, device="meta")

    return pytree.tree_map(shaped, value.meta.get("val"))
