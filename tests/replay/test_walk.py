"""The replayer from the outside: records, notes, traces, and a model as it was."""

from __future__ import annotations

import gzip
import json
import warnings
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore

from cb_trace.range_names import REPLAY_PREFIX
from cb_trace.replay.clock import Reading, UnknownClock
from cb_trace.replay.walk import Replayer
from tests.replay.support import replayer


class Everything(nn.Module):
    """One model with all that a replay could disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(8)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.spectral = nn.utils.spectral_norm(nn.Linear(8, 8))
        self.cache: list[torch.Tensor] = []
        self.head = nn.Linear(8, 8).eval()

    def forward(self, ids: torch.Tensor, *, cache: dict[str, torch.Tensor]) -> torch.Tensor:
        x: torch.Tensor = self.drop(self.relu(self.norm(self.embed(ids))))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.head(x).float()
        x = self.spectral(x)
        cache["sum"] = cache["sum"] + x.detach().sum()
        self.cache.append(x.detach())
        return x


def _everything() -> tuple[Everything, Any]:
    torch.manual_seed(0)
    model, ids = Everything(), torch.arange(6)

    def step() -> object:
        model.cache.clear()
        return model(ids, cache={"sum": torch.zeros(())})

    step()
    return model, step


def _state(model: Everything) -> tuple[Any, ...]:
    values = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [m.training for m in model.modules()]
    return values, flags, list(model.cache), torch.get_rng_state(), torch.get_default_dtype()


def test_the_model_is_bit_equal_after_everything(tmp_path: Path) -> None:
    model, step = _everything()
    values, flags, cache, rng, dtype = _state(model)
    work = replayer(model, step, conditions=("hot", "cold"))
    work.capture()
    work.time()
    work.profile(tmp_path)
    after = _state(model)
    assert all(torch.equal(after[0][k], v) for k, v in values.items())
    assert after[1] == flags
    assert [id(t) for t in after[2]] == [id(t) for t in cache]
    assert torch.equal(after[3], rng)
    assert after[4] == dtype
    assert not torch.is_autocast_enabled("cpu")
    assert all(p.grad is None for p in model.parameters())
    assert {r.path for r in work.records} == {"", *(n for n, _ in model.named_children())}
    assert {r.skipped for r in work.records} == {None}


def _pair() -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)
    return model, lambda: model(torch.ones(2, 4))


def _measured(work: Replayer) -> Replayer:
    work.capture()
    work.time()
    return work


def test_likes_share_one_measurement() -> None:
    work = _measured(replayer(*_pair(), conditions=("hot", "cold")))
    assert [(r.replay_id, r.path, r.condition, r.measured_id) for r in work.records] == [
        (0, "", "hot", 0),
        (1, "", "cold", 1),
        (2, "0", "hot", 2),
        (3, "0", "cold", 3),
        (4, "1", "hot", 2),
        (5, "1", "cold", 3),
    ]
    assert [len(r.samples_ns) >= 3 for r in work.records] == [True] * 4 + [False] * 2
    assert [r.calls_per_sample > 0 for r in work.records] == [True] * 4 + [False] * 2
    assert work.records[3].calls_per_sample == 1
    assert {r.calls for r in work.records} == {1}


def test_no_dedup_measures_all() -> None:
    work = _measured(replayer(*_pair(), dedup=False))
    assert [r.measured_id for r in work.records] == [0, 1, 2]
    assert all(r.samples_ns for r in work.records)


def test_a_skipped_module_has_its_reason_and_so_have_its_likes() -> None:
    class Odd(nn.Module):
        def forward(self, x: Any) -> Any:
            return next(x)

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.never = Odd(), Odd(), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.one(iter_of(x)) + self.two(iter_of(x))
            return made

    def iter_of(x: torch.Tensor) -> Any:
        return (x + i for i in range(2))

    model = Parent()
    work = _measured(replayer(model, lambda: model(torch.ones(2))))
    reason = "inputs cannot be copied: a generator"
    assert [(r.path, r.skipped) for r in work.records] == [
        ("", None),
        ("one", reason),
        ("two", reason),
    ]
    assert not work.records[1].samples_ns


def test_a_spent_budget_skips_the_rest() -> None:
    work = _measured(replayer(*_pair(), budget_seconds=0.0))
    assert {r.skipped for r in work.records} == {"time budget of 0 s spent"}


def test_interrupted_while_timing_keeps_what_was_measured(tmp_path: Path) -> None:
    model, step = _pair()
    names = []

    def progress(line: str) -> None:
        names.append(line)
        if len(names) == 2:
            raise KeyboardInterrupt

    work = replayer(model, step, dedup=False)
    work.progress = progress
    _measured(work)
    assert names == ["turn 1, module 1/3 Sequential", "turn 1, module 2/3 0"]
    assert [r.skipped for r in work.records] == [None, "interrupted", "interrupted"]
    assert work.interrupted
    assert work.profile(tmp_path) == []


def test_interrupted_while_capturing_skips_all() -> None:
    model, _ = _pair()

    def step() -> object:
        model(torch.ones(2, 4))
        raise KeyboardInterrupt

    work = _measured(replayer(model, step))
    assert {r.skipped for r in work.records} == {"interrupted"}


def test_a_restored_input_is_one_call_a_sample_and_noted() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True))
    x = torch.tensor([-1.0, 2.0])
    work = _measured(replayer(model, lambda: model(x)))
    assert [r.calls_per_sample for r in work.records] == [1, 1]
    assert [n.path for n in work.notes if n.reason == "restored between calls"] == ["", "0"]


def test_kernels_of_every_measurement_are_in_ranges_of_their_own(tmp_path: Path) -> None:
    work = _measured(replayer(*_pair(), conditions=("hot", "cold")))
    (trace,) = work.profile(tmp_path)
    assert (trace.file, trace.role) == ("isolated-0.json.gz", "isolated")
    text = gzip.decompress((tmp_path / trace.file).read_bytes())
    assert str(tmp_path).encode() not in text
    events = json.loads(text)["traceEvents"]
    ranges = [e for e in events if e["name"].startswith(REPLAY_PREFIX) and e["ph"] == "X"]
    wanted = [f"cb_replay:{number}:{turn}" for number in range(4) for turn in range(2)]
    assert [e["name"] for e in sorted(ranges, key=lambda e: e["ts"])] == wanted
    linear = [e for e in events if e["name"] == "aten::addmm"]
    inside = [
        sum(r["ts"] <= e["ts"] <= r["ts"] + r["dur"] for e in linear)
        for r in sorted(ranges, key=lambda e: e["ts"])
    ]
    assert inside == [2, 2, 2, 2, 1, 1, 1, 1]
    assert [r.profiled_calls for r in work.records] == [2, 2, 2, 2, 0, 0]


def test_several_passes_give_several_traces(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 128)).requires_grad_(False)
    work = replayer(model, lambda: model(torch.ones(4, 256)), max_capture_bytes=5000)
    _measured(work)
    assert [r.skipped for r in work.records] == [None, None, None]
    traces = work.profile(tmp_path)
    assert [t.file for t in traces] == [f"isolated-{n}.json.gz" for n in range(3)]


def test_capturing_in_a_loop_of_the_users_own(tmp_path: Path) -> None:
    model, step = _pair()
    work = replayer(model, None)
    with work.capturing():
        step()
    work.time()
    assert [bool(r.samples_ns) for r in work.records] == [True, True, False]
    assert len(work.profile(tmp_path)) == 1
    with pytest.raises(RuntimeError, match="capturing"):
        work.capture()


def test_collectives_are_skipped_with_that_reason_and_the_rest_is_measured(tmp_path: Path) -> None:
    class Reduces(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 0
            distributed.all_reduce(y)
            return y

    model = nn.Sequential(nn.Linear(4, 4), Reduces(), nn.ReLU()).requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        work = _measured(replayer(model, lambda: model(torch.ones(2, 4))))
        traces = work.profile(tmp_path)
    finally:
        distributed.destroy_process_group()
    reason = "runs collectives"
    assert {r.path: r.skipped for r in work.records} == {
        "": reason,
        "0": None,
        "1": reason,
        "2": None,
    }
    assert [bool(r.samples_ns) for r in work.records] == [False, True, False, True]
    assert len(traces) == 1


def test_what_exceeds_the_budget_is_skipped_and_those_in_it_are_measured() -> None:
    class Widens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, wide: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.second(self.first(wide[:, :4]).relu())
            return made

    model = nn.Sequential(nn.Sequential(Widens())).requires_grad_(False)
    wide = torch.ones(8, 4096)  # 128 KiB, as often as a container passes it on
    work = _measured(replayer(model, lambda: model(wide), max_capture_bytes=130_000))
    reason = f"inputs of {8 * 4096 * 4} bytes exceed the memory budget"
    skipped = {r.path: r.skipped for r in work.records}
    assert skipped == {
        **dict.fromkeys(("", "0", "0.0"), reason),
        **dict.fromkeys(("0.0.first", "0.0.second")),
    }


def test_what_can_never_be_measured_is_not_skipped_for_want_of_time() -> None:
    model = nn.Sequential(nn.Linear(4096, 4), nn.Linear(4, 4)).requires_grad_(False)
    wide = torch.ones(8, 4096)
    options = {"max_capture_bytes": 130_000, "budget_seconds": 1e-9}
    work = _measured(replayer(model, lambda: model(wide), **options))
    reason = f"inputs of {8 * 4096 * 4} bytes exceed the memory budget"
    late = "time budget of 1e-09 s spent"
    assert {r.path: r.skipped for r in work.records} == {"": reason, "0": reason, "1": late}


def test_samples_under_throttling_are_dropped_from_the_record() -> None:
    hot = Reading(900, 95, ("thermal slowdown",))
    readings = chain([Reading(1980, 40), hot], repeat(Reading(1980, 41)))

    class Scripted(UnknownClock):
        def read(self) -> Reading:
            return next(readings)

    model = nn.Sequential().requires_grad_(False)
    work = replayer(model, lambda: model(torch.ones(2)))
    work._clock = Scripted()
    _measured(work)
    (record,) = work.records
    first, second, *later = record.blocks
    assert len(later) >= 3
    assert (second.samples, second.limits) == (0, ["thermal slowdown"])
    assert second.dropped > 0
    assert len(record.samples_ns) == sum(block.samples for block in (first, *later))
    (note,) = [n for n in work.notes if n.reason == "clock and temperature"]
    assert f"{second.dropped} samples dropped" in note.detail
    assert note.count == second.dropped
