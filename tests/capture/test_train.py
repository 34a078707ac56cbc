"""A recorded training step: what ran, whose gradients, and a model that is as before."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from cb_trace.bundle import Manifest, open_bundle
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.phases import PhaseWatch, never_called
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.capture.record import _Recording, record
from cb_trace.capture.training import TrainingStep
from cb_trace.capture.tree import module_tree
from cb_trace.errors import CbTraceError
from cb_trace.providers import load
from cb_trace.providers.workload import Workload
from cb_trace.range_names import parameter_of_range, path_of_range
from cb_trace.replay.isolated import RECOMPUTES
from tests.capture.models import Caller, towers
from tests.capture.test_record import QUICK, state

TRAIN = replace(QUICK, phase="train", replay=False, warmup=1)
Event = dict[str, Any]


def events(folder: Path, name: str = "context.json.gz") -> list[Event]:
    document = json.loads(gzip.decompress((folder / name).read_bytes()))
    return [e for e in document["traceEvents"] if e.get("ph") == "X"]


def around(event: Event, found: list[Event]) -> list[str]:
    """Names of what is around an event on its thread, outermost first."""
    end = event["ts"] + event["dur"]
    return [
        e["name"]
        for e in sorted(found, key=lambda e: (e["ts"], -e["dur"]))
        if e["tid"] == event["tid"] and e is not event
        and e["ts"] <= event["ts"] and e["ts"] + e["dur"] >= end
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest, bool]:
    folder = tmp_path_factory.mktemp("trained")
    workload = towers()
    before = state(workload.model)
    record(workload, folder, TRAIN)
    return folder, open_bundle(folder).manifest, state(workload.model) == before


def test_the_model_is_bit_equal_after_training_steps(
    trained: tuple[Path, Manifest, bool],
) -> None:
    assert trained[2]


def test_every_phase_is_named(trained: tuple[Path, Manifest, bool]) -> None:
    run = trained[1].run
    assert run.phases == ["forward", "backward", "recompute", "optimizer"]
    assert run.mode == "eager"
    assert not {n.reason for n in trained[1].notes} & {"default loss", "default optimizer"}


def test_parameters_are_listed_once_under_their_first_owner(
    trained: tuple[Path, Manifest, bool],
) -> None:
    parameters = {p.name: p for p in trained[1].parameters}
    assert "right.head.weight" not in parameters  # it is left.head.weight
    assert parameters["left.head.weight"].path == "left.head"
    assert parameters["left.head.weight"].shared_with == ["right.head"]
    assert [p.name for p in trained[1].parameters if p.shared_with] == ["left.head.weight"]
    assert not parameters["frozen.weight"].trainable
    assert parameters["twice.weight"].bytes == 16 * 16 * 4


def test_a_marker_stands_inside_each_accumulation(trained: tuple[Path, Manifest, bool]) -> None:
    found = events(trained[0])
    marks = [e for e in found if parameter_of_range(e["name"]) is not None]
    trainable = {p.name for p in trained[1].parameters if p.trainable}
    assert Counter(parameter_of_range(e["name"]) for e in marks) == dict.fromkeys(trainable, 2)
    for mark in marks:
        outer = around(mark, found)
        assert outer[-1] == "torch::autograd::AccumulateGrad"
        assert outer[0].startswith("ProfilerStep#")


def test_the_trace_holds_the_steps_alone(trained: tuple[Path, Manifest, bool]) -> None:
    found = events(trained[0])
    steps = [e for e in found if e["name"].startswith("ProfilerStep#")]
    assert len(steps) == 2
    work = [e for e in found if e["cat"] == "cpu_op" and e["tid"] == steps[0]["tid"]]
    assert all(around(e, found)[0].startswith("ProfilerStep#") for e in work)
    names = Counter(e["name"] for e in found)
    assert names["Optimizer.step#SGD.step"] == 2


def test_a_checkpointed_module_is_called_again_in_the_backward(
    trained: tuple[Path, Manifest, bool],
) -> None:
    found = events(trained[0])
    calls = Counter(path_of_range(e["name"]) for e in found)
    assert (calls["again.up"], calls["again.down"], calls["twice"], calls["out"]) == (4, 4, 4, 2)
    again = [e for e in found if path_of_range(e["name"]) == "again.up"]
    inside = [any("evaluate_function" in name for name in around(e, found)) for e in again]
    assert sorted(inside) == [False, False, True, True]


def test_modules_replay_under_grad_in_a_training_step(tmp_path: Path) -> None:
    workload = towers()
    before = state(workload.model)
    # On a busy machine as well: in 5 s some of its modules were not reached.
    manifest = record(workload, tmp_path, replace(TRAIN, replay=True, replay_seconds=15.0))
    assert state(workload.model) == before
    own = {(r.path, r.calls) for r in manifest.replays if r.condition == "hot"}
    assert {("again", 1), ("again.up", 1), ("left.head", 1), ("out", 1)} <= own
    # "again" is checkpointed by the root, whose backward alone would run it forward once more.
    assert {(r.path, r.phase) for r in manifest.replays if r.skipped} == {("", "backward")}
    assert {r.skipped for r in manifest.replays} == {None, RECOMPUTES}


def accumulators(model: nn.Module) -> list[str]:
    """Parameters whose gradient accumulator somebody holds: a mark that is put on it stays."""

    def marks(name: str) -> dict[Any, Any]:
        edge: Any = torch.autograd.graph.get_gradient_edge(model.get_parameter(name))
        found: dict[Any, Any] = edge.node.metadata
        return found

    names = [name for name, p in model.named_parameters() if p.requires_grad]
    for name in names:
        marks(name)["seen"] = True
    return [name for name in names if "seen" in marks(name)]


def test_no_accumulator_outlives_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It runs on the stream it was made on: a later capture of the step would break there.
    workload = towers()
    held: dict[str, list[str]] = {}
    for part in ("_measure", "_sequence"):
        real = getattr(_Recording, part)

        def looking(self: _Recording, *args: Any, real: Any = real, part: str = part) -> None:
            held[part] = accumulators(workload.model)
            real(self, *args)

        monkeypatch.setattr(_Recording, part, looking)
    workload.model(*workload.args).sum().backward()  # the first time leaves cycles of torch's own
    workload.model.zero_grad()
    gc.collect()
    gc.disable()
    try:
        record(workload, tmp_path, replace(TRAIN, replay=True, replay_seconds=1.0))
    finally:
        gc.enable()
    assert held == {"_measure": [], "_sequence": []}


def test_what_a_workload_leaves_open_is_noted(tmp_path: Path) -> None:
    workload = Workload("plain", nn.Linear(2, 2), (torch.ones(1, 2),))
    manifest = record(workload, tmp_path, TRAIN)
    reasons = {n.reason for n in manifest.notes}
    assert {"default loss", "default optimizer"} <= reasons
    assert workload.model.weight.grad is None


def test_gradients_of_inputs_are_dropped_like_all_others() -> None:
    x = torch.ones(2, 4, requires_grad=True)
    step = TrainingStep(Workload("inputs", nn.Linear(4, 4), (x,)), nullcontext)
    step()
    assert x.grad is None


def test_a_model_without_parameters_cannot_train(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match="no output of the model has a gradient"):
        record(Workload("relu", nn.ReLU(), (torch.ones(2),)), tmp_path, TRAIN)


def test_the_evaluation_flag_comes_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
    record(Workload("m", model, (torch.ones(1, 2),)), tmp_path, TRAIN)
    assert not any(m.training for m in model.modules())


@pytest.mark.parametrize("provider", ["nanogpt", "deepfm"])
def test_shipped_workloads_train_with_their_own_loss(provider: str, tmp_path: Path) -> None:
    workload = load(provider)
    options: RecordOptions = replace(TRAIN, steps=1, bare_samples=1, dtype="bf16")
    manifest = record(workload, tmp_path, options)
    assert manifest.run.phases == ["forward", "backward", "optimizer"]
    assert "default loss" not in {n.reason for n in manifest.notes}


def test_a_graph_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match=r"mode cudagraph needs a CUDA device .*--mode eager"):
        record(towers(), tmp_path, replace(TRAIN, mode="cudagraph"))
    with pytest.raises(CbTraceError, match="use --mode compile"):
        record(towers(), tmp_path, replace(TRAIN, mode="compile+cudagraph"))


def test_another_method_counts_where_it_is_named(tmp_path: Path) -> None:
    model, x = Caller(), torch.ones(2, 4)
    plain = record(Workload("c", model, (x,)), tmp_path, replace(QUICK, replay=False))
    assert {n.path for n in plain.notes if n.reason == "never called"} == {"used"}
    assert "cb:coder" not in {e["name"] for e in events(tmp_path)}
    wrapped = record(Workload("c", model, (x,)), tmp_path, replace(QUICK, wrap=("encode",)))
    found = events(tmp_path)
    inner = [e for e in found if e["name"] == "cb:coder.inner"]
    assert [around(e, found)[-2:] for e in inner] == [["cb:<root>", "cb:coder"]] * 2
    assert "encode" not in vars(model.coder)
    (hot,) = [r for r in wrapped.replays if (r.path, r.condition) == ("coder", "hot")]
    assert hot.samples_ns
    assert hot.skipped is None


class Codec(nn.Module):
    """Its methods call one another in every way there is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.asks: Asks | None = None

    def encode(self, x: torch.Tensor, depth: int = 0) -> torch.Tensor:
        made: torch.Tensor = self.inner(x)
        return self.encode(made, depth - 1) if depth else made

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self(x)  # forward, by its hooks
        return made

    def forward(self, x: torch.Tensor, *, ask: bool = False) -> torch.Tensor:
        made: torch.Tensor = self.asks(self, x) if ask and self.asks else self.encode(x)
        return made


class Asks(nn.Module):
    """Calls the module that called it."""

    def forward(self, codec: Codec, x: torch.Tensor) -> torch.Tensor:
        return codec.encode(x)


class Coding(nn.Module):
    """Calls a codec in one way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.codec, self.asks, self.how = Codec(), Asks(), how
        if how == "ask":
            self.codec.asks = self.asks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ways: dict[str, Callable[[], torch.Tensor]] = {
            "forward": lambda: self.codec(x),
            "encode": lambda: self.codec.encode(x),
            "decode": lambda: self.codec.decode(x),
            "two": lambda: self.codec.decode(self.codec(x)),
            "itself": lambda: self.codec.encode(x, 2),
            "ask": lambda: self.codec(x, ask=True),
        }
        return ways[self.how]()


@pytest.mark.parametrize(
    ("how", "calls", "inner"),
    [
        ("forward", 1, 1),  # which is encode
        ("encode", 1, 1),
        ("decode", 1, 1),  # which is forward, which is encode
        ("two", 2, 2),
        ("itself", 3, 3),  # encode in encode in encode
        ("ask", 2, 1),  # forward, and encode of another module's asking
    ],
)
def test_a_method_in_another_of_the_same_module_is_no_call_of_its_own(
    how: str, calls: int, inner: int, tmp_path: Path
) -> None:
    options = replace(QUICK, replay=False, steps=1, wrap=("encode", "decode"))
    record(Workload("c", Coding(how), (torch.ones(2, 4),)), tmp_path, options)
    found = events(tmp_path)
    counts = Counter(e["name"] for e in found if e.get("cat") == "user_annotation")
    assert (counts["cb:codec"], counts["cb:codec.inner"]) == (calls, inner)
    leaves = [around(e, found) for e in found if e["name"] == "cb:codec.inner"]
    assert all(names[-1] == "cb:codec" for names in leaves)


class Fed(nn.Module):
    """What a loader's worker and a thread beside the step call is not the step's."""

    def __init__(self) -> None:
        super().__init__()
        self.side, self.main = nn.Linear(3, 3), nn.Linear(3, 2)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, _: int) -> torch.Tensor:
        out: torch.Tensor = self.side(torch.ones(3))
        return out.detach()

    def step(self) -> None:
        other = threading.Thread(target=lambda: self.side(torch.ones(1, 3)))
        other.start()
        loader: Any = DataLoader(self, batch_size=2, num_workers=1)  # type: ignore[arg-type]
        for batch in loader:
            self.main(batch)
        other.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_and_threads_beside_the_step_do_not_leak_in(tmp_path: Path) -> None:
    model = Fed()
    options = replace(QUICK, steps=1, bare_samples=1, replay_seconds=0.5)
    manifest = record(Workload("fed", model, step=model.step), tmp_path, options)
    called = {path_of_range(e["name"]) for e in events(tmp_path)} - {None}
    assert called == {"main"}
    assert {r.path for r in manifest.replays} == {"main"}
    assert {c.path for c in manifest.costs} - {""} == {"main"}
    assert {m.path for m in manifest.memories} - {""} == {"main"}
    noted = [(n.path, n.reason) for n in manifest.notes if n.path]
    assert noted == [("side", "called on another thread")]


def test_calls_of_other_threads_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    tree = module_tree(model)
    watch = PhaseWatch(ModuleRanges(tree.modules), {})
    with watch:
        other = threading.Thread(target=lambda: model(torch.ones(1, 2)))
        other.start()
        other.join()
        assert watch.called == set()
        model[0](torch.ones(1, 2))
    assert watch.called == {"0"}
    assert watch.phases([]) == ["forward"]
    assert never_called(tree, watch.called) == []
    assert [n.path for n in never_called(tree, set())] == ["0"]
    assert never_called(tree, None) == []
