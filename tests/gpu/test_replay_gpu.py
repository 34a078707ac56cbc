"""Replay on a CUDA device: what the CPU cannot show."""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.capture.tree import module_tree
from cb_trace.replay.captures import Captures
from cb_trace.replay.clock import clock_of
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.graph import capture_graph, capturing_stream
from cb_trace.replay.hooks import Place
from cb_trace.replay.inputs import freeze, plan_inputs
from cb_trace.replay.isolated import isolated
from cb_trace.replay.memory import CaptureBudget
from cb_trace.replay.timing import empty_window_ns, time_block
from cb_trace.replay.tree import modules_by_path
from cb_trace.replay.walk import Replayer, ReplayOptions

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda", 0)


def measured(model: nn.Module, step: Any, **options: Any) -> Replayer:
    records = module_tree(model).records
    work = Replayer(model, step, records, GPU, ReplayOptions(**options), lambda _: None)
    work.capture()
    work.time()
    return work


def model_of() -> tuple[nn.Module, Any]:
    layers = [nn.Linear(1024, 1024), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.LayerNorm(1024)]
    model = nn.Sequential(*layers).to(GPU)
    x = torch.randn(512, 1024, device=GPU)

    def step() -> object:
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x)

    step()
    return model, step


def test_every_condition_is_measured_and_the_model_is_as_it_was(tmp_path: Path) -> None:
    model, step = model_of()
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.cuda.get_rng_state(GPU)
    work = measured(model, step, budget_seconds=4.0)
    skipped = {(r.path, r.condition) for r in work.records if r.skipped}
    assert skipped == {("1", "graph")}  # its input is written to
    assert all(r.samples_ns for r in work.records if not r.skipped)
    traces = work.profile(tmp_path)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.cuda.get_rng_state(GPU), rng)
    assert not torch.is_autocast_enabled("cuda")
    assert len(traces) == 1


def kernels_by_range(file: Path) -> dict[str, list[dict[str, Any]]]:
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    ranges = [e for e in events if e.get("cat") == "user_annotation"]
    launches = [e for e in events if e.get("cat") in {"cuda_runtime", "cuda_driver"}]
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") == "kernel"}
    found: dict[str, list[dict[str, Any]]] = {}
    for span in ranges:
        inside = (e for e in launches if span["ts"] <= e["ts"] <= span["ts"] + span["dur"])
        hits = [kernels.get(e["args"].get("correlation")) for e in inside]
        found.setdefault(span["name"], []).extend(k for k in hits if k)
    return found


def test_a_cold_kernel_is_slower_than_a_hot_one_whose_data_fits_the_cache(tmp_path: Path) -> None:
    model = nn.Sequential(nn.GELU())
    x = torch.randn(4 << 20, device=GPU)  # 16 MiB in, 16 MiB out
    work = measured(model, lambda: model(x), budget_seconds=2.0, profiled_calls=9)
    (trace,) = work.profile(tmp_path)
    found = kernels_by_range(tmp_path / trace.file)
    medians = []
    for record in [r for r in work.records if r.path == "0" and r.condition != "graph"]:
        calls = [found[f"cb_replay:{record.replay_id}:{turn}"] for turn in range(9)]
        assert [len(kernels) for kernels in calls] == [1] * 9
        medians.append(statistics.median(kernels[0]["dur"] for kernels in calls))
    hot, cold = medians
    assert cold > hot


def test_cold_is_the_device_alone_where_the_host_takes_longer() -> None:
    model, x = nn.Sequential(*[nn.Tanh() for _ in range(20)]), torch.randn(1024, device=GPU)
    work = measured(model, lambda: model(x), budget_seconds=2.0)
    hot, cold = (
        statistics.median(r.samples_ns)
        for condition in ("hot", "cold")
        for r in work.records
        if (r.path, r.condition) == ("", condition)
    )
    assert cold < 0.75 * hot  # twenty launches take longer than twenty small kernels


def test_the_kernels_alone_are_those_in_context_casts_included(tmp_path: Path) -> None:
    model, step = model_of()
    work = measured(model, step, budget_seconds=2.0, conditions=("hot",))
    (trace,) = work.profile(tmp_path)
    found = kernels_by_range(tmp_path / trace.file)
    record = next(r for r in work.records if r.path == "0")
    names = [[k["name"] for k in found[f"cb_replay:{record.replay_id}:{t}"]] for t in range(3)]
    with torch.profiler.profile(acc_events=True) as profiler:
        step()
        torch.cuda.synchronize()
    in_step = {event.name for event in profiler.events()}
    assert names[0] == names[1] == names[2]
    assert sum("bfloat16_copy" in name for name in names[0]) == 3  # input, weight, bias
    assert set(names[0]) <= in_step


def test_a_graph_of_launch_bound_work_beats_the_eager_run() -> None:
    layers = nn.Sequential(*[nn.ReLU() for _ in range(50)]).to(GPU)
    x = torch.randn(64, device=GPU)

    def run() -> object:
        return layers(x)

    captured = capture_graph(run, GPU)
    assert captured.reason is None
    eager = statistics.median(time_block(run, GPU, min_samples=20, min_seconds=0).ns)
    graph = statistics.median(time_block(captured.replay, GPU, min_samples=20, min_seconds=0).ns)
    assert graph < eager


def test_what_cannot_be_captured_says_why_and_leaves_a_working_device() -> None:
    x = torch.randn(64, device=GPU)
    captured = capture_graph(lambda: x.sum().item(), GPU)
    assert captured.graph is None
    assert captured.reason is not None
    assert captured.reason.startswith("cannot be captured: ")
    nothing = capture_graph(lambda: x, GPU)
    assert nothing.reason == "cannot be captured: it gives the device nothing to do"
    assert torch.equal(x + 0, x)
    assert capture_graph(lambda: x + 1, GPU).reason is None


def test_an_event_window_agrees_with_the_clock_on_long_work() -> None:
    a = torch.randn(4096, 4096, device=GPU)

    def run() -> object:
        return a @ a @ a @ a

    def clocked() -> None:
        run()
        torch.cuda.synchronize(GPU)

    events = statistics.median(time_block(run, GPU, min_samples=15, min_seconds=0, calls=5).ns)
    clock = statistics.median(
        time_block(clocked, torch.device("cpu"), min_samples=15, min_seconds=0).ns
    )
    assert 0.5 < events / clock < 1.5
    assert 0 < empty_window_ns(GPU) < 1_000_000


def test_inputs_move_to_ram_and_back_with_their_layout() -> None:
    x = torch.randn(100, 64, device=GPU)[3:, 1:33:2]
    frozen = freeze(plan_inputs((x, x[0].expand(5, 16)), {}, set()), torch.device("cpu"))
    assert frozen.copies[0].data.device.type == "cpu"
    first, second = frozen.thaw(own=False).args
    assert first.device == GPU
    assert torch.equal(first, x)
    assert first.stride() == x.stride()
    assert first.storage_offset() == x.storage_offset()
    assert first.data_ptr() % 256 == x.data_ptr() % 256
    assert second.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()


def test_a_full_device_budget_goes_on_in_ram() -> None:
    budget = CaptureBudget(GPU, 100)
    assert budget.place({GPU: 60}) == Place()
    assert budget.place({GPU: 60}) == Place(torch.device("cpu"))


def test_the_stream_of_the_call_is_the_stream_of_the_replay() -> None:
    side = torch.cuda.Stream(GPU)  # type: ignore[no-untyped-call]
    seen: list[int] = []

    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.cuda.current_stream(GPU).cuda_stream)
            return x + 1

    model = nn.Sequential(Inner())
    x = torch.randn(8, device=GPU)

    def step() -> None:
        side.wait_stream(torch.cuda.current_stream(GPU))
        with torch.cuda.stream(side):
            model(x)
        torch.cuda.current_stream(GPU).wait_stream(side)

    records = module_tree(model).records
    signatures = {r.path: r.signature for r in records}
    found = Captures(modules_by_path(model, records), signatures, GPU, dedup=True, max_bytes=None)
    with found.first_pass():
        step()
    with isolated(found.calls[1], GPU, CacheFlush(GPU)) as ready:
        ready.run()
    assert set(seen) == {side.cuda_stream}
    assert torch.cuda.current_stream(GPU) != side


def test_a_backward_is_captured_alone_and_launches_at_no_cost() -> None:
    layers = [nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)]
    model = nn.Sequential(*layers).to(GPU)
    x = torch.randn(32, 64, device=GPU)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        torch.autograd.backward(loss)
        model.zero_grad(set_to_none=True)

    step()
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    work = measured(model, step, budget_seconds=6.0)
    found = {(r.path, r.phase, r.condition): r for r in work.records}
    assert {r.skipped for r in work.records} == {None}
    for path in ("", "0", "1", "2", "3"):
        hot = statistics.median(found[path, "backward", "hot"].samples_ns)
        graph = statistics.median(found[path, "backward", "graph"].samples_ns)
        assert 0 < graph < hot  # host-bound: the graph saves the launches
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    step()  # on the usual stream again


def test_a_captured_backward_gives_the_gradients(tmp_path: Path) -> None:
    layer = nn.Linear(128, 128).to(GPU)
    model = nn.Sequential(layer)
    x = torch.randn(64, 128, device=GPU, requires_grad=True)

    def step() -> None:
        torch.autograd.backward(model(x).square().sum())
        model.zero_grad(set_to_none=True)
        x.grad = None

    records = module_tree(model).records
    signatures = {r.path: r.signature for r in records}
    found = Captures(modules_by_path(model, records), signatures, GPU, dedup=True, max_bytes=None)
    with found.first_pass():
        step()
    call = next(c for c in found.calls if c.path == "0")
    with isolated(call, GPU, CacheFlush(GPU)) as ready:
        with capturing_stream(GPU) as stream:
            made = ready.backward("graph")
        kept: list[Any] = []

        def run() -> None:
            kept[:] = [made.run()]

        captured = capture_graph(run, GPU, fresh_casts=False, stream=stream)
        assert captured.reason is None
        inside = kept[0]
        for gradient in inside:
            gradient.zero_()
        captured.replay()
        torch.cuda.synchronize(GPU)
        wanted: Any = made.run()
        assert all(torch.allclose(a, b) for a, b in zip(inside, wanted, strict=True))
        del inside, kept[:]


def test_the_clock_is_read_after_every_block() -> None:
    model, step = model_of()
    work = measured(model, step, budget_seconds=2.0, conditions=("hot",))
    blocks = [b for r in work.records if r.measured_id == r.replay_id for b in r.blocks]
    assert {b.turn for b in blocks} >= {0, 1, 2}
    reading = clock_of(GPU).read()
    if reading.sm_clock_mhz is None:
        pytest.skip("nobody can be asked about the clock here")
    assert all(b.sm_clock_mhz and 100 < b.sm_clock_mhz < 4000 for b in blocks)
    assert all(b.temperature_c is None or 10 < b.temperature_c < 110 for b in blocks)
    (note,) = [n for n in work.notes if n.reason == "clock and temperature"]
    assert "MHz" in note.detail
