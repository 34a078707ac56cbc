"""What each kernel of a compiled graph is made of, and which module has which part of it.

Inductor lists, for each kernel it generates, the post-grad nodes in it; and with them nodes further
up, which the kernel recomputes, or only reads the results of (torch.md section 7, "Traps"). The
rule here, one for all graphs:

* An extern kernel (a library call) is its own main node: the one whose operator it calls.
* Any other node counts in the first kernel, in call order, that holds it. The module that wants a
  value once more pays for reading it again. Where a kernel holds no node for the first time (the
  second half of a split reduction), all its nodes count.
* A node weighs the bytes of its inputs and outputs; a view weighs nothing. In a kernel of more
  than ``RIDGE`` FLOPs a byte a node weighs its FLOPs.
* A node of no known module goes with the others where these agree on one; else its part is
  nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cb_trace.bundle import CompiledGraph, CompiledKernel, CompiledNode

RIDGE = 50.0  # FLOP/byte; the H200 turns compute-bound between 14 (fp32) and 206 (bf16)
EXTERN = "extern_kernels."
CALLED_AS = {"bias_addmm": "addmm"}  # Inductor's own wrappers around another operator
VIEWS = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "expand",
    "getitem", "lift_fresh", "permute", "reshape", "select", "slice", "split", "split_with_sizes",
    "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex",
    "view_as_real",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A module's part of one generated kernel; ``path`` is None where nobody knows the module.

    ``weight`` is in any unit, but one for the parts of a kernel.
    """

    path: str | None
    phase: str
    weight: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Generated:
    """One kernel call of a graph's code: what a run calls it, and its parts."""

    key: str
    called: str
    parts: tuple[Part, ...]


def generated(graphs: Sequence[CompiledGraph]) -> list[list[Generated]]:
    """The kernel calls of each graph, in call order; one list a key.

    Two graphs may have one key (the same code compiled for two modules). Nothing in a trace tells
    them apart, so where they differ their kernels are of an unknown module.
    """
    by_key: dict[str, list[Generated]] = {}
    for graph in graphs:
        calls = list(_calls(graph))
        known = by_key.setdefault(graph.key, calls)
        if known != calls:
            unknown = (Part(None, graph.phase, 1.0, 0),)
            by_key[graph.key] = [Generated(graph.key, call.called, unknown) for call in known]
    return list(by_key.values())


def called(name: str) -> str:
    """The operator or kernel that a generated call runs: ``addmm`` of ``extern_kernels.addmm``."""
    name = name.removeprefix("torch.ops.")
    if name.startswith(EXTERN):
        own = name.removeprefix(EXTERN)
        return CALLED_AS.get(own, own)
    namespace, dot, rest = name.partition(".")
    return rest.partition(".")[0] if dot and namespace else name


def _calls(graph: CompiledGraph) -> Iterator[Generated]:
    kernels = sorted(graph.kernels, key=lambda kernel: kernel.handle)
    main = _main_nodes(kernels)
    counted = {node.name for node in main.values()}
    for place, kernel in enumerate(kernels):
        first = [node for node in kernel.nodes if node.name not in counted]
        if place in main:
            chosen: Iterable[CompiledNode] = [main[place]]
        else:
            chosen = first if any(map(_bytes, first)) else kernel.nodes
            counted.update(node.name for node in first)
        yield Generated(graph.key, called(kernel.name), _parts(list(chosen), graph.phase))


def _main_nodes(kernels: Sequence[CompiledKernel]) -> dict[int, CompiledNode]:
    """By place, the node that an extern kernel computes; the first of its operator not taken."""
    taken: set[str] = set()
    main: dict[int, CompiledNode] = {}
    for place, kernel in enumerate(kernels):
        operator = called(kernel.name)
        if operator == kernel.name:
            continue
        own = [n for n in kernel.nodes if called(n.target) == operator and n.name not in taken]
        if own:
            main[place] = own[0]
            taken.add(own[0].name)
    return main


def _bytes(node: CompiledNode) -> int:
    return 0 if called(node.target) in VIEWS or "getitem" in node.target else node.bytes


def _parts(nodes: Sequence[CompiledNode], phase: str) -> tuple[Part, ...]:
    """The nodes' weights and bytes, summed by module and phase."""
    moved, flops = sum(map(_bytes, nodes)), sum(node.flops for node in nodes)
    weights = [float(n.flops if flops > RIDGE * moved else _bytes(n)) for n in nodes]
    if not any(weights):
        weights = [1.0] * len(nodes)
    paths = {n.path for n, w in zip(nodes, weights, strict=True) if w and n.path is not None}
    agreed = next(iter(paths)) if len(paths) == 1 else None
    sums: dict[tuple[str | None, str], list[float]] = {}
    for node, weight in zip(nodes, weights, strict=True):
        key = (agreed if node.path is None else node.path, node.phase)
        total = sums.setdefault(key, [0.0, 0])
        total[0] += weight
        total[1] += _bytes(node)
    parts = tuple(Part(*key, weight, int(size)) for key, (weight, size) in sums.items() if weight)
    return parts or (Part(None, phase, 1.0, 0),)
