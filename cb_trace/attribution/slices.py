"""Method ``python``: the ``nn.Module: Class_N`` frames that a profile with stacks leaves.

A module is an instance under one caller: an instance that two modules call is two modules, so that
each caller's figures hold what it called and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.calls import COLUMNS, Calls, calls_of
from cb_trace.attribution.nesting import NOTHING, Ints, column, lookup, nearest, nest

SIGNATURE_PREFIX = "nn.Module: "
MOST_DEEP = 200  # levels of a tree; what a stranger's trace nests deeper hangs off the last one


@dataclass(slots=True, eq=False)
class Node:
    """A module of the tree of a trace that came without one; ``children`` by their own names."""

    path: str
    class_name: str | None
    parent: Node | None
    depth: int = 0
    signature: str | None = None
    aliases: list[str] = field(default_factory=list)
    children: dict[str, Node] = field(default_factory=dict)
    module_id: int = NOTHING

    def outwards(self) -> Iterator[Node]:
        """The node, its caller, that one's caller, and so on."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def shallow(self) -> Node:
        """The node that a call made here hangs off."""
        return next(node for node in self.outwards() if node.depth < MOST_DEEP)


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a trace by start, callers before what they call.

    ``parent``: position of the calling slice. ``again``: of each slice that begins a recomputation
    inside the backward, the slice that the repeated forward was in. Both may be ``NOTHING``.
    """

    frame: pl.DataFrame
    parent: Ints
    again: dict[int, int]


def slices_of(python_module: pl.DataFrame, autograd: Backward) -> Slices:
    """Order the slices and find who called whom; Python ids count up, so they break ties."""
    frame = python_module.sort("start_ns", -pl.col("dur_ns"), "python_id", maintain_order=True)
    parent = _stated_parents(frame)
    node, _ = autograd.around(column(frame, "thread"), column(frame, "start_ns"))
    inside = node != NOTHING
    begin = np.flatnonzero(inside & ~lookup(inside, parent, False))
    made_by = (lookup(autograd.forward_thread, node[begin]),
               lookup(autograd.forward_ns, node[begin]))  # fmt: skip
    made_in = nest(frame).locate(*made_by) if len(begin) else begin
    return Slices(frame, parent, dict(zip(begin.tolist(), made_in.tolist(), strict=True)))


def slice_calls(python_module: pl.DataFrame, module: pl.DataFrame, autograd: Backward) -> Calls:
    """Calls from the slices whose instance is in the tree of :func:`foreign.foreign_modules`.

    The stated parent is the truth for who called whom. A frame without a return runs on past its
    parent's end in old traces (traces.md row 23): nesting clips it, here among module frames only.
    """
    slices = slices_of(python_module, autograd)
    nodes = placed(slices, _tree(module), lambda caller, name: caller.children.get(name))
    owner = pl.Series("module_id", [node and node.module_id for node in nodes], dtype=pl.Int32)
    frame, known = slices.frame.with_columns(owner), owner.is_not_null().to_numpy()
    kept = np.cumsum(known) - 1  # position among the calls kept
    above = lookup(nearest(slices.parent, known), slices.parent)
    return calls_of("python", frame.filter(known).select(COLUMNS), lookup(kept, above)[known])


def placed(
    slices: Slices, root: Node, child: Callable[[Node, str], Node | None]
) -> list[Node | None]:
    """The module of each slice; ``child`` gives that of a name under a caller.

    A loop, one dictionary look-up a slice: 0.4 s for a million. A slice of no module hands what it
    calls to its caller. Checkpointing calls a module from the backward: that is the module which
    ran forward there, and no new one.
    """
    found: list[Node | None] = []
    inside: list[Node] = []
    known: dict[str, dict[Node, None]] = {}  # as ordered sets
    names, parents = slices.frame["name"].to_list(), slices.parent.tolist()
    for at, (name, above) in enumerate(zip(names, parents, strict=True)):
        node = None
        if at in slices.again:
            forward = slices.again[at]
            node = _repeated(list(known.get(name, ())), inside[forward] if forward >= 0 else root)
        caller = root if above == NOTHING else inside[above]
        node = node or child(caller.shallow() if caller.depth >= MOST_DEEP else caller, name)
        if node is not None and slices.again:
            known.setdefault(name, {})[node] = None
        found.append(node)
        inside.append(node or caller)
    return found


def _repeated(known: list[Node], forward: Node) -> Node | None:
    """Of an instance's modules the one repeated: around the forward, else inside it, else first."""
    around = [node for node in forward.outwards() if node in known]
    inside = [node for node in known if forward in node.outwards()]
    return next(iter([*around, *inside, *known]), None)


def _tree(module: pl.DataFrame) -> Node:
    """The nodes of a module table; of its modules only those that came from slices have names."""
    rows = module.select("module_id", "parent_id", "path", "class", "depth", "signature").rows()
    root = Node("", None, None)
    nodes: dict[int | None, Node] = {}
    for number, above, path, kind, depth, signature in rows:
        parent = nodes.get(above, root) if path else None
        node = Node(path, kind, parent, depth or 0, signature, module_id=number) if path else root
        nodes[number] = node
        if parent is not None and (signature or "").startswith(SIGNATURE_PREFIX):
            parent.children.setdefault(signature.removeprefix(SIGNATURE_PREFIX), node)
    return root


def _stated_parents(slices: pl.DataFrame) -> Ints:
    """Position of each slice's stated parent.

    ``NOTHING`` where there is none, or one that comes later and so cannot be the caller.
    """
    above = slices.select(
        pl.col("python_id").alias("parent_python_id"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("at"),
    ).unique("parent_python_id", keep="first", maintain_order=True)
    joined = slices.select("parent_python_id").join(
        above, on="parent_python_id", how="left", maintain_order="left"
    )
    at = column(joined, "at")
    return np.where(at < np.arange(len(at)), at, NOTHING)
