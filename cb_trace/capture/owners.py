"""Which module an FX node came from, by the module stacks that Dynamo leaves in its meta."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cb_trace.capture.tree import ModuleTree

# Only `self` names the frame's module; other locals may hold any (`for block in self.blocks`).
_OF_SELF = re.compile(r"L\['self'\]\.(.+)")
_STACKS = ("fwd_nn_module_stack", "nn_module_stack")
_SOURCES = ("fwd_source_fn_stack", "source_fn_stack")
_ROUNDS = 4  # of asking neighbours for their module


@dataclass(frozen=True, slots=True)
class Before:
    """A node as it was before Inductor's passes."""

    name: str
    path: str | None
    inputs: frozenset[str]


class Owners:
    """Canonical module paths of the nodes of compiled graphs.

    A stack names its modules by ``id``, which is unambiguous; its texts are relative to the frame
    that was compiled, which after a graph break is any module's. Work of the frame's own module
    has an empty stack: the frame is told from how the texts of the others differ from their paths.
    """

    def __init__(self, tree: ModuleTree) -> None:
        self._paths = {id(module): path for path, module in tree.modules.items()}
        self._names = {r.path: (r.path, *r.aliases) for r in tree.records}

    def before(self, nodes: list[Any]) -> list[Before]:
        """What is known of a graph's nodes before Inductor's passes replace some of them."""
        paths = self._own(nodes)
        return [Before(n.name, paths[n], _inputs(n)) for n in nodes if paths[n] is not None]

    def of(self, nodes: list[Any], before: list[Before]) -> dict[Any, str | None]:
        """The path of every node of one graph.

        A node that pattern fusion made takes the module of what it stands for: nodes of ``before``
        that are gone and whose inputs it has. A node that has none either (the sum of two
        gradients) takes the module that its users agree on, else its inputs, else none.
        """
        paths = self._own(nodes)
        here = {node.name for node in nodes}
        gone = [b for b in before if b.name not in here and b.inputs]
        lost = [node for node in nodes if not _came_with_source(node) and paths[node] is None]
        for node in lost:
            inputs = _inputs(node)
            paths[node] = _only(b.path for b in gone if b.inputs <= inputs)
        for _ in range(_ROUNDS):
            found = {node: _agreed(node, paths) for node in lost if paths[node] is None}
            paths |= {node: path for node, path in found.items() if path is not None}
        return paths

    def _own(self, nodes: list[Any]) -> dict[Any, str | None]:
        """The paths that the nodes' own stacks give."""
        frame = "" if _is_first_frame() else self._frame(nodes)
        return {node: self._path(node, frame) for node in nodes}

    def _path(self, node: Any, frame: str | None) -> str | None:
        entry = _innermost(node)
        if entry is not None:
            return self._paths.get(_identity(entry[0]))
        return frame if _came_with_source(node) else None

    def _frame(self, nodes: Iterable[Any]) -> str | None:
        """The path of the module whose frame was compiled, if the stacks leave only one."""
        possible: set[str] | None = None
        for key, text in {entry for node in nodes if (entry := _innermost(node)) is not None}:
            match, path = _OF_SELF.fullmatch(text), self._paths.get(_identity(key))
            if match is None or path is None:
                continue
            fits = {p for name in self._names[path] if (p := _before(match[1], name)) is not None}
            possible = fits if possible is None else possible & fits
        return possible.pop() if possible is not None and len(possible) == 1 else None


def done_again(node: Any) -> bool:
    """Whether a node of a backward graph is forward work that is recomputed there."""
    if node.meta.get(_STACKS[0]) or _SOURCES[0] in node.meta:
        return False
    return bool(node.meta.get(_STACKS[1])) or _SOURCES[1] in node.meta


def _innermost(node: Any) -> tuple[str, str] | None:
    """Key and text of the last entry of the stack; the forward's for a backward node."""
    for name in _STACKS:
        stack = node.meta.get(name)
        if stack:
            key, (text, *_) = list(stack.items())[-1]
            return str(key), str(text)
    return None


def _identity(key: str) -> int:
    """A later call of one module has ``id@number`` for its key."""
    number = key.partition("@")[0]
    return int(number) if number.isdecimal() else -1


def _came_with_source(node: Any) -> bool:
    """Whether the node is an operation of the user's code, not one that a pass has made."""
    return any(name in node.meta for name in _SOURCES)


def _before(suffix: str, path: str) -> str | None:
    """What stands before a suffix of whole names in a path; None where it is no suffix."""
    if path == suffix:
        return ""
    ending = f".{suffix}"
    return path.removesuffix(ending) if path.endswith(ending) else None


def _agreed(node: Any, paths: dict[Any, str | None]) -> str | None:
    """The one path of the users, else of the inputs, else none."""
    by_users = _only(paths.get(user) for user in node.users)
    return by_users if by_users is not None else _only(map(paths.get, node.all_input_nodes))


def _only(paths: Iterable[str | None]) -> str | None:
    """The one path among those known; None where they differ or nothing is known."""
    known = {path for path in paths if path is not None}
    return known.pop() if len(known) == 1 else None


def _inputs(node: Any) -> frozenset[str]:
    return frozenset(n.name for n in node.all_input_nodes)


def _is_first_frame() -> bool:
    """Whether the graph is of the frame that was called first: the compiled model itself."""
    from torch import _guards

    context = getattr(_guards, "CompileContext", None)
    current = getattr(context, "current_compile_id", None)
    identity = current() if current is not None else None
    return getattr(identity, "frame_id", None) == 0
