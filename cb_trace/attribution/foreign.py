"""The module tree of a trace that came without one.

From ``cb:`` annotations where there are any, by their paths; else from ``nn.Module:`` slices.

Slices name an instance by class and a counter that goes by first call inside the profile
(``Linear_3``): it is the same instance within one file and says nothing about another file. The
path of an instance is its caller's path, a dot and its name, ``GPT_0.Block_0.Linear_3``; it is
stable wherever the window opens on the same calls. An instance called by several parents has the
path of its first call, and the rest as aliases. Wrappers (``OptimizedModule``, DDP, FSDP, …) keep
their own row, but the paths below leave them out, so that a wrapped model and a bare one compare.

Either way the root is the path ``""``: nothing in the trace runs in it by itself, unless a
``cb:<root>`` range says so, and its inclusive figures are those of all modules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from cb_trace.attribution.events import TraceEvents
from cb_trace.attribution.nesting import NOTHING
from cb_trace.attribution.ranges import module_ranges
from cb_trace.attribution.slices import SIGNATURE_PREFIX, in_order, stated_parents
from cb_trace.bundle import path_of_range
from cb_trace.columns import polars_schema

ROOT_CLASS = "(trace)"
CAPTURE = "(capture)"
MOST_DEEP = 200  # levels of a tree; what a stranger's trace nests deeper hangs off the last one
WRAPPERS = {
    "OptimizedModule", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel",
    "CheckpointWrapper",
}  # fmt: skip


@dataclass(slots=True)
class _Node:
    path: str
    class_name: str | None
    parent: _Node | None
    depth: int = 0
    signature: str | None = None
    aliases: list[str] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)

    def child(self, path: str, class_name: str | None, signature: str | None = None) -> _Node:
        node = _Node(path, class_name, self, self.depth + 1, signature)
        self.children.append(node)
        return node


def foreign_modules(events: TraceEvents, *, run_id: str, first_module_id: int = 0) -> pl.DataFrame:
    """Rows of table ``module`` for a foreign trace; empty where it names no module.

    ``attribute`` needs nothing else: ranges are found by ``path``, slices by ``signature``, which
    holds the instance (``nn.Module: Linear_3``). Sizes are NULL: a trace does not tell them.
    """
    names = module_ranges(events.annotation)["name"].unique(maintain_order=True)
    root = _from_paths(names) if len(names) else _from_slices(events.python_module)
    nodes = list(_walk(root)) if root.children or len(names) else []
    number = {id(node): first_module_id + at for at, node in enumerate(nodes)}
    rows = [
        {
            "module_id": number[id(node)], "run_id": run_id, "path": node.path,
            "class": node.class_name, "depth": node.depth, "ordinal": at,
            "parent_id": None if node.parent is None else number[id(node.parent)],
            "signature": node.signature, "aliases": json.dumps(node.aliases),
        }
        for at, node in enumerate(nodes)
    ]  # fmt: skip
    schema = polars_schema("module")
    return pl.DataFrame({n: [row.get(n) for row in rows] for n in schema}, schema=schema)


def capture_modules(module: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """The modules of a capture's trace, to stand in one tree with those of the trace itself.

    Both count instances by first call, so one name may mean two modules: where a path is in both
    files the capture's paths stand under ``(capture)``.

    :param captured: by :func:`foreign_modules`; its root is replaced by that of ``module``.
    :returns: the rows to add; all of them where ``module`` is empty.
    """
    root, theirs = (m.filter(pl.col("path") == "")["module_id"] for m in (module, captured))
    if not len(root) or not len(theirs):
        return captured
    below = captured.filter(pl.col("path") != "")
    if below["path"].is_in(module["path"].implode()).any():
        below = below.with_columns(path=pl.lit(f"{CAPTURE}.") + pl.col("path"))
    return below.with_columns(pl.col("parent_id").replace({theirs[0]: root[0]}))


def _from_paths(names: Iterable[str]) -> _Node:
    """Every dot of a path is a step down the tree, whether the container was called or not."""
    root = _Node("", ROOT_CLASS, None)
    nodes = {"": root}
    for name in names:
        path = path_of_range(name) or ""
        parts = path.split(".", MOST_DEEP - 1) if path else []
        above = root
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in nodes:
                nodes[path] = above.child(path, None)
            above = nodes[path]
    return root


def _from_slices(python_module: pl.DataFrame) -> _Node:
    """One node an instance, in order of first call."""
    slices = in_order(python_module)
    at = pl.Series("at", stated_parents(slices)).replace(NOTHING, None)
    calls = slices.select("name", pl.col("name").gather(at).alias("caller"))
    root = _Node("", ROOT_CLASS, None)
    nodes: dict[str, _Node] = {}
    for name, by in calls.unique(maintain_order=True).iter_rows():
        caller = nodes.get(by, root)
        while caller.depth >= MOST_DEEP and caller.parent is not None:
            caller = caller.parent
        path = _below(caller, name)
        if name not in nodes:
            nodes[name] = caller.child(path, _class_of(name), SIGNATURE_PREFIX + name)
        elif path not in (nodes[name].path, *nodes[name].aliases) and caller is not nodes[name]:
            nodes[name].aliases.append(path)
    return root


def _below(caller: _Node, name: str) -> str:
    above: _Node | None = caller
    while above is not None and above.class_name in WRAPPERS:
        above = above.parent
    return f"{above.path}.{name}" if above is not None and above.path else name


def _class_of(name: str) -> str:
    head, _, counter = name.rpartition("_")
    return head if head and counter.isdigit() else name


def _walk(root: _Node) -> Iterable[_Node]:
    """Parents before children, in order of first call."""
    yield root
    for child in root.children:
        yield from _walk(child)
