"""The captured calls of one step: which are kept, which stand for others, which wait for room."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from cb_trace.bundle import Note
from cb_trace.replay.guard import RngState, preserved
from cb_trace.replay.hooks import Admit, Call, Place, Recorder
from cb_trace.replay.inputs import InputPlan
from cb_trace.replay.likes import Place as CallPlace
from cb_trace.replay.likes import Seen, Tolerance, apart, together
from cb_trace.replay.memory import CaptureBudget
from cb_trace.replay.tree import configuration_key

Step = Callable[[], object]


class Captures:
    """Distinct calls of every module, in the order of ``modules`` and then of the step."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        signatures: Mapping[str, str],
        device: torch.device,
        *,
        dedup: bool,
        max_bytes: int | None,
        wrap: Sequence[str] = (),
        sharded: frozenset[int] = frozenset(),
    ) -> None:
        self.calls: list[Call] = []
        self.order: list[Call] = []  # of the step: each of its calls by the one that stands for it
        self.passes = 0
        self.notes: list[Note] = []
        self._modules, self._signatures, self._device = modules, signatures, device
        self._dedup, self._max_bytes, self._wrap = dedup, max_bytes, wrap
        self._sharded = sharded
        self._groups: dict[Hashable, Call] = {}
        self._likes: dict[Call, Hashable] = {}  # what its likes have in common with it
        self._apart: dict[Call, Call] = {}  # by what measures it, not by its likes
        self._no_room: set[Call] = set()  # in the first pass, beside those before it
        self._rng: RngState | None = None

    @contextmanager
    def first_pass(self) -> Iterator[None]:
        """Keep what there is room for while a step runs inside the block."""
        self._rng = RngState.now()
        budget = CaptureBudget(self._device, self._max_bytes)

        def admit(call: Call, plan: InputPlan) -> Place | None:
            # By size first: what can never be kept must not stand for likes that can.
            if _exceeds(call, budget) or self.measured_by(call) is not call:
                return None
            place = budget.place(plan.tensors.bytes_by_device())
            if place is None:
                self._no_room.add(call)
            return place

        recorder = self._recorder(admit, budget)
        try:
            with recorder.recording():
                yield
        finally:
            rank = {path: place for place, path in enumerate(self._modules)}
            found = recorder.calls.values()
            self.calls = sorted(found, key=lambda call: (rank[call.path], call.index))
            self.order, self.passes = recorder.order, 1
            self._regroup()
            self._note(budget)

    def measured_by(self, call: Call) -> Call:
        """The call whose measurement stands for this one: the first of its likes."""
        if not self._dedup:
            return call
        if call in self._apart:
            return self._apart[call]
        if call not in self._likes:
            configuration = configuration_key(call.module)
            self._likes[call] = (self._signatures[call.path], configuration, call.signature)
        return self._groups.setdefault((self._likes[call], call.backward), call)

    def _regroup(self) -> None:
        """Part the calls that a backward reached from their likes.

        Whose inputs are kept leads, then who was let in during the pass, then who may yet be.
        """
        tried = set(self._groups.values())
        self._groups.clear()
        for call in self.calls:
            call.backward = call.gradients is not None and call.gradients.received

        def rank(call: Call) -> tuple[bool, ...]:
            return call.inputs is None, call not in tried, call.reason is not None

        for call in sorted(self.calls, key=rank):
            self.measured_by(call)

    def to_measure(self) -> list[Call]:
        """One call of every group of likes."""
        return [call for call in self.calls if self.measured_by(call) is call]

    def shared(self) -> list[list[Call]]:
        """Groups of several calls, each led by the one that is measured."""
        groups: dict[Call, list[Call]] = {}
        for call in self.calls:
            groups.setdefault(self.measured_by(call), []).append(call)
        return [
            [lead, *(call for call in likes if call is not lead)]
            for lead, likes in groups.items()
            if len(likes) > 1
        ]

    def part(
        self,
        seen: Mapping[CallPlace, Seen],
        step_ns: int,
        tolerance: Tolerance,
        unlike: dict[Call, str],
    ) -> bool:
        """Let members of a group that are unlike in the step be measured apart from it.

        Each goes into ``unlike`` with how it differs. Whether any group could be compared, or
        there was none.
        """
        groups, compared = self.shared(), False
        for likes in groups:
            if any((c.path, place) not in seen for c in likes for place in c.places):
                continue  # it ran under no range
            compared = True
            sums = [together(seen[c.path, place] for place in c.places) for c in likes]
            for number, (lead, reason) in apart(sums, step_ns, tolerance).items():
                if reason is not None:
                    unlike[likes[number]] = f"{reason} as {likes[0].path or 'the root'}"
                    self._apart[likes[number]] = likes[lead]
        return compared or not groups

    def leader(self, call: Call) -> Call:
        """The call that would measure this one by its likes alone."""
        return self._groups.get((self._likes.get(call), call.backward), call)

    def calls_of(self, call: Call) -> int:
        """Calls a step that the measurement of one stands for."""
        return sum(other.calls for other in self.calls if self.measured_by(other) is call)

    def in_memory(
        self, wanted: list[Call], model: nn.Module, step: Step | None
    ) -> Iterator[list[Call]]:
        """All wanted calls in lists whose inputs are in memory, running ``step`` again as needed.

        A call whose inputs cannot be had comes with its reason.
        """
        first = [call for call in wanted if call.inputs is not None or call.reason is not None]
        rest = [call for call in wanted if call not in first]
        if first:
            yield first
        while rest:
            for call in self.calls:
                call.release()
            if step is not None:
                self._another_pass(rest, model, step)
            ready = [call for call in rest if call.inputs is not None or call.reason is not None]
            if not ready:
                for call in rest:
                    kept = "did not fit in memory" if call in self._no_room else "were not kept"
                    call.reason = f"inputs {kept}, and no later pass saw the call"
                ready = rest
            rest = [call for call in rest if call not in ready]
            yield ready

    def _another_pass(self, wanted: list[Call], model: nn.Module, step: Step) -> None:
        budget, by_key = CaptureBudget(self._device, self._max_bytes), {c.key: c for c in wanted}

        def admit(call: Call, plan: InputPlan) -> Place | None:
            if call.key not in by_key or _exceeds(call, budget):
                return None
            return budget.place(plan.tensors.bytes_by_device())

        recorder = self._recorder(admit, budget)
        with preserved(model, self._device):
            if self._rng is not None:
                self._rng.put()
            with recorder.recording():
                step()
        self.passes += 1
        for key, seen in recorder.calls.items():
            if key in by_key and (seen.inputs is not None or seen.reason is not None):
                by_key[key].take_over(seen)

    def _recorder(self, admit: Admit, budget: CaptureBudget) -> Recorder:
        return Recorder(
            self._modules, self._device, admit, budget.place,
            wrap=self._wrap, sharded=self._sharded,
        )  # fmt: skip

    def _note(self, budget: CaptureBudget) -> None:
        waiting = sum(call.inputs is None and call.reason is None for call in self.to_measure())
        detail = (
            f"{budget.taken['own']} bytes where they were and {budget.taken['ram']} in RAM, of "
            f"{budget.limit} allowed; {waiting} calls left for further passes"
        )
        kept = sum(call.inputs is not None for call in self.calls)
        self.notes.append(Note(reason="captured inputs", detail=detail, count=max(1, kept)))


def _exceeds(call: Call, budget: CaptureBudget) -> bool:
    """Whether a call can never be kept; if so it has that as its reason."""
    if budget.fits_alone(call.nbytes):
        return False
    call.reason = f"inputs of {call.nbytes} bytes exceed the memory budget"
    return True
