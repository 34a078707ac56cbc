"""A compiled step with one of its modules changed: the model is compiled once more, so changed.

A compiler leaves out what nobody reads and fuses over the borders of modules, so a step without a
module can be another program elsewhere too. What was compiled is therefore held against the whole
step's, by the operators of each module: where a module is gone as well, the difference between the
two steps is not what the one module costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import torch
from torch import nn

from cb_trace.bundle import CompiledGraph, Note
from cb_trace.capture.compiled import settle
from cb_trace.capture.owners import Owners
from cb_trace.capture.provenance import Provenance
from cb_trace.replay.compiling import compiled_alone
from cb_trace.replay.graph import one_line
from cb_trace.replay.pairs import Side
from cb_trace.replay.stand_in import StandIn, UnfitError

_SLOT = "_compiled_call_impl"  # where nn.Module.compile puts what a call runs
_SHOWN = 3

Step = Callable[[], object]
Work = Counter[tuple[str, str]]  # operators by module path


class CompiledWay:
    """The way of a compiled step. Enter it: what a call of the model runs is put back at the end.

    :param graphs: what the whole step was compiled into.
    """

    def __init__(
        self,
        model: nn.Module,
        step: Step,
        options: dict[str, Any],
        owners: Owners,
        graphs: Sequence[CompiledGraph],
    ) -> None:
        self.notes: list[Note] = []
        self._model, self._step, self._options = model, step, options
        self._owners, self._work = owners, work_of(graphs)
        self._whole: Callable[..., Any] | None = None
        self._found: Any = None

    def __enter__(self) -> Self:
        self._found = vars(self._model).get(_SLOT)
        return self

    def __exit__(self, *_: object) -> None:
        self._put(self._found)

    def plainly(self) -> AbstractContextManager[None]:
        """Run the model eagerly in the block."""
        return self._running(None)

    def whole(self, stand_in: StandIn | None) -> Side:
        """The step as it is, compiled like the others: alike in all but the stand-in."""
        if stand_in is not None:
            stand_in.remove()
        if self._whole is None:
            self._whole = self._anew()
            with self._running(self._whole):
                settle(self._step)
        whole = self._whole

        def ready() -> None:
            if stand_in is not None:
                stand_in.remove()
            self._put(whole)

        return Side(self._step, ready)

    def beside(self, stand_in: StandIn) -> Side | None:
        """None: a compiler leaves out work that nobody reads."""
        return None

    def changed(self, stand_in: StandIn, path: str) -> Side:
        """The step compiled with the stand-in inside.

        :raises UnfitError: it cannot be compiled in, or other modules are gone with it.
        """
        if not stand_in.fixed:
            raise UnfitError("its output cannot be a constant of compiled code")
        call = self._anew()
        try:
            stand_in.install(compiled=True)
            with self._running(call):
                graphs = self._compiled()
        finally:
            stand_in.remove()
        self._compare(work_of(graphs), path, works=stand_in.works)

        def ready() -> None:
            stand_in.install(compiled=True)
            self._put(call)

        return Side(self._step, ready)

    def _anew(self) -> Callable[..., Any]:
        compiled = compiled_alone(self._model, self._options)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.plainly():
                return compiled(*args, **kwargs)

        return call

    def _compiled(self) -> list[CompiledGraph]:
        """Compile what the model is now, and see into what.

        :raises UnfitError: that fails, or breaks the graph where it was whole.
        """
        breaks = _breaks()
        provenance = Provenance(self._owners)
        try:
            with provenance.collecting():
                settle(self._step)
        except Exception as error:
            raise UnfitError(f"the step cannot be compiled without it: {one_line(error)}") from None
        if _breaks() > breaks:
            raise UnfitError("without it the step is compiled in more parts")
        return provenance.graphs()

    def _compare(self, found: Work, path: str, *, works: bool) -> None:
        """Hold what was compiled against the whole step's.

        :raises UnfitError: the module is still there, or others are gone.
        """
        if not self._work or not found:
            self.notes.append(Note(reason="knock-out not checked", detail=_UNSEEN, path=path))
            return
        own = {of for of, _ in found if _under(of, path)}
        if own and not works:
            raise UnfitError(f"{min(own) or 'the root'} still runs in the compiled step")
        before, after = _outside(self._work, path), _outside(found, path)
        gone = {of for of, _ in before} - {of for of, _ in after}
        if gone:
            raise UnfitError(f"the compiler leaves out {min(gone) or 'the root'} as well")
        differ = sorted(((before - after) + (after - before)).items())
        if differ:
            words = [f"{target} of {of or 'the root'}" for (of, target), _ in differ[:_SHOWN]]
            count = sum(number for _, number in differ)
            detail = f"others are compiled otherwise: {', '.join(words)}"
            self.notes.append(
                Note(reason="knock-out compiled", detail=detail, path=path, count=count)
            )

    def _put(self, call: Callable[..., Any] | None) -> None:
        """What a call of the model runs from now on; None: the model's own code."""
        vars(self._model).pop(_SLOT, None)
        if call is not None:
            vars(self._model)[_SLOT] = call

    @contextmanager
    def _running(self, call: Callable[..., Any] | None) -> Iterator[None]:
        before = vars(self._model).get(_SLOT)
        self._put(call)
        try:
            yield
        finally:
            self._put(before)


_UNSEEN = "PyTorch does not say what it compiled, or took it from its cache"


def work_of(graphs: Sequence[CompiledGraph]) -> Work:
    """The operators in generated kernels, by module path; each once."""
    nodes = {
        (graph.key, node.name): (node.path, node.target)
        for graph in graphs
        for kernel in graph.kernels
        for node in kernel.nodes
    }
    return Counter((path, target) for path, target in nodes.values() if path is not None)


def _under(of: str, path: str) -> bool:
    return of == path or not path or of.startswith(f"{path}.")


def _outside(work: Work, path: str) -> Work:
    return Counter({key: count for key, count in work.items() if not _under(key[0], path)})


def _breaks() -> int:
    return sum(torch._dynamo.utils.counters["graph_break"].values())
