"""Recording compiled models on the CPU: whose each generated kernel is, and nothing left behind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cb_trace.bundle import CompiledGraph, Manifest, Note, open_bundle
from cb_trace.capture import modes
from cb_trace.capture.compiled import CompiledModel, fresh_compiler
from cb_trace.capture.modes import CHANGED, COMPILED_AGAIN, other_kernels
from cb_trace.capture.provenance import Provenance
from cb_trace.capture.record import record
from cb_trace.providers.workload import Workload
from tests.capture.models import Towers, towers
from tests.capture.test_ranges import hook_count
from tests.capture.test_record import QUICK, state
from tests.capture.test_train import events

# PyTorch's own import of its compiler (2.13).
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

COMPILE = replace(QUICK, mode="compile", replay=False, compare_plain=False)


def settings() -> dict[str, object]:
    """What of the compiler a recording changes."""
    from torch._inductor import compile_fx, config

    return {
        "level": config.trace.provenance_tracking_level,
        "cpu": config.cpp.enable_kernel_profile,
        "compile": compile_fx.fx_codegen_and_compile,
        "folder": os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
    }


Trained = tuple[Path, Manifest, bool]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The towers, trained compiled; the last is whether all was as before afterwards."""
    folder = tmp_path_factory.mktemp("compiled")
    workload = towers()
    before = state(workload.model), settings()
    record(workload, folder, replace(COMPILE, phase="train"))
    same = (state(workload.model), settings()) == before and hook_count(workload.model) == 0
    return (
        folder,
        open_bundle(folder).manifest,
        same and "_compiled_call_impl" not in vars(workload.model),
    )


def owners(graph: CompiledGraph, target: str) -> Counter[str | None]:
    nodes = {n.name: n for kernel in graph.kernels for n in kernel.nodes}
    return Counter(n.path for n in nodes.values() if n.target == target)


def test_everything_is_as_before(trained: Trained) -> None:
    assert trained[2]


def test_both_graphs_are_there_under_the_keys_of_the_trace(trained: Trained) -> None:
    graphs = trained[1].graphs
    assert [g.phase for g in graphs] == ["forward", "backward"]
    names = {e["name"] for e in events(trained[0])}
    assert all(f"## Call CompiledFxGraph {g.key} ##" in names for g in graphs)
    for graph in graphs:
        assert [k.handle for k in graph.kernels] == list(range(1, len(graph.kernels) + 1))
        assert all(k.nodes for k in graph.kernels)


def test_products_go_to_the_modules_that_made_them(trained: Trained) -> None:
    forward, backward = trained[1].graphs
    once = ["left.inner", "left.head", "right.inner", "right.head", "frozen", "out"]
    assert owners(forward, "aten.addmm.default") == {
        **dict.fromkeys([*once, "again.up", "again.down"], 1), "twice": 2,
    }  # fmt: skip
    products = owners(backward, "aten.mm.default") + owners(backward, "aten.addmm.default")
    # Two a layer: by the input, by the weight. No input gradient at the bottom, no weight
    # gradient where frozen; the checkpointed block computes its forward again.
    assert products == {
        "left.inner": 1, "right.inner": 1, "left.head": 2, "right.head": 2, "twice": 4,
        "frozen": 1, "again.up": 3, "again.down": 3, "out": 2,
    }  # fmt: skip


def test_work_done_again_is_a_phase_of_its_own(trained: Trained) -> None:
    forward, backward = trained[1].graphs
    phases = {(n.path, n.phase) for k in backward.kernels for n in k.nodes}
    assert ("again.up", "recompute") in phases
    assert ("again.up", "backward") in phases
    assert ("out", "recompute") not in phases
    assert {n.phase for k in forward.kernels for n in k.nodes} == {"forward"}
    assert trained[1].run.phases == ["forward", "backward", "recompute", "optimizer"]


def test_work_is_counted_by_node(trained: Trained) -> None:
    forward = trained[1].graphs[0]
    nodes = {n.name: n for k in forward.kernels for n in k.nodes}.values()
    (out,) = [n for n in nodes if n.path == "out" and n.target == "aten.addmm.default"]
    assert out.flops == 2 * 48 * 16 * 3
    assert out.bytes == 4 * (48 * 16 + 16 * 3 + 3 + 48 * 3)
    assert {n.bytes for n in nodes if n.target == "aten.permute.default"} <= {0}


def test_a_steady_model_needs_no_note(trained: Trained) -> None:
    reasons = {n.reason for n in trained[1].notes}
    assert reasons - {"unsteady step"} == {"grad mode"}


def test_only_the_whole_stands_in_a_range(trained: Trained) -> None:
    names = Counter(e["name"] for e in events(trained[0]) if e["name"].startswith("cb:"))
    assert names == {"cb:<root>": 2}


class Broken(nn.Module):
    """The graph breaks inside a child, and the root has work of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Half()
        self.outer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.sigmoid(self.outer(self.inner(x)))
        return out


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 7)
        self.second = nn.Linear(7, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        torch._dynamo.graph_break()
        return torch.cos(self.second(y))


def test_work_after_a_graph_break_keeps_its_module(tmp_path: Path) -> None:
    workload = Workload("broken", Broken(), (torch.randn(3, 4),))
    manifest = record(workload, tmp_path, COMPILE)
    (note,) = [n for n in manifest.notes if n.reason == "graph break"]
    assert "graph_break" in note.detail
    found = {(n.target, n.path) for g in manifest.graphs for k in g.kernels for n in k.nodes}
    for pair in (
        ("aten.addmm.default", "inner.first"), ("aten.addmm.default", "inner.second"),
        ("aten.addmm.default", "outer"), ("aten.tanh.default", "inner"),
        ("aten.cos.default", "inner"),
        # Its frame holds the layer in a local and nothing of self: nobody knows whose it is.
        ("aten.sigmoid.default", None),
    ):  # fmt: skip
        assert pair in found


class Parted(nn.Module):
    """The graph breaks between two children; products only: there is no C++ to generate."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(4, 7, bias=False), nn.Linear(7, 6, bias=False)])
        self.outer = nn.Linear(6, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner[0](x)
        torch._dynamo.graph_break()
        out: Tensor = self.outer(self.inner[1](x))
        return out


def products(manifest: Manifest) -> list[tuple[str, Counter[str | None]]]:
    """Owners of the products of every graph, graphs in the order they were compiled in."""
    return [
        (g.phase, owners(g, "aten.mm.default") + owners(g, "aten.addmm.default"))
        for g in manifest.graphs
    ]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_training_step_that_breaks_has_graphs_both_ways(tmp_path: Path) -> None:
    workload = Workload("parted", Parted(), (torch.randn(3, 4, requires_grad=True),))
    manifest = record(workload, tmp_path, replace(COMPILE, phase="train"))
    assert products(manifest) == [
        ("forward", {"inner.0": 1}),
        ("forward", {"inner.1": 1, "outer": 1}),
        ("backward", {"inner.1": 2, "outer": 2}),
        ("backward", {"inner.0": 2}),
    ]
    for graph in manifest.graphs:
        assert [k.handle for k in graph.kernels] == list(range(1, len(graph.kernels) + 1))
    names = Counter(e["name"] for e in events(tmp_path))
    assert {names[f"## Call CompiledFxGraph {g.key} ##"] for g in manifest.graphs} == {2}
    assert {n.reason for n in manifest.notes} >= {"graph break"}
    assert "recompiled" not in {n.reason for n in manifest.notes}


def test_other_sizes_compile_again_and_both_graphs_are_known(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 10, bias=False), nn.Linear(10, 3, bias=False)))
    sizes = cycle([4, 9, 5])

    def step() -> None:
        model(torch.randn(next(sizes), 6)).sum().backward()
        model.zero_grad()

    options = replace(COMPILE, steps=3, compare_plain=True)
    manifest = record(Workload("sizes", model, step=step), tmp_path, options)
    (note,) = [n for n in manifest.notes if n.reason == "recompiled"]
    assert note.detail == "compiled again in 1 of the first 3 steps, then steady"
    once = [("forward", {"0.0": 1, "0.1": 1}), ("backward", {"0.0": 1, "0.1": 2})]
    assert products(manifest) == [*once, *once]
    fixed, dynamic = ({k.nodes[-1].bytes for k in g.kernels} for g in manifest.graphs[::2])
    assert fixed != dynamic
    names = Counter(e["name"] for e in events(tmp_path))
    ran = [names[f"## Call CompiledFxGraph {g.key} ##"] for g in manifest.graphs]
    assert ran == [0, 0, 3, 3]  # the second takes every size


def test_modules_are_compiled_alone_and_the_program_is_the_plain_one(tmp_path: Path) -> None:
    # Products only: no C++ to generate, which takes long.
    workload = Workload("one", nn.Sequential(nn.Linear(4, 4)), (torch.randn(3, 4),))
    options = replace(COMPILE, replay=True, replay_seconds=40.0, compare_plain=True)
    manifest = record(workload, tmp_path, options)
    assert {r.skipped for r in manifest.replays} == {None}
    assert Counter((r.path, r.condition) for r in manifest.replays if r.samples_ns) == {
        (path, how): 1 for path in ("", "0") for how in ("hot", "cold", "eager")
    }
    assert {CHANGED, COMPILED_AGAIN}.isdisjoint(n.reason for n in manifest.notes)
    assert manifest.run.phases == ["forward"]


def test_other_kernels_than_in_a_plain_compile_are_noted() -> None:
    plain, seen = Counter({"mm": 2, "add": 1}), Counter({"mm": 2, "fused": 3})
    (note,) = other_kernels(plain, seen)
    differ = "add: 0 recorded, 1 plain; fused: 3 recorded, 0 plain"
    assert note == Note(reason="instrumentation changed the kernels", detail=differ, count=4)
    (note,) = other_kernels(plain, seen, COMPILED_AGAIN)
    assert note.reason == "compiled again, other kernels"
    assert note.detail == f"the compiler may have chosen by timings of its own: {differ}"
    assert other_kernels(plain, plain, COMPILED_AGAIN) == []


class Otherwise(nn.Module):
    """Is another program where it is told so."""

    def __init__(self, told: list[bool]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.told = told

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out @ out.t() if self.told[0] else out


def test_a_compilation_that_comes_out_otherwise_is_not_laid_at_our_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [True]

    @contextmanager
    def another(device: torch.device) -> Iterator[None]:
        told[0] = not told[0]
        with fresh_compiler(device):
            yield

    monkeypatch.setattr(modes, "fresh_compiler", another)
    workload = Workload("otherwise", Otherwise(told), (torch.randn(3, 4),))
    manifest = record(workload, tmp_path, replace(COMPILE, compare_plain=True))
    found = [note for note in manifest.notes if note.reason in {CHANGED, COMPILED_AGAIN}]
    assert [note.reason for note in found] == [COMPILED_AGAIN]
    assert "extern_kernels.mm" in found[0].detail or "aten::mm: " in found[0].detail


def test_a_compiler_without_the_means_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import debug

    monkeypatch.delattr(debug, "_inductor_triton_kernel_to_post_grad_node_info")
    before = settings()
    provenance = Provenance(None)  # type: ignore[arg-type]
    with provenance.collecting():
        assert settings() == before
    assert provenance.missing is not None
    assert "_inductor_triton_kernel_to_post_grad_node_info" in provenance.missing
    assert provenance.graphs() == []


def test_the_model_is_compiled_only_inside() -> None:
    model = Towers()
    compiled = CompiledModel(model, {"backend": "eager"})
    a, b = torch.randn(2, 12), torch.randn(2, 20)
    expected = model(a, b)
    with compiled.installed():
        assert torch.allclose(model(a, b), expected)
        with compiled.off():
            assert "_compiled_call_impl" not in vars(model)
        assert "_compiled_call_impl" in vars(model)
    assert "_compiled_call_impl" not in vars(model)
    torch._dynamo.reset()
