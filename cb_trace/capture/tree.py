"""The module tree under canonical paths: wrappers removed, a shared module once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from cb_trace.bundle import ModuleRecord, ParameterRecord
from cb_trace.errors import CbTraceError
from cb_trace.replay.tree import children_of, unwrapped

_PLACE = re.compile(r"(layer|block)_?(idx|id|index|num|number)$")  # where it stands, not what it is


@dataclass(slots=True)
class _Node:
    """A module at its first place in the tree; the other places are its aliases."""

    module: nn.Module
    path: str
    parent: str | None
    depth: int
    aliases: list[str] = field(default_factory=list)

    def child(self, name: str, module: nn.Module) -> _Node:
        path = f"{self.path}.{name}" if self.path else name
        return _Node(module, path, self.path, self.depth + 1)


@dataclass(frozen=True, slots=True)
class ModuleTree:
    """Records of all modules in order, and the modules themselves by canonical path."""

    records: list[ModuleRecord]
    modules: dict[str, nn.Module]
    parameters: list[ParameterRecord]

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters behind their records, by name."""
        return {
            record.name: self.modules[record.path]._parameters[_last(record.name)]  # type: ignore[misc]
            for record in self.parameters
        }


def module_tree(model: nn.Module) -> ModuleTree:
    """The tree of a model. Take it after a warm-up step: lazy modules have no shapes before.

    :raises CbTraceError: two of its modules have one path.
    """
    nodes: dict[int, _Node] = {}
    _walk(_Node(unwrapped(model), "", None, 0), nodes, ())
    _check_paths(nodes)
    signatures: dict[int, str] = {}
    owned: dict[int, ParameterRecord] = {}
    for node in nodes.values():
        for name, parameter in node.module._parameters.items():
            if parameter is not None:  # a shared one belongs to its first module
                first = owned.setdefault(id(parameter), _parameter(node.path, name, parameter))
                if node.path not in (first.path, *first.shared_with):
                    first.shared_with.append(node.path)
    return ModuleTree(
        [_record(node, ordinal, signatures) for ordinal, node in enumerate(nodes.values())],
        {node.path: node.module for node in nodes.values()},
        list(owned.values()),
    )


def _walk(node: _Node, nodes: dict[int, _Node], above: tuple[int, ...]) -> None:
    key = id(node.module)
    if key in above:  # a module that holds itself, by way of a child
        return
    if key in nodes:
        nodes[key].aliases.append(node.path)
    else:
        nodes[key] = node
    for name, child in _children(node.module):
        _walk(node.child(name, child), nodes, (*above, key))


def _check_paths(nodes: dict[int, _Node]) -> None:
    """Names that only ``_modules`` itself takes, empty or with a dot, may lead two to one path."""
    held: dict[str, _Node] = {}
    for node in nodes.values():
        for path in (node.path, *node.aliases):
            first = held.setdefault(path, node)
            if first is not node:
                both = f"a {type(first.module).__name__} and a {type(node.module).__name__}"
                raise CbTraceError(
                    f"two modules of the model have the path {path!r}: {both}",
                    hint="a name in _modules is empty or holds a dot; choose another for it",
                )


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Direct children by attribute name, wrappers opened."""
    return ((name, unwrapped(child)) for name, child in children_of(module).items())


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _parameter(path: str, name: str, parameter: nn.Parameter) -> ParameterRecord:
    return ParameterRecord(
        name=f"{path}.{name}" if path else name,
        path=path,
        numel=parameter.numel(),
        bytes=parameter.numel() * parameter.element_size(),
        trainable=parameter.requires_grad,
    )


def _record(node: _Node, ordinal: int, signatures: dict[int, str]) -> ModuleRecord:
    parameters, buffers = list(node.module.parameters()), list(node.module.buffers())
    return ModuleRecord(
        path=node.path,
        class_name=type(node.module).__name__,
        parent=node.parent,
        depth=node.depth,
        ordinal=ordinal,
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        buffer_bytes=sum(b.numel() * b.element_size() for b in buffers),
        signature=_signature(node.module, signatures, ()),
        aliases=node.aliases,
    )


def _signature(module: nn.Module, known: dict[int, str], above: tuple[int, ...]) -> str:
    """A digest of what decides the module's work, apart from its inputs and its values."""
    key = id(module)
    if key in above:
        return "recursive"
    if key not in known:
        parts = [f"{type(module).__module__}.{type(module).__qualname__}", *_configuration(module)]
        for name, child in _children(module):
            parts.append(f"{name}={_signature(child, known, (*above, key))}")
        known[key] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return known[key]


def _configuration(module: nn.Module) -> list[str]:
    """Its printed settings, own plain attributes (a head count, say), parameters and buffers."""
    try:
        printed = module.extra_repr()
    except Exception:  # a user's code; the attributes below still tell modules apart
        printed = ""
    plain = [
        f"{name}={value!r}"
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and _is_plain(value) and not _PLACE.search(name)
    ]
    tensors = [
        f"{name}:{tuple(t.shape)}:{t.dtype}:{t.requires_grad}"
        for name, t in (*module._parameters.items(), *module._buffers.items())
        if t is not None
    ]
    return [printed, *plain, *tensors]


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
