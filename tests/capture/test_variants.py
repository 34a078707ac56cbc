"""Compiled steps with a module changed: what is compiled, and what cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from cb_trace.capture.compiled import CompiledModel, fresh_compiler, settle
from cb_trace.capture.owners import Owners
from cb_trace.capture.provenance import Provenance
from cb_trace.capture.tree import module_tree
from cb_trace.capture.variants import CompiledWay, Work
from cb_trace.replay.knockout import Job, KnockoutOptions, knock_out, speed_up
from cb_trace.replay.stand_in import StandIn, UnfitError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
CPU = torch.device("cpu")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"x": x * 2}


class Net(nn.Module):
    """A module between two others, called twice, and one in a container."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)
        self.named = Doubled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.act(self.act(self.first(x)))) + self.named(x)["x"]
        return out


class Seen(CompiledWay):
    """Remembers what was compiled last."""

    seen: Work

    def _compare(self, found: Work, path: str, *, works: bool) -> None:
        self.seen = found
        super()._compare(found, path, works=works)


class Step:
    """A compiled step, and what is compiled in it."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.x = net, torch.randn(8, 16)
        self.tree = module_tree(net)
        self.owners = Owners(self.tree)
        self.provenance = Provenance(self.owners)

    def __call__(self) -> object:
        with torch.no_grad():
            return self.net(self.x)

    def way(self) -> Seen:
        return Seen(self.net, self, {}, self.owners, self.provenance.graphs())


@pytest.fixture(scope="module")
def step() -> Iterator[Step]:
    torch.manual_seed(0)
    made = Step(Net().eval())
    with fresh_compiler(CPU), CompiledModel(made.net, {}).installed():
        with made.provenance.collecting():
            settle(made)
        yield made


def knocked(step: Step, *paths: str) -> tuple[dict[str, str | None], Seen]:
    options = KnockoutOptions(paths=paths, budget_seconds=0.5, min_pairs=3)
    with step.way() as way:
        records = knock_out(
            step.tree.modules, step, CPU, "forward", options, [], graph=False,
            progress=lambda _: None, way=way,
        )  # fmt: skip
    assert all(bool(r.base_ns) != bool(r.skipped) for r in records)
    return {r.path: r.skipped for r in records}, way


def test_a_module_is_taken_out_of_compiled_code(step: Step) -> None:
    truth, slot = step(), vars(step.net)["_compiled_call_impl"]
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    found, way = knocked(step, "act", "first")
    assert found == {"act": None, "first": None}
    assert [note.reason for note in way.notes] == []
    # The whole once more, and the step without each module: nothing compiles while it is timed.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled + 3
    assert vars(step.net)["_compiled_call_impl"] is slot
    assert all("forward" not in vars(module) for module in step.net.modules())
    assert torch.equal(torch.as_tensor(step()), torch.as_tensor(truth))


def test_what_leads_to_the_module_still_runs(step: Step) -> None:
    """A compiler would leave out all that is before the last layer: nobody reads it any more."""
    with step.way() as way:
        stand_in = StandIn(step.net.get_submodule("last"))
        with way.plainly():
            stand_in.record(step)
        way.changed(stand_in, "last")
    assert {path for path, _ in way.seen} == {"", "first", "act", "named"}


def test_an_output_in_a_container_of_its_own_cannot_be_compiled_in(step: Step) -> None:
    found, _ = knocked(step, "named")
    assert found == {"named": "its output cannot be a constant of compiled code"}


def test_a_module_on_half_of_its_batch(step: Step) -> None:
    options = KnockoutOptions(budget_seconds=0.5, min_pairs=3)
    with step.way() as way:
        (record,) = speed_up(
            step.tree.modules, step, CPU, [Job("last", 2)], options, graph=False,
            progress=lambda _: None, way=way,
        )  # fmt: skip
    assert record.skipped is None
    assert len(record.base_ns) == len(record.faster_ns) >= 3


@pytest.mark.parametrize(
    ("found", "works", "reason"),
    [
        ({("act", "tanh"): 2}, False, "act still runs in the compiled step"),
        ({("first", "mm"): 1}, False, "the compiler leaves out last as well"),
        ({("first", "mm"): 1, ("last", "addmm"): 1}, False, None),
        ({("first", "mm"): 1, ("last", "mm"): 1, ("act.in", "tanh"): 1}, True, None),
    ],
)
def test_what_was_compiled_is_held_against_the_whole(
    step: Step, found: dict[tuple[str, str], int], works: bool, reason: str | None
) -> None:
    way = step.way()
    way._work = Counter({("first", "mm"): 1, ("act", "tanh"): 2, ("last", "mm"): 1})
    if reason:
        with pytest.raises(UnfitError, match=reason):
            way._compare(Counter(found), "act", works=works)
        return
    way._compare(Counter(found), "act", works=works)
    details = [note.detail for note in way.notes]
    other = ("last", "addmm") in found
    assert details == ["others are compiled otherwise: addmm of last, mm of last"] * other
