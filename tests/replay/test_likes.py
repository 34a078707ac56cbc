"""Members of a group are compared by what they launched, and measured apart if unlike."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.capture.profiled import profile_steps
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.capture.tree import module_tree
from cb_trace.replay.likes import Seen, apart, calls_seen, difference, together
from tests.replay.support import CPU, replayer

MM, ADD = ("mm", "[1,1,1]"), ("add", "[1,1,1]")


def seen(*ns: int, **kernels: int) -> Seen:
    names = {(name, "[1,1,1]"): count for name, count in kernels.items()}
    return Seen(list(ns), Counter(names))


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ((50_000, 51_000, 50_500), (52_000, 54_000, 53_000), False),  # less than a tenth
        ((3_100, 3_200, 3_100), (4_000, 3_900, 4_000), False),  # less than a microsecond
        ((50_000, 51_000, 50_500), (60_000, 61_000, 62_000), True),
        ((50_000, 80_000, 50_500), (60_000, 61_000, 62_000), False),  # one wanders as far
    ],
)
def test_beyond_noise(one: tuple[int, ...], other: tuple[int, ...], differ: bool) -> None:
    step_ns = 1_000_000
    assert (difference(seen(*one, mm=3), seen(*other, mm=3), step_ns) is not None) is differ


def test_the_reason_says_what_differs() -> None:
    one, other = seen(20_000, mm=1), seen(50_000, mm=1)
    words = "in the step its kernels take 20.0 µs, not 50.0"
    assert difference(one, other, 1_000_000) == words
    assert difference(one, other, 40_000_000) is None  # below a thousandth of the step
    assert difference(one, seen(20_000, mm=1, add=1), 1_000_000) == (
        "in the step it runs 0 of add, not 1"
    )


def test_a_group_parts_into_likes_and_the_first_leads() -> None:
    members = [seen(n, mm=1) for n in (20_000, 50_000, 21_000, 51_000)]
    parted = apart(members, 1_000_000)
    assert {place: lead for place, (lead, _) in parted.items()} == {0: 0, 1: 1, 2: 0, 3: 1}
    assert [reason is None for _, reason in parted.values()] == [True, False, True, False]


def test_calls_of_one_module_are_held_against_one_call_of_another() -> None:
    twice = together([seen(1, 2, mm=2), seen(10, 20, mm=2)])
    assert (twice.ns, twice.kernels) == ([1, 2, 10, 20], Counter({MM: 4}))
    assert difference(twice, seen(9, 9, mm=2), 1_000_000) is None
    more = together([seen(1, 2, mm=2), seen(10, 20, mm=2, add=2)])
    assert difference(more, seen(9, 9, mm=2), 1_000_000) == "in the step it runs 0.5 of add, not 0"


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


def test_kernels_go_to_every_range_around_their_launch(tmp_path: Path) -> None:
    note = "user_annotation"
    events = [
        event(note, "ProfilerStep#0", 0, 100),
        event(note, "cb:a", 10, 30),
        event(note, "cb:a.b", 15, 10),
        event(note, "cb:a", 50, 10),
        event("cuda_runtime", "cudaLaunchKernel", 12, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 16, 1, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 70, 1, correlation=3),
        event("kernel", "mm", 200, 5, correlation=1, grid=[2, 1, 1]),
        event("kernel", "add", 210, 1.5, correlation=2, grid=[1, 1, 1]),
        event("kernel", "mul", 220, 9, correlation=3, grid=[1, 1, 1]),
    ]
    file = tmp_path / "t.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    found, step_ns = calls_seen(file, frozenset({"a", "a.b"}))
    assert step_ns == 100_000
    assert found == {
        ("a", 0): Seen([6_500], Counter({("mm", "[2, 1, 1]"): 1, ("add", "[1, 1, 1]"): 1})),
        ("a.b", 0): Seen([1_500], Counter({("add", "[1, 1, 1]"): 1})),
        ("a", 1): Seen([0], Counter()),
    }


class Repeats(nn.Module):
    """Works as often as the values of its input say: what no signature sees."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.max())):
            x = x @ x / x.shape[0]
        return x


class Branches(nn.Module):
    """Calls equal modules on inputs of equal layout and other content."""

    def __init__(self) -> None:
        super().__init__()
        self.few, self.many, self.as_many = Repeats(), Repeats(), Repeats()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.few(x) + self.many(x + 4) + self.as_many(x + 4)
        return made


def _recorded(folder: Path, model: nn.Module, step: Any) -> Any:
    target = folder / "context.json.gz"
    with ModuleRanges(module_tree(model).modules):
        profile_steps(step, CPU, steps=2, target=target)
    return target


@pytest.mark.parametrize("loop_of_ones_own", [False, True])
def test_unlike_members_are_flagged_and_measured_separately(
    tmp_path: Path, loop_of_ones_own: bool
) -> None:
    model, x = Branches(), torch.ones(8, 8)

    def step() -> object:
        with torch.no_grad():
            return model(x)

    work = replayer(model, None if loop_of_ones_own else step)
    with work.capturing():
        step()
    work.time()
    assert [r.measured_id for r in work.records] == [0, 1, 1, 1]
    assert work.groups() == {"few", "many", "as_many"}
    found, step_ns = calls_seen(_recorded(tmp_path, model, step), work.groups())
    work.part(found, step_ns)
    few, many, as_many = work.records[1:]
    assert few.unlike is None
    assert many.unlike == as_many.unlike
    assert re.fullmatch(r"in the step it runs \d+ of aten::\w+, not \d+ as few", many.unlike or "")
    assert (few.measured_id, many.measured_id, as_many.measured_id) == (1, 2, 2)
    assert few.samples_ns
    assert bool(many.samples_ns) is not loop_of_ones_own
    assert (many.skipped is not None) is loop_of_ones_own
    notes = {note.path: note.detail for note in work.notes if note.reason == "unlike its likes"}
    assert set(notes) == {"many", "as_many"}
    if not loop_of_ones_own:
        assert "timed by itself after the profile, when few took" in notes["many"]
        assert "timed as many" in notes["as_many"]
        traces = work.profile(tmp_path)  # two: the inputs came in two passes
        text = "".join(gzip.decompress((tmp_path / t.file).read_bytes()).decode() for t in traces)
        assert [f"cb_replay:{number}:0" in text for number in range(4)] == [True, True, True, False]


def test_likes_that_are_alike_stay_together(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)

    def step() -> object:
        return model(torch.ones(2, 4))

    work = replayer(model, step)
    work.capture()
    work.time()
    found, _ = calls_seen(_recorded(tmp_path, model, step), work.groups())
    work.part(found, 10**9)
    assert [r.measured_id for r in work.records] == [0, 1, 1]
    assert not [note for note in work.notes if note.reason == "unlike its likes"]


def test_a_step_that_shows_no_module_is_said(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)
    work = replayer(model, lambda: model(torch.ones(2, 4)))
    work.capture()
    work.time()
    work.part({}, 1000)
    assert [n.reason for n in work.notes if "likes" in n.reason] == ["likes not compared"]
