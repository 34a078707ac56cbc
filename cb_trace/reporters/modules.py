"""Modules as a person names them, and in the order of the tree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from cb_trace.errors import CbTraceError
from cb_trace.reporters.safe_text import plain


class _Row(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def parent(self) -> str | None: ...


Row = TypeVar("Row", bound=_Row)

ROOT_NAMES = frozenset({"", "<root>", "."})


def find_module(name: str, paths: Collection[str]) -> str:
    """The path that ``name`` means.

    :raises CbTraceError: no module has this path; close matches are the hint.
    """
    if name in paths:
        return name
    if name in ROOT_NAMES and "" in paths:
        return ""
    raise CbTraceError(f"no module {plain(name, 80)!r} in this profile", hint=_hint(name, paths))


def _hint(name: str, paths: Collection[str]) -> str:
    last = name.rpartition(".")[2]
    ends_alike = [path for path in paths if path and path.rpartition(".")[2] == last][:3]
    close = list(dict.fromkeys(get_close_matches(name, paths, n=3) + ends_alike))[:3]
    if not close:
        return "'cb-trace query PROFILE module_tree' lists them; the root is '.'"
    return "did you mean " + ", ".join(plain(path, 80) for path in close) + "?"


def in_tree_order(
    rows: Sequence[Row], *, module: str | None, depth: int | None, key: Callable[[Row], Any]
) -> list[tuple[Row, int]]:
    """Rows with their depth, in tree order, siblings sorted, cut to a subtree and a depth.

    :raises CbTraceError: no such module.
    """
    by_path = {row.path: row for row in rows}
    children: dict[str | None, list[Row]] = {}
    for row in rows:
        children.setdefault(_nearest_parent(row, by_path), []).append(row)
    tops = children.get(None, []) if module is None else [by_path[find_module(module, by_path)]]
    pending = [(row, 0) for row in sorted(tops, key=key)][::-1]
    found = []
    while pending:
        row, level = pending.pop()
        found.append((row, level))
        if depth is None or level < depth:
            below = sorted(children.get(row.path, ()), key=key)
            pending += [(child, level + 1) for child in below][::-1]
    return found


def _nearest_parent(row: Row, by_path: Collection[str]) -> str | None:
    """The parent that has a row; a module in which nothing ran has none."""
    parent = row.parent
    while parent is not None and parent not in by_path:
        parent = parent.rpartition(".")[0] if parent else None
    return parent
