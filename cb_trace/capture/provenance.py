"""What Inductor made of each module: generated kernels, their graph nodes, the nodes' modules.

Taken while it compiles. The maps that PyTorch writes to files are empty for the backward (shared
facts, torch.md section 7), so the dictionary in the process is read, together with the graph that
was lowered. Both are private to PyTorch: what this version lacks becomes a reason, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cb_trace.bundle import CompiledGraph, CompiledKernel, CompiledNode, Phase
from cb_trace.capture.graph_nodes import graph_nodes, operators
from cb_trace.capture.owners import Owners

KERNEL_MAP = "_inductor_triton_kernel_to_post_grad_node_info"
COMPILE = "fx_codegen_and_compile"


@dataclass(frozen=True, slots=True)
class _Compiled:
    """One graph as it was compiled; Inductor gives the result its key only later."""

    result: Any
    backward: bool
    nodes: dict[str, CompiledNode]
    kernels: dict[str, list[str]]  # name:handle -> nodes


class Provenance:
    """Graphs compiled so far. ``missing`` says why there are none where PyTorch lacks the means."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self.missing: str | None = None
        self._compiled: list[_Compiled] = []

    def graphs(self) -> list[CompiledGraph]:
        """Records of all graphs in the order they were compiled; call it after a step has run."""
        found: dict[str, CompiledGraph] = {}
        for compiled in self._compiled:
            key = getattr(compiled.result, "_fx_graph_cache_key", None)
            if key is not None:
                found.setdefault(str(key), _graph(str(key), compiled))
        return list(found.values())

    @property
    def lost_nodes(self) -> int:
        """Nodes that a kernel names and its graph does not hold: their modules are unknown."""
        return sum(
            name not in compiled.nodes
            for compiled in self._compiled
            for names in compiled.kernels.values()
            for name in names
        )

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Watch every graph that Inductor compiles while the block lasts."""
        import torch._inductor.compile_fx as compiler
        from torch._inductor import config, debug

        self.missing = _missing(compiler, config, debug)
        if self.missing:
            yield
            return
        original = getattr(compiler, COMPILE)

        def compile_and_look(gm: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._owners.before(operators(gm.graph))
            getattr(debug, KERNEL_MAP).clear()  # a backward keeps what the last compile left in it
            result = original(gm, *args, **kwargs)
            kernels = {str(k): list(map(str, v)) for k, v in getattr(debug, KERNEL_MAP).items()}
            backward = bool(kwargs.get("is_backward"))
            nodes = graph_nodes(gm.graph, self._owners, before, backward=backward)
            self._compiled.append(_Compiled(result, backward, nodes, kernels))
            return result

        with ExitStack() as stack:
            stack.enter_context(_set(config.trace, "provenance_tracking_level", 1))
            stack.enter_context(_set(compiler, COMPILE, compile_and_look))
            yield


def _missing(compiler: Any, config: Any, debug: Any) -> str | None:
    """The first thing that this PyTorch does not have."""
    wanted = (
        (compiler, COMPILE),
        (config.trace, "provenance_tracking_level"),
        (debug, KERNEL_MAP),
    )
    for owner, name in wanted:
        if not hasattr(owner, name):
            return f"this version of PyTorch has no {name}"
    return None


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _graph(key: str, compiled: _Compiled) -> CompiledGraph:
    phase: Phase = "backward" if compiled.backward else "forward"
    unknown = CompiledNode(name="", target="", path=None, phase=phase, bytes=0, flops=0)
    kernels = []
    # Inductor counts on from one backward to the next.
    for number, label in enumerate(sorted(compiled.kernels, key=_counter), start=1):
        names = compiled.kernels[label]
        nodes = [compiled.nodes.get(n) or replace(unknown, name=n) for n in names]
        name = label.rpartition(":")[0]
        kernels.append(CompiledKernel(name=name, handle=number, nodes=nodes))
    return CompiledGraph(key=key, phase=phase, kernels=kernels)


def _counter(label: str) -> int:
    """Inductor's number of a kernel, at the end of its label."""
    return int(label.rpartition(":")[2])
