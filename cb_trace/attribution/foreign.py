"""The module tree of a trace that came without one.

From ``cb:`` annotations where there are any, by their paths; else from ``nn.Module:`` slices.

Slices name an instance by class and a counter that goes by first call inside the profile
(``Linear_3``): it is the same instance within one file and says nothing about another file. The
path of a module is its caller's path, a dot and its name, ``GPT_0.Block_0.Linear_3``; it is stable
wherever the window opens on the same calls. An instance called by several parents is a module under
each, with the other paths as aliases. Wrappers (``OptimizedModule``, DDP, FSDP, …) keep their own
row, but the paths below leave them out, so that a wrapped model and a bare one compare, unless the
trace has both.

Either way the root is the path ``""``: nothing in the trace runs in it by itself, unless a
``cb:<root>`` range says so, and its inclusive figures are those of all modules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count

import polars as pl

from cb_trace.attribution.autograd import Backward, backward
from cb_trace.attribution.events import TraceEvents
from cb_trace.attribution.ranges import module_ranges
from cb_trace.attribution.slices import MOST_DEEP, SIGNATURE_PREFIX, Node, placed, slices_of
from cb_trace.columns import polars_schema
from cb_trace.range_names import path_of_range

ROOT_CLASS = "(trace)"
CAPTURE = "(capture)"
MOST_ALIASES = 20
WRAPPERS = {
    "OptimizedModule", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel",
    "CheckpointWrapper",
}  # fmt: skip


def foreign_modules(
    events: TraceEvents,
    *,
    run_id: str,
    first_module_id: int = 0,
    autograd: Backward | None = None,
) -> pl.DataFrame:
    """Rows of table ``module`` for a foreign trace; empty where it names no module.

    ``attribute`` needs nothing else: ranges are found by ``path``, slices by ``parent_id`` and
    ``signature``, which holds the instance (``nn.Module: Linear_3``). Sizes are NULL: a trace does
    not tell them.

    :param autograd: what :func:`backward` says of the events, where that is known already.
    """
    names = module_ranges(events.annotation)["name"].unique(maintain_order=True)
    root = _from_paths(names) if len(names) else _from_slices(events, autograd)
    nodes = list(_walk(root)) if root.children or len(names) else []
    for at, node in enumerate(nodes):
        node.module_id = first_module_id + at
    rows = [
        {
            "module_id": node.module_id, "run_id": run_id, "path": node.path,
            "class": node.class_name, "depth": node.depth, "ordinal": at,
            "parent_id": None if node.parent is None else node.parent.module_id,
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


def _from_paths(names: Iterable[str]) -> Node:
    """Every dot of a path is a step down the tree, whether the container was called or not."""
    root = Node("", ROOT_CLASS, None)
    for name in names:
        path = path_of_range(name) or ""
        above = root
        for part in path.split(".", MOST_DEEP - 1) if path else ():
            below = f"{above.path}.{part}" if above is not root else part
            above = above.children.setdefault(part, Node(below, None, above, above.depth + 1))
    return root


def _from_slices(events: TraceEvents, autograd: Backward | None) -> Node:
    """One node an instance and caller, in order of first call."""
    root = Node("", ROOT_CLASS, None)
    paths: dict[str, list[Node]] = {}  # of each instance
    taken = {""}

    def child(caller: Node, name: str) -> Node:
        if name not in caller.children:
            path = next(p for p in _paths(caller, name) if p not in taken)
            signature = SIGNATURE_PREFIX + name
            node = Node(path, _class_of(name), caller, caller.depth + 1, signature)
            caller.children[name] = node
            taken.add(path)
            paths.setdefault(name, []).append(node)
        return caller.children[name]

    autograd = autograd or backward(events.op, events.step)
    placed(slices_of(events.python_module, autograd), root, child)
    for nodes in paths.values():
        for node in nodes:
            node.aliases = [n.path for n in nodes[: MOST_ALIASES + 1] if n is not node]
    return root


def _paths(caller: Node, name: str) -> Iterable[str]:
    """A path without wrappers, then with them, then with a number."""
    bare = next((n for n in caller.outwards() if n.class_name not in WRAPPERS), caller)
    for above in (bare, caller):
        yield f"{above.path}.{name}" if above.path else name
    for number in count(2):
        yield f"{caller.path}.{name} ({number})"


def _class_of(name: str) -> str:
    head, _, counter = name.rpartition("_")
    return head if head and counter.isdigit() else name


def _walk(root: Node) -> Iterable[Node]:
    """Parents before children, in order of first call."""
    yield root
    for child in root.children.values():
        yield from _walk(child)
