"""Modules called one after another in the order of the step: who takes part, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.bundle import HostTourRecord, Note
from cb_trace.replay import tour
from cb_trace.replay.tour import MIN_TOURS, TOURS, lengths_ns
from cb_trace.replay.walk import Replayer
from tests.replay.support import replayer

X = torch.ones(2, 4)
RESTORED = "their inputs or state are put back before every call"


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tours where the host is the device too."""
    monkeypatch.setattr(tour, "DEVICES", ("cuda", "cpu"))


class Named(nn.Module):
    """A layer that says when it runs, on what and in which state."""

    def __init__(self, name: str, log: list[Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

        def note(_: nn.Module, given: tuple[torch.Tensor]) -> None:
            log.append((name, float(given[0].sum()), torch.is_grad_enabled(), self.training))

        self.register_forward_pre_hook(note)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def toured(
    model: nn.Module, step: Callable[[], object], log: list[Any] | None = None, **options: Any
) -> tuple[Replayer, list[list[Any]]]:
    """Replay the model; what ran in each tour of the first turn, the one to warm up included."""
    work = replayer(model, step, **options)
    tours: list[list[Any]] = []
    run = work.tour._tour

    def watched(plan: Any, *between: Any) -> list[int]:
        if log is not None:
            log.clear()
        marks = run(plan, *between)
        tours.append(list(log or ()))
        return marks

    work.tour._tour = watched  # type: ignore[assignment, method-assign]
    work.capture()
    next(turns := work.turns())
    first = list(tours)
    for _ in turns:
        pass
    return work, first


def chain(log: list[Any]) -> nn.Sequential:
    """Two blocks of two layers, the second called twice."""
    blocks = [nn.Sequential(Named(f"{n}.0", log), Named(f"{n}.1", log)) for n in range(2)]
    return nn.Sequential(*blocks, blocks[1]).requires_grad_(False)


def test_a_tour_calls_the_innermost_modules_in_the_order_of_the_step() -> None:
    log: list[Any] = []
    model = chain(log)
    work, tours = toured(model, lambda: model(X), log)
    calls = [name for name, *_ in tours[0]]
    assert calls == ["0.0", "0.1", "1.0", "1.1", "1.0", "1.1"]
    assert all(one == tours[0] for one in tours)
    assert 2 + MIN_TOURS <= len(tours) <= 2 + TOURS
    found = {record.path: record for record in work.tour.records()}
    assert {path: record.calls for path, record in found.items()} == {
        "0.0": 1, "0.1": 1, "1.0": 2, "1.1": 2,
    }  # fmt: skip
    samples = {len(record.ns) for record in found.values()}
    assert len(samples) == 1
    assert samples.pop() >= 3 * MIN_TOURS  # in three turns
    assert all(sum(record.ns) > 0 for record in found.values())
    assert [note for note in work.notes if "tour" in note.reason] == []


def test_likes_run_themselves_on_the_inputs_that_were_kept() -> None:
    class Sides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = Named("left", log), Named("right", log)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.left(x) + self.right(2 * x)  # type: ignore[no-any-return]

    log: list[Any] = []
    model = Sides().requires_grad_(False)
    _, tours = toured(model, lambda: model(X), log)
    assert [call[:2] for call in tours[0]] == [("left", 8.0), ("right", 8.0)]
    _, tours = toured(model, lambda: model(X), log, dedup=False)
    assert [call[:2] for call in tours[0]] == [("left", 8.0), ("right", 16.0)]


def notes_of(work: Replayer) -> list[tuple[str, str, int]]:
    return [(n.reason, n.detail, n.count) for n in work.notes if "tour" in n.reason]


def test_who_changes_something_does_not_take_part() -> None:
    log: list[Any] = []
    parts = [Named("0", log), nn.ReLU(inplace=True), Named("2", log), nn.ReLU(inplace=True)]
    model = nn.Sequential(*parts).requires_grad_(False)
    work, tours = toured(model, lambda: model(-X), log)
    assert [name for name, *_ in tours[0]] == ["0", "2"]
    assert [record.path for record in work.tour.records()] == ["0", "2"]
    assert notes_of(work) == [("not in host tour", f"{RESTORED}: 1, 3", 2)]


class States(nn.Module):
    """Three layers without gradients, one with them, one that a step has in evaluation."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        names = ("one", "two", "with_grad", "in_eval", "three")
        self.parts = nn.ModuleDict({name: Named(name, log) for name in names})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name, part in self.parts.items():
            part.train(name != "in_eval")
            with torch.set_grad_enabled(name == "with_grad"):
                x = part(x).detach()
        self.parts["in_eval"].train()
        return x


def test_who_runs_in_another_state_does_not_take_part() -> None:
    log: list[Any] = []
    model = States(log)
    work, tours = toured(model, lambda: model(X), log)
    assert [call[0] for call in tours[0]] == ["one", "two", "three"]
    assert {call[2:] for call in tours[0]} == {(False, True)}
    assert torch.is_grad_enabled()
    assert notes_of(work) == [
        ("not in host tour",
         "they run in another state than most: grad mode, autocast, flags: parts.with_grad", 1),
        ("not in host tour",
         "they are in another mode than outside the step: train, eval: parts.in_eval", 1),
    ]  # fmt: skip


def test_a_module_of_which_some_calls_do_not_take_part_has_no_figure() -> None:
    log: list[Any] = []
    layer, other = Named("layer", log), nn.Linear(4, 4)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.other = layer, other

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x = other(layer(x))
            return layer(x).detach()  # type: ignore[no-any-return]

    model = Net()
    work, tours = toured(model, lambda: model(X), log)
    assert [call[0] for call in tours[0]] == ["layer"]  # as company it is there
    assert [record.path for record in work.tour.records()] == ["other"]


class Offset(nn.Module):
    """An embedding that takes a part of all indices; two of them look alike but for a number."""

    def __init__(self, first: int, *, as_buffer: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 2))
        if as_buffer:
            self.register_buffer("first", torch.tensor([first]))
        else:
            self._first = first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight[x - self.begin()]

    def begin(self) -> int:
        return int(self.get_buffer("first")) if hasattr(self, "first") else self._first


@pytest.mark.parametrize("as_buffer", [False, True])
def test_a_like_that_takes_other_indices_is_not_called_with_these(as_buffer: bool) -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(Offset(n, as_buffer=as_buffer) for n in (0, 100, 0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([part(x + part.begin()) for part in self.parts])  # type: ignore[operator]

    model = Tables().requires_grad_(False)
    work, _ = toured(model, lambda: model(torch.tensor([0, 3])))
    assert [record.path for record in work.tour.records()] == ["parts.0", "parts.2"]
    detail = "they hold other numbers than the like that they share inputs with: parts.1"
    assert notes_of(work) == [("not in host tour", detail, 1)]


def test_the_model_and_the_process_are_as_before() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    work = replayer(model, lambda: model(X))
    work.capture()
    rng = torch.get_rng_state()
    work.time()
    assert {record.path for record in work.tour.records()} == {"0", "1", "2", "3"}
    assert torch.equal(torch.get_rng_state(), rng)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_only_those_take_part_whose_inputs_are_in_memory_together() -> None:
    log: list[Any] = []
    model = nn.Sequential(Named("0", log), nn.Sequential(Named("1", log))).requires_grad_(False)
    work, tours = toured(model, lambda: model(X), log, dedup=False, max_capture_bytes=3 * X.nbytes)
    assert [name for name, *_ in tours[0]] == ["0"]  # the block around the other has room
    assert [record.path for record in work.tour.records()] == ["0"]
    assert {record.skipped for record in work.records} == {None}


def test_inputs_that_lie_elsewhere_than_the_step_had_them_are_left_there() -> None:
    model = nn.Linear(4, 4)
    work = replayer(model, lambda: model(X))
    planned = work.tour._planned

    def moved(known: Any, flush: Any) -> Any:
        (call,) = known
        kept = call.inputs.copies
        call.inputs.copies = [replace(copy, device=torch.device("meta")) for copy in kept]
        plan = planned(known, flush)
        call.inputs.copies = kept
        return plan

    work.tour._planned = moved  # type: ignore[method-assign]
    work.capture()
    work.time()
    assert work.tour.records() == []
    root = "their inputs are not in the device's memory: the root"
    assert notes_of(work) == [
        ("not in host tour", root, 1), ("no host tour", "no module can take part", 1),
    ]  # fmt: skip


def test_inputs_are_let_go_when_the_turns_are_over() -> None:
    model = nn.Linear(4, 4)
    work, _ = toured(model, lambda: model(X))
    assert work.tour._plan is None
    records = work.tour.records()
    work.tour.turn(0, set(work._captures.calls), work._cache_flush())
    assert work.tour.records() == records


def test_a_module_that_fails_in_a_tour_ends_them() -> None:
    class Moody(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if touring:
                raise ValueError("not now")
            return x + 1

    touring: list[int] = []
    model = nn.Sequential(nn.Linear(4, 4), Moody())
    work = replayer(model, lambda: model(X))
    run = work.tour._tour

    def moody(plan: Any, *between: Any) -> list[int]:
        touring.append(1)
        try:
            return run(plan, *between)
        finally:
            touring.clear()

    work.tour._tour = moody  # type: ignore[assignment, method-assign]
    work.capture()
    work.time()
    assert work.tour.records() == []
    detail = "the modules fail one after another: ValueError: not now"
    assert Note(reason="no host tour", detail=detail) in work.notes
    assert all(record.samples_ns for record in work.records)


@pytest.mark.parametrize("why", ["a CPU", "not asked for", "no time"])
def test_when_there_is_no_tour(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "a CPU":
        monkeypatch.setattr(tour, "DEVICES", ("cuda",))
    model = nn.Linear(4, 4)
    budget = 0.0 if why == "no time" else 20.0
    work = replayer(model, lambda: model(X), budget_seconds=budget, tour=why != "not asked for")
    work.capture()
    work.time()
    assert work.tour.records() == []
    noted = [("no host tour", "no innermost module was measured alone", 1)]
    assert notes_of(work) == (noted if why == "no time" else [])


class ScriptedHost:
    """Says of each tour in turn whether the host ran at full speed."""

    def __init__(self, clear: str) -> None:
        self._clear = iter(clear)

    def seek(self) -> bool:
        return next(self._clear, ".") == "."

    def full(self) -> bool:
        return True


def test_tours_of_a_slowed_host_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ScriptedHost(".#" * 3 + "#" * 99)
    monkeypatch.setattr(tour, "host_of", lambda _: host)
    model = nn.Linear(4, 4)
    work = replayer(model, lambda: model(X))
    work.capture()
    next(work.turns())
    (record,) = work.tour.records()
    assert len(record.ns) == 3
    assert record.dropped >= 3


def test_lengths_are_between_readings_of_the_clock() -> None:
    assert lengths_ns([1_000, 1_110, 1_115, 2_125]) == [110, 5, 1_010]
    assert lengths_ns([1_000, 1_110, 1_115, 2_125], 10) == [100, 0, 1_000]


def test_to_call_a_module_is_none_of_its_own_time() -> None:
    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.002)
            return x

    model = nn.Sequential(Slow(), Slow())
    work = replayer(model, lambda: model(X))
    work.capture()
    next(work.turns())
    block = work.tour._blocks[0]
    assert 0 < block.call_ns < 1_000_000
    plain = [after - before for before, after in pairwise(block.marks[0])]
    found = [record.ns[0] for record in work.tour.records()]
    assert found == [ns - block.call_ns for ns in plain]


def test_a_record_adds_up_the_calls_of_a_module() -> None:
    found = tour.HostTour(nn.Identity(), None, torch.device("cpu"), 1.0)  # type: ignore[arg-type]
    found._places = {"a": [0, 2], "b": [1]}
    quiet = tour._Block([[0, 6, 14, 23], [0, 7, 15, 24]], 1, 1, slowed=False)
    slow = tour._Block([[0, 50, 120, 200]], 0, 0, slowed=True)
    found._blocks = [quiet, slow]
    assert found.records() == [
        HostTourRecord(path="a", calls=2, ns=[13, 14], dropped=2),
        HostTourRecord(path="b", calls=1, ns=[7, 7], dropped=2),
    ]
    found._blocks = [slow]
    assert [record.ns for record in found.records()] == [[130], [70]]
