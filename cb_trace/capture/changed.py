"""Steps with a module changed: which ones a recording measures, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import nn

from cb_trace.bundle import Deployment, KnockoutRecord, Note, Phase, ReplayRecord, SpeedupRecord
from cb_trace.capture.modes import Deployed
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.owners import Owners
from cb_trace.capture.tree import ModuleTree
from cb_trace.capture.variants import CompiledWay
from cb_trace.errors import CbTraceError
from cb_trace.replay.couples import Couples
from cb_trace.replay.host import SLOWED
from cb_trace.replay.knockout import (
    SPENT,
    Job,
    KnockoutOptions,
    check_paths,
    chosen_modules,
    knock_out,
    speed_up,
)
from cb_trace.replay.schedule import TURNS
from cb_trace.replay.ways import Way

SPEEDUP_SECONDS = 5.0  # for each
# Making ready takes longer than measuring, so not in every turn of the modules alone.
VISITS = range(0, TURNS, 2)


class ChangedSteps:
    """Knock-outs and speed-ups of one recording: :meth:`part` measures some of them.

    :raises CbTraceError: they name a module that the model does not have, or one twice.
    """

    def __init__(  # noqa: PLR0917 - the parts of one recording, named at its one call
        self,
        model: nn.Module,
        tree: ModuleTree,
        options: RecordOptions,
        device: torch.device,
        phase: Phase,
        progress: Callable[[str], None],
    ) -> None:
        self._visited: dict[str, dict[Deployment, KnockoutRecord]] = {}
        self._held: list[Couples] = []
        self.speedups: list[SpeedupRecord] = []
        self._model, self._tree, self._options = model, tree, options
        self._device, self._phase, self._progress = device, phase, progress
        self._compiled: CompiledWay | None = None
        paths = tuple(job.path for job in options.speedups)
        if len(set(paths)) < len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise CbTraceError(f"{twice!r} is sped up twice", hint="one factor a recording")
        named = KnockoutOptions(paths=paths)
        for asked in (options.knockout, named):
            if asked is not None:
                check_paths(asked, tree.modules)

    @property
    def notes(self) -> list[Note]:
        """What a reader must know of how they were compiled, and what was left out."""
        dropped = sum(r.dropped for r in self.knockouts) + sum(r.dropped for r in self.speedups)
        detail = "pairs of steps with and without a change were left out"
        slowed = [Note(reason=SLOWED, detail=detail, count=dropped)] if dropped else []
        return [*(self._compiled.notes if self._compiled else []), *slowed]

    def part(self, how: Deployed, turn: int, replays: Sequence[ReplayRecord]) -> None:
        """Visit every module to knock out, chosen by what is known of them alone in the first turn;
        the speed-ups after that turn.
        """
        if self._options.knockout is None and not self._options.speedups:
            return
        if turn not in VISITS:
            return
        with self._way(how) as way:
            if self._options.knockout is not None:
                self._knock_out(how, way, turn, replays)
            if turn == 0 and self._options.speedups:
                self._speed_up(how, way, self._options.speedups)

    @property
    def knockouts(self) -> list[KnockoutRecord]:
        """One record a module and deployment, whatever the number of visits."""
        return [record for records in self._visited.values() for record in records.values()]

    def _knock_out(
        self, how: Deployed, way: Way | None, turn: int, replays: Sequence[ReplayRecord]
    ) -> None:
        options = self._options.knockout
        assert options is not None
        if turn == 0:
            chosen = chosen_modules(options, replays, self._tree.modules)
            self._visited = {path: {} for path in chosen}
        due = [path for path, known in self._visited.items() if _wants_visit(known)]
        if not due:
            return
        # Where time runs out, not always on the same ones.
        first = VISITS.index(turn) * len(due) // len(VISITS)
        for record in knock_out(
            self._tree.modules,
            how.step,
            self._device,
            self._phase,
            replace(
                options,
                top=0,
                paths=(*due[first:], *due[:first]),
                budget_seconds=options.budget_seconds / len(VISITS),
                min_pairs=-(-options.min_pairs // len(VISITS)),
            ),
            replays,
            graph=self._graph,
            progress=self._progress,
            way=way,
            held=self._held,
        ):
            known = self._visited[record.path]
            known[record.deployment] = _both_visits(known.get(record.deployment), record)

    def _speed_up(self, how: Deployed, way: Way | None, jobs: Sequence[Job]) -> None:
        self.speedups += speed_up(
            self._tree.modules,
            how.step,
            self._device,
            jobs,
            KnockoutOptions(budget_seconds=SPEEDUP_SECONDS * len(jobs)),
            graph=self._graph,
            progress=self._progress,
            way=way,
        )

    @property
    def _graph(self) -> bool:
        return self._options.graph or self._options.graphed

    def _way(self, how: Deployed) -> AbstractContextManager[Way | None]:
        """How the step runs: None as it is, or compiled."""
        if how.model is None:
            return nullcontext()
        if self._compiled is None:
            self._compiled = CompiledWay(
                self._model, how.step, self._options.compile, Owners(self._tree), how.graphs()
            )
        return self._compiled


def _both_visits(first: KnockoutRecord | None, second: KnockoutRecord) -> KnockoutRecord:
    """One record of two visits of a module; what could not be measured again stands as it is."""
    if first is None or first.skipped is not None:
        return second
    if second.skipped is not None:
        return first
    return replace(
        first,
        base_ns=[*first.base_ns, *second.base_ns],
        knocked_ns=[*first.knocked_ns, *second.knocked_ns],
        dropped=first.dropped + second.dropped,
        visits=[*first.visits, *second.visits],
        captures=[*first.captures, *second.captures],
    )


def _wants_visit(known: Mapping[Deployment, KnockoutRecord]) -> bool:
    """Whether a module is to be visited again: it can be taken out, as far as is known."""
    skipped = [record.skipped for record in known.values()]
    return not skipped or any(why is None or why.startswith(SPENT) for why in skipped)
