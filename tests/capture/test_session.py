"""A user's own loop under recording."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from cb_trace.bundle import open_bundle
from cb_trace.capture.given import SLOT
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.session import Session, record
from cb_trace.errors import CbTraceError
from cb_trace.range_names import path_of_range
from tests.capture.models import Everything
from tests.capture.test_ranges import hook_count, slices
from tests.capture.test_record import QUICK, generators, state
from tests.capture.test_train import events


def loop(session: Session | None, model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        if session:
            session.step()


def seeded() -> nn.Module:
    torch.manual_seed(1)
    random.seed(1)
    return Everything()


def test_a_training_loop_is_recorded_and_ends_as_it_would_have(tmp_path: Path) -> None:
    model = seeded()
    with record(model, "run", tmp_path / "run", options=QUICK, bare_steps=3) as session:
        assert session.steps_needed == 1 + 3 + 3 + 2
        loop(session, model, 12)
    assert hook_count(model) == 0
    ended = state(model) | {"rng": generators()}
    alone = seeded()
    loop(None, alone, 12)
    expected = state(alone) | {"rng": generators()}
    values = {k: v[1:] if isinstance(v, tuple) else v for k, v in ended.items()}
    assert values == {k: v[1:] if isinstance(v, tuple) else v for k, v in expected.items()}

    manifest = open_bundle(tmp_path / "run").manifest
    assert manifest == session.manifest
    assert (manifest.run.workload, manifest.run.provider) == ("run", None)
    assert {s.kind: len(s.ns) for s in manifest.step_samples} == {"bare": 3, "profiled": 2}
    assert {r.path for r in manifest.replays} >= {"", "norm", "twice", "branches.1.act"}
    assert any(r.samples_ns for r in manifest.replays)
    assert {c.phase for c in manifest.costs} == {"forward", "backward", "optimizer"}
    assert all(m.saved_for_backward_bytes for m in manifest.memories
               if (m.path, m.phase, m.scope) == ("", "forward", "context"))  # fmt: skip
    names = [s["name"] for s in slices(tmp_path / "run" / "context.json.gz")]
    assert [n for n in names if n.startswith("ProfilerStep")] == [
        "ProfilerStep#0",
        "ProfilerStep#1",
    ]
    assert [path_of_range(n) for n in names].count(
        "twice"
    ) == 2 * 2  # the warm-up step is not in it


def test_autocast_of_the_loop_is_noticed(tmp_path: Path) -> None:
    model = Everything()
    with record(
        model, "r", tmp_path / "r", options=replace(QUICK, replay=False), bare_steps=1
    ) as r:
        for _ in range(r.steps_needed):
            with torch.autocast("cpu", torch.bfloat16):
                model(torch.randn(4, 8))
            r.step()
    assert r.manifest is not None
    assert r.manifest.run.dtype == "bf16"


class Pair(nn.Module):
    """Two products: no C++ to generate, which takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x))
        return out


def trained(model: nn.Module, session: Session) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(session.steps_needed):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        session.step()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("way", ["asked", "wrapped"])
def test_a_compiled_loop_is_recorded_with_its_provenance(tmp_path: Path, way: str) -> None:
    model: nn.Module = Pair()
    options = replace(QUICK, mode="compile" if way == "asked" else "eager", replay=False)
    called = cast("nn.Module", torch.compile(model)) if way == "wrapped" else model
    with record(called, "run", tmp_path / "run", options=options, bare_steps=2) as session:
        trained(called, session)
    assert hook_count(model) == 0
    assert SLOT not in vars(model)
    assert SLOT not in vars(called)
    manifest = open_bundle(tmp_path / "run").manifest
    assert manifest.run.mode == "compile"
    assert manifest.run.phases == ["forward", "backward", "optimizer"]
    assert [g.phase for g in manifest.graphs] == ["forward", "backward"]
    products = Counter(
        (n.path, g.phase) for g in manifest.graphs for k in g.kernels for n in k.nodes
        if n.target in {"aten.mm.default", "aten.addmm.default"}
    )  # fmt: skip
    assert products == {
        ("first", "forward"): 1, ("second", "forward"): 1,
        ("first", "backward"): 1, ("second", "backward"): 2,
    }  # fmt: skip
    names = Counter(e["name"] for e in events(tmp_path / "run"))
    assert names["cb:<root>"] == 2
    assert all(names[f"## Call CompiledFxGraph {g.key} ##"] == 2 for g in manifest.graphs)
    reasons = {n.reason for n in manifest.notes}
    assert ("compiled model" in reasons) == (way != "asked")
    assert not reasons & {"recompiled", "graph break", "compile provenance unavailable"}
    torch._dynamo.reset()


def test_a_graph_of_a_loop_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match=r"mode cudagraph .*one step of it, as step="):
        record(nn.ReLU(), "run", tmp_path / "r", options=RecordOptions(mode="cudagraph"))
    compiled = cast("nn.Module", torch.compile(nn.ReLU(), backend="eager"))
    with pytest.raises(CbTraceError, match=r"mode compile\+cudagraph"):
        record(compiled, "run", tmp_path / "r", options=RecordOptions(mode="compile+cudagraph"))


def recorded(model: nn.Module, path: Path, steps: int, ending: type[BaseException]) -> None:
    """A loop of so many steps that ends by an exception."""
    with record(model, "run", path, options=QUICK, bare_steps=3) as session:
        loop(session, model, steps)
        raise ending


def test_a_short_loop_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    model = Everything()
    session = record(model, "run", tmp_path / "run.zip", options=QUICK, bare_steps=3)
    with pytest.raises(CbTraceError, match="ended after 8 steps; recording needs 9"), session:
        loop(session, model, 8)
    assert list(tmp_path.iterdir()) == []
    assert hook_count(model) == 0


@pytest.mark.parametrize("steps", [0, 2, 5, 6, 7, 8])
def test_an_error_in_the_loop_comes_through(tmp_path: Path, steps: int) -> None:
    model = Everything()
    with pytest.raises(ZeroDivisionError):
        recorded(model, tmp_path / "run.zip", steps, ZeroDivisionError)
    assert list(tmp_path.iterdir()) == []
    assert hook_count(model) == 0


def test_ctrl_c_after_the_profiled_steps_keeps_them(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        recorded(Everything(), tmp_path / "run", 9, KeyboardInterrupt)
    assert open_bundle(tmp_path / "run").manifest.run.workload == "run"


def test_an_existing_bundle_is_refused_before_the_loop(tmp_path: Path) -> None:
    (tmp_path / "run.zip").touch()
    with pytest.raises(CbTraceError, match="exists"):
        record(nn.ReLU(), "run", tmp_path / "run.zip")
