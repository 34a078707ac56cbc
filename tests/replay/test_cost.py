"""Counted work of whole models: literal figures of the shapes in use, and the invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from cb_trace.accounts import CostRecord
from cb_trace.bundle import Note
from cb_trace.capture.tree import module_tree
from cb_trace.providers import load
from cb_trace.replay.cost import StepAccount

CPU = torch.device("cpu")
Key = tuple[str, str]


def account(model: nn.Module, step: Callable[[], object], *, grad: bool = False) -> StepAccount:
    found = StepAccount(model, module_tree(model).records, CPU)
    with torch.set_grad_enabled(grad):
        found.run(step)
    return found


def by_module(costs: list[CostRecord]) -> dict[Key, CostRecord]:
    """The records; none of these models has two for one module, but the root in training."""
    found: dict[Key, CostRecord] = {}
    for cost in costs:
        found.setdefault((cost.path, cost.phase), cost)
    return found


def forward_of(name: str, **settings: Any) -> dict[str, CostRecord]:
    workload = load(name, settings=settings)
    step = lambda: workload.model(*workload.args, **workload.kwargs)  # noqa: E731
    found = account(workload.model, step)
    assert found.notes == []
    return {path: cost for (path, _), cost in by_module(found.costs).items()}


def test_nanogpt_counts_what_the_model_is_known_for() -> None:
    tokens, width, seq = 64, 768, 64
    costs = forward_of("nanogpt", batch=1, seq=seq, layers=1, width=width, heads=12, vocab=512)
    flops = {path: cost.flops / tokens for path, cost in costs.items() if cost.flops}
    assert {path: flops[path] for path in (
        "h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.mlp.c_fc", "h.0.mlp.c_proj", "lm_head",
    )} == {
        "h.0.attn.c_attn": 3_538_944, "h.0.attn.c_proj": 1_179_648, "h.0.mlp.c_fc": 4_718_592,
        "h.0.mlp.c_proj": 4_718_592, "lm_head": 2 * width * 512,
    }  # fmt: skip
    attention = costs["h.0.attn"].flops_extended - costs["h.0.attn"].flops
    assert attention == tokens * 4 * seq * width // 2  # causal
    assert costs["h.0.ln_1"].flops_extended == tokens * width * 8
    assert costs["h.0.mlp.gelu"].flops_extended == tokens * 4 * width * 9
    assert all(cost.uncounted == {} for cost in costs.values())
    assert costs[""].flops_by_dtype == {"fp32": costs[""].flops}


def test_deepfm_counts_what_the_model_is_known_for() -> None:
    batch, fields, width = 2, 26, 512
    costs = forward_of(
        "deepfm", batch=batch, dense=1024, hidden=4096, width=width, tables=fields, rows_min=10,
        rows_max=10, pooling=2,
    )  # fmt: skip
    assert costs["dense_arch"].flops == batch * 12_582_912
    assert costs["inter_arch.deep_fm"].flops == batch * 14_155_776
    assert costs["over_arch"].flops == batch * 2 * (2 * width + 1)
    assert costs["inter_arch.fm"].flops == 0
    assert costs["inter_arch.fm"].flops_extended == batch * (3 * (fields + 1) * width + 3)
    ids = load("deepfm", settings={"preset": "tiny"}).args[1]
    tiny = forward_of("deepfm", preset="tiny")
    assert tiny["sparse_arch"].flops_extended == sum(len(i) for i, _ in ids) * 32  # B·L·D


def test_embedding_bytes() -> None:
    bag = nn.EmbeddingBag(100, 3, mode="sum", include_last_offset=True)  # rows of 12 bytes
    ids, offsets = torch.tensor([7, 7, 7, 2, 9]), torch.tensor([0, 4, 5])
    found = account(bag, lambda: bag(ids, offsets)).costs[0]
    given, out = 5 * 8 + 3 * 8, 2 * 12
    assert found.bytes_compulsory == 3 * 12 + given + out  # three distinct rows
    aside = 2 * 8  # bag sizes, which the operator hands out as well
    assert found.bytes_requested - (5 * 32 + given + out) in range(aside * 4)
    assert found.flops_extended == 5 * 3


def test_linear_bytes() -> None:
    linear = nn.Linear(8, 4)
    cost = account(linear, lambda: linear(torch.ones(2, 8))).costs[0]
    moved = 4 * (2 * 8 + 8 * 4 + 4 + 2 * 4)
    assert (cost.bytes_compulsory, cost.bytes_requested) == (moved, moved)


@pytest.mark.parametrize(
    ("module", "given", "compulsory", "requested"),
    [
        (nn.Flatten(), torch.ones(2, 3, 4), 0, 0),  # a view
        (nn.ReLU(), torch.ones(10), 80, 80),
        (nn.ReLU(inplace=True), torch.ones(10), 80, 80),
        (nn.ReLU(), torch.ones(10).expand(5, 10), 40 + 200, 40 + 200),  # reads ten numbers
        (nn.Sequential(nn.ReLU(), nn.ReLU()), torch.ones(10), 80, 160),
    ],
)
def test_bytes_cross_the_border_once(
    module: nn.Module, given: Tensor, compulsory: int, requested: int
) -> None:
    cost = next(c for c in account(module, lambda: module(given)).costs if c.path == "")
    assert (cost.bytes_compulsory, cost.bytes_requested) == (compulsory, requested)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.as_tensor(self.down(torch.relu(self.up(x))))


class Net(nn.Module):
    """Two blocks, the second recomputed in the backward, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x)
        return torch.as_tensor(checkpoint(self.b, hidden, use_reentrant=False)).square().mean()


def train_step(model: nn.Module) -> Callable[[], object]:
    given, optimizer = torch.ones(4, 8), torch.optim.SGD(model.parameters(), lr=0.0)

    def step() -> None:
        model(given).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_backward_and_recomputation_belong_to_their_modules() -> None:
    net = Net()
    costs = by_module(account(net, train_step(net), grad=True).costs)
    up = 2 * 4 * 8 * 32  # of the forward, up or down
    flops = {key: cost.flops for key, cost in costs.items()}
    assert flops["a.up", "forward"] == up
    assert flops["a.up", "backward"] == up  # of the weight; the input needs no gradient
    assert flops["a.down", "backward"] == 2 * up
    assert flops["a", "backward"] == 3 * up
    assert flops["b", "backward"] == 4 * up
    # torch stops once it has what was not saved: the last Linear is not run again
    assert flops["b", "recompute"] == flops["", "recompute"] == up
    assert ("a", "recompute") not in flops
    assert flops["", "backward"] == 7 * up
    assert flops["", "forward"] == 4 * up
    assert costs["", "optimizer"].flops_extended > 0


class Again(nn.Module):
    """Recomputed by a checkpoint that starts a backward of its own, ``depth`` within one another;
    called twice.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)
        self.inner = Again(depth - 1) if depth else nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.inner, self.layer(x), use_reentrant=True)
        return torch.as_tensor(hidden)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # the inner ones
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_backward_within_the_backward_belongs_to_its_modules(depth: int) -> None:
    net, once = Again(depth), 2 * 4 * 8 * 8
    given = torch.ones(4, 8, requires_grad=True)

    def step() -> None:
        net(net(given)).sum().backward()

    found = account(net, step, grad=True).costs
    flops: Counter[tuple[str, str]] = Counter()
    for cost in found:
        flops[cost.path, cost.phase] += cost.flops * cost.calls
    layers = [".".join(["inner"] * level + ["layer"]) for level in range(depth + 1)]
    for level, path in enumerate([*layers, ".".join(["inner"] * (depth + 1))]):
        assert flops[path, "forward"] == 2 * once
        assert flops[path, "backward"] == 2 * 2 * once
        assert flops[path, "recompute"] == 2 * level * once
        assert sum(c.calls for c in found if (c.path, c.phase) == (path, "backward")) == 2
    assert flops["", "backward"] == 2 * 2 * (depth + 2) * once
    assert not [c for c in found if c.call_index < 0 and c.flops]


def test_the_total_is_that_of_torchs_counter() -> None:
    net = Net()
    step = train_step(net)
    with FlopCounterMode(display=False) as counter:
        step()
    costs = [cost for cost in account(net, step, grad=True).costs if cost.path == ""]
    assert sum(cost.calls * cost.flops for cost in costs) == counter.get_total_flops()


@pytest.mark.parametrize("name", ["nanogpt", "deepfm"])
def test_parents_do_no_less_than_their_children(name: str) -> None:
    workload = load(name)
    tree = module_tree(workload.model).records
    costs = {
        path: (cost.flops, cost.flops_extended, cost.bytes_requested)
        for path, cost in forward_of(name).items()
    }
    for record in tree:
        inner = [costs[r.path] for r in tree if r.parent == record.path and r.path in costs]
        if record.path in costs:
            for own, parts in zip(costs[record.path], zip(*inner, strict=True), strict=False):
                assert own >= sum(parts), record.path


def test_a_second_count_agrees() -> None:
    net = Net()
    step = train_step(net)
    assert account(net, step, grad=True).costs == account(net, step, grad=True).costs


class Shared(nn.Module):
    """One Linear under three names: calls count, not places."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(10, 10, bias=False)
        self.two = nn.Sequential(self.one)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.two(self.one(x)))


def test_a_shared_module_counts_by_calls() -> None:
    net = Shared()
    given = torch.ones(1, 10)
    costs = account(net, lambda: net(given)).costs
    found = {c.path: (c.calls, c.flops) for c in costs}
    assert found == {"": (1, 400), "one": (2, 200), "two": (1, 200)}


def test_calls_of_other_sizes_are_records_of_their_own() -> None:
    linear = nn.Linear(4, 4, bias=False)
    net = nn.ModuleList([linear])

    def step() -> None:
        for rows in (1, 2, 1):
            linear(torch.ones(rows, 4))

    costs = [c for c in account(net, step).costs if c.path == "0"]
    assert [(c.call_index, c.calls, c.flops) for c in costs] == [(0, 2, 32), (1, 1, 64)]


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(torch.linalg.qr(x).R)


def test_operators_without_a_formula_are_named() -> None:
    net = nn.Sequential(nn.Linear(4, 4), Odd())
    costs = by_module(account(net, lambda: net(torch.ones(4, 4))).costs)
    assert costs["1", "forward"].uncounted == {"aten::linalg_qr": 1}
    assert costs["", "forward"].uncounted == {"aten::linalg_qr": 1}
    assert costs["0", "forward"].uncounted == {}


def test_inference_mode_counts_alike() -> None:
    net, given = nn.Linear(8, 4), torch.ones(2, 8)

    def step() -> object:
        with torch.inference_mode():
            return net(given)

    assert [(c.flops, c.uncounted) for c in account(net, step).costs] == [(128, {})]


def test_autocast_counts_in_its_precision() -> None:
    net, given = nn.Linear(8, 4), torch.ones(2, 8)

    def step() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return net(given)

    assert [c.flops_by_dtype for c in account(net, step).costs] == [{"bf16": 128}]


def test_a_subclass_counts_by_what_it_is_made_of() -> None:
    net = nn.Linear(8, 4)
    rows = [torch.ones(2, 8), torch.ones(3, 8)]
    given = torch.nested.nested_tensor(rows, layout=torch.jagged)
    found = account(net, lambda: net(given))
    assert [(c.flops, c.uncounted) for c in found.costs] == [(2 * 5 * 8 * 4, {})]
    assert found.notes == []


def test_a_step_that_refuses_is_a_note() -> None:
    net = nn.Linear(2, 2)

    def step() -> None:
        raise ValueError("no hooks, please")

    found = account(net, step)
    assert not found.costs
    assert not found.memories
    assert found.notes == [Note(reason="work not counted", detail="ValueError: no hooks, please")]


def test_nothing_is_left_behind() -> None:
    net = Net()
    account(net, train_step(net), grad=True)
    assert not any(
        hooks for module in net.modules() for hooks in (
            module._forward_hooks, module._forward_pre_hooks, module._backward_hooks
        )
    )  # fmt: skip
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_work_outside_every_call_is_the_roots_and_no_call() -> None:
    net, given = nn.Linear(4, 4, bias=False), torch.ones(2, 4)
    costs = account(net, lambda: net(given).square()).costs
    assert [(c.call_index, c.calls, c.flops, c.flops_extended) for c in costs] == [
        (0, 1, 64, 64), (-1, 1, 0, 8),
    ]  # fmt: skip
