"""Workloads made to fit: smaller embedding tables, and a small batch replicated to the full one.

Two settings that every provider takes, ``shrink_tables`` and ``full_batch``. Both change what is
measured, so both leave notes, and a shrunk table's note names its module.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cb_trace.bundle import Note
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Setting, Workload

if TYPE_CHECKING:
    from torch import nn

SHRINK, FULL = "shrink_tables", "full_batch"
SHRUNK, REPLICATED = "table shrunk", "batch replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What is done to a workload while it is built, and after."""

    table_rows: int | None = None  # no embedding table keeps more
    batch: int | None = None  # inputs are repeated until there are so many

    @classmethod
    def of(cls, settings: Mapping[str, Setting]) -> tuple[Preprocessing, dict[str, Setting]]:
        """The part of the settings that is about this, and the rest.

        :raises CbTraceError: a number that is none, or below 1.
        """
        rest = dict(settings)
        rows, batch = (_count(name, rest.pop(name, None)) for name in (SHRINK, FULL))
        return cls(table_rows=rows, batch=batch), rest

    def built(
        self,
        build: Callable[[], Workload],
        device: str,
        loss_of: Callable[[tuple[Any, ...]], Any] | None = None,
    ) -> Workload:
        """Build a workload so, with notes, and with settings that build it again.

        :param loss_of: makes the loss from the arguments, where they hold what it compares with.
        :raises CbTraceError: it cannot be done to this workload.
        """
        if self.table_rows is None and self.batch is None:
            return build()
        with _small_tables(self.table_rows) as rows:
            workload = build()
        notes = [*workload.notes, *(_fold_ids(workload, rows, device) if rows else ())]
        if self.batch is not None:
            workload, note = _replicated(workload, self.batch, loss_of)
            notes.append(note)
        own = {SHRINK: self.table_rows, FULL: self.batch}
        kept = {name: value for name, value in own.items() if value is not None}
        return replace(workload, notes=tuple(notes), settings={**workload.settings, **kept})


def _count(name: str, value: Setting | None) -> int | None:
    if value is None:
        return None
    try:
        count = int(value)
    except ValueError:
        count = 0
    if count < 1:
        raise CbTraceError(f"{name} must be a number of at least 1, not {value!r}")
    return count


# --- tables -------------------------------------------------------------------------------------

_Rows = WeakKeyDictionary  # of modules: how many rows they would have


@contextmanager
def _small_tables(limit: int | None) -> Iterator[_Rows[nn.Module, int]]:
    """Embedding modules that are made in the block have ``limit`` rows at the most.

    They are never made larger, so a model fits that would not.
    """
    from torch import nn

    rows: _Rows[nn.Module, int] = WeakKeyDictionary()
    if limit is None:
        yield rows
        return
    kinds: tuple[Any, ...] = (nn.Embedding, nn.EmbeddingBag)
    before = [kind.__init__ for kind in kinds]
    for kind, init in zip(kinds, before, strict=True):
        kind.__init__ = _capped(init, limit, rows)
    try:
        yield rows
    finally:
        for kind, init in zip(kinds, before, strict=True):
            kind.__init__ = init


def _capped(init: Callable[..., None], limit: int, rows: _Rows[nn.Module, int]) -> Any:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def smaller(self: Any, *args: Any, **kwargs: Any) -> None:
        asked = signature.bind(self, *args, **kwargs)
        wanted = asked.arguments
        before = wanted["num_embeddings"]
        if before > limit and wanted.get("_weight") is None:
            if wanted.get("padding_idx") is not None:  # it may count from the end
                wanted["padding_idx"] = wanted["padding_idx"] % before % limit
            wanted["num_embeddings"] = limit
            rows[self] = before
        init(*asked.args, **asked.kwargs)

    return smaller


def _fold_ids(workload: Workload, rows: Mapping[nn.Module, int], device: str) -> Iterator[Note]:
    """Bring ids into the smaller tables by remainder: in the inputs, where they are part of them.

    One plain run folds what reaches a table as a view of an input, for good. What a second run
    still finds too large was computed on the way, and is folded in every call.
    """
    import torch

    from cb_trace.replay.guard import preserved

    computed: set[int] = set()
    names = {module: path for path, module in workload.model.named_modules()}
    with preserved(workload.model, torch.device(device)), torch.no_grad():
        for fold in (_fold_in_place, _seen_too_large(computed)):
            handles = [module.register_forward_pre_hook(fold, with_kwargs=True) for module in rows]
            try:
                _run(workload)
            finally:
                for handle in handles:
                    handle.remove()
    for module, before in sorted(rows.items(), key=lambda item: names.get(item[0], "")):
        if module not in names:
            continue
        table: Any = module
        how = "ids in the inputs folded by remainder"
        if id(module) in computed:
            module.register_forward_pre_hook(_fold_copy, with_kwargs=True)
            how = "ids folded by remainder in every call, which adds an operator"
        detail = f"{before:,} rows to {table.num_embeddings:,}; {how}: other rows are hit together"
        yield Note(reason=SHRUNK, detail=detail, path=names[module])


def _run(workload: Workload) -> None:
    (workload.step or (lambda: workload.model(*workload.args, **workload.kwargs)))()


def _ids(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs["input"]


def _fold_in_place(module: Any, args: Any, kwargs: Any) -> Any:
    ids, rows = _ids(args, kwargs), module.num_embeddings
    if ids.numel() == 0 or int(ids.max()) < rows:
        return None
    try:
        ids.remainder_(rows)
    except RuntimeError:  # expanded, or made under inference mode: a copy will do for now
        return _fold_copy(module, args, kwargs)
    return None


def _fold_copy(module: Any, args: Any, kwargs: Any) -> Any:
    folded = _ids(args, kwargs).remainder(module.num_embeddings)
    if args:
        return (folded, *args[1:]), kwargs
    return args, {**kwargs, "input": folded}


def _seen_too_large(computed: set[int]) -> Callable[[Any, Any, Any], Any]:
    def look(module: Any, args: Any, kwargs: Any) -> Any:
        ids = _ids(args, kwargs)
        if ids.numel() == 0 or int(ids.max()) < module.num_embeddings:
            return None
        computed.add(id(module))
        return _fold_copy(module, args, kwargs)

    return look


# --- batch --------------------------------------------------------------------------------------


def _replicated(
    workload: Workload, batch: int, loss_of: Callable[[tuple[Any, ...]], Any] | None
) -> tuple[Workload, Note]:
    if workload.step is not None:
        raise CbTraceError(
            f"{workload.name} has a step of its own, whose inputs cannot be replicated",
            hint="build it with a larger batch",
        )
    if workload.loss is not None and loss_of is None:
        raise CbTraceError(f"{workload.name} has a loss of its own; its batch cannot be replicated")
    from cb_trace.providers.replicate import Replication

    work = Replication(workload.name, (workload.args, workload.kwargs), batch)
    args, kwargs = work.value((workload.args, workload.kwargs))
    loss = workload.loss if loss_of is None else loss_of(args)
    return replace(workload, args=args, kwargs=kwargs, loss=loss), work.note(REPLICATED)
