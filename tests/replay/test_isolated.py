"""A module run alone gives what it gave in context, on inputs and in state of every kind."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore

from cb_trace.replay.isolated import SkippedError, isolated
from tests.replay.support import CPU, FLUSH, alone, call_of, captures, in_context

Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    x: torch.Tensor
    scale: float


class Inner(nn.Module):
    """Computes what it is given to."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute
        self.linear = nn.Linear(4, 4)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compute(*args, **kwargs)


class Outer(nn.Module):
    """Calls its inner module on what ``feed`` makes of the input."""

    def __init__(self, inner: nn.Module, feed: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner = inner
        self.feed = feed

    def forward(self, x: torch.Tensor) -> Any:
        args, kwargs = self.feed(x)
        return self.inner(*args, **kwargs)


def _args(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


CASES: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], Any]]] = {
    "keyword only": (lambda *, x, scale: x * scale, lambda x: _args(x=x, scale=2.0)),
    "nothing": (lambda: torch.ones(3), lambda _: _args()),
    "nested": (lambda d: d["a"][0] + d["b"]["c"], lambda x: _args({"a": [x], "b": {"c": x}})),
    "dataclass": (lambda b: b.x * b.scale, lambda x: _args(Batch(x, 3.0))),
    "named tuple": (lambda p: p.left - p.right, lambda x: _args(Pair(x, x.t().t()))),
    "in-place relu": (torch.relu_, lambda x: _args(x + 0)),
    "expanded": (lambda x: x.cumsum(0), lambda x: _args(x[0].expand(5, 4))),
    "overlapping": (lambda x: x.sum(1), lambda x: _args(x.as_strided((3, 8), (2, 1)))),
    "aliases": (lambda x, row: row.add_(1).sum() + x, lambda x: _args(*_row(x + 0))),
    "dropout": (lambda x: nn.functional.dropout(x, 0.5), _args),
    "sparse": (torch.sparse.mm, lambda x: _args(x.to_sparse(), x)),
    "ids": (lambda i, x: x[i], lambda x: _args(torch.tensor([3, 3, 0]), x)),
}


def _row(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x[1]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_output_alone_equals_output_in_context(name: str, grad: bool) -> None:
    model = Outer(Inner(CASES[name][0]), CASES[name][1])
    x = torch.randn(4, 4)

    def step() -> object:
        with torch.set_grad_enabled(grad):
            return model(x)

    before = x.clone()
    torch.manual_seed(5)
    wanted = in_context(model, step, "inner")
    call = call_of(model, step, "inner")
    for _ in range(2):
        assert torch.equal(alone(call), wanted)
    assert torch.equal(x, before)


def test_jagged_input() -> None:
    layer = nn.Linear(4, 2)
    model = Outer(layer, lambda x: _args(_jagged(x)))
    x = torch.randn(8, 4)
    call = call_of(model, lambda: model(x), "inner")
    out = alone(call)
    assert torch.equal(out.values(), layer(x))


def _jagged(x: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 3, 8]))


def test_a_cache_that_grows_is_put_back_before_every_run() -> None:
    def attend(x: torch.Tensor, cache: dict[str, torch.Tensor]) -> torch.Tensor:
        cache["keys"] = torch.cat([cache["keys"], x])
        return cache["keys"].sum(0, keepdim=True) + x

    model = Outer(Inner(attend), lambda x: _args(x, cache={"keys": x[:2]}))
    x = torch.randn(4, 4)
    wanted = in_context(model, lambda: model(x), "inner")
    call = call_of(model, lambda: model(x), "inner")
    with isolated(call, CPU, FLUSH) as ready:
        assert ready.restores
        for _ in range(3):
            ready.prepare()
            assert torch.equal(ready.run(), wanted)  # type: ignore[arg-type]


class KeyValue(nn.Module):
    """Keeps its cache and its position itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))
        self.register_buffer("position", torch.tensor(0))

    cache: torch.Tensor
    position: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache[int(self.position)] = x[0]  # out of range in the fourth call
        self.position += 1
        return self.cache.sum(0)


def test_a_cache_inside_the_module_is_put_back_to_where_the_call_found_it() -> None:
    inner = KeyValue()
    model = Outer(inner, _args)
    model(torch.randn(4, 4))
    x = torch.randn(4, 4)
    with _kept(model):
        wanted = in_context(model, lambda: model(x), "inner")
    with _kept(model):
        call = call_of(model, lambda: model(x), "inner")
    kept = inner.cache.clone()
    with isolated(call, CPU, FLUSH) as ready:
        assert ready.restores
        for _ in range(5):
            ready.prepare()
            assert torch.equal(ready.run(), wanted)  # type: ignore[arg-type]
    assert torch.equal(inner.cache, kept)
    assert inner.position == torch.tensor(1)


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    yield
    model.load_state_dict(saved)


def test_batch_norm_in_training_needs_no_restoring_between_runs() -> None:
    model = Outer(nn.BatchNorm1d(4), _args)
    x = torch.randn(8, 4)
    wanted = in_context(model, lambda: model(x), "inner")
    call = call_of(model, lambda: model(x), "inner")
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    with isolated(call, CPU, FLUSH) as ready:
        assert not ready.restores
        assert torch.equal(ready.run(), wanted)  # type: ignore[arg-type]
    assert all(torch.equal(v, saved[k]) for k, v in model.state_dict().items())


def test_training_flags_are_those_of_the_call() -> None:
    model = Outer(nn.Dropout(0.9), _args)
    x = torch.randn(64, 4)
    call = call_of(model.eval(), lambda: model(x), "inner")
    model.train()
    assert torch.equal(alone(call), x)
    assert model.inner.training


def test_a_module_that_has_grown_since_its_call_is_skipped() -> None:
    grows = nn.Sequential(nn.ReLU())
    model = Outer(grows, _args)
    x = torch.randn(2, 4)
    call = call_of(model, lambda: model(x), "inner")
    grows.append(nn.ReLU())
    with pytest.raises(SkippedError, match="holds other modules than when its call was seen"):
        alone(call)


def test_inference_mode_and_its_tensors() -> None:
    layer = nn.Linear(4, 4)
    model = Outer(layer, lambda x: _args(x + 1))
    x = torch.randn(4, 4)

    def step() -> object:
        with torch.inference_mode():
            return model(x)

    call = call_of(model, step, "inner")
    out = alone(call)
    assert out.is_inference()
    assert torch.equal(out, layer(x + 1))


def _autocast_calls(twice: bool) -> list[Any]:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, layer) if twice else nn.Sequential(layer)

    def step() -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.ones(2, 4))

    return captures(model, step, dedup=False).calls


def test_autocast_casts_the_weights_alone_where_it_did_in_context() -> None:
    root, layer = _autocast_calls(twice=False)
    assert (root.casts, layer.casts) == (True, True)
    assert alone(layer).dtype == torch.bfloat16
    with isolated(layer, CPU, FLUSH) as ready, torch.profiler.profile(acc_events=True) as profiler:
        ready.run()
        ready.run()
    counts = {event.key: event.count for event in profiler.key_averages()}
    assert counts["aten::_to_copy"] == 2 * 3  # input, weight and bias, in each of two runs


def test_a_second_call_finds_the_weights_cast() -> None:
    _, first, second = _autocast_calls(twice=True)
    assert (first.casts, second.casts) == (True, False)
    assert (first.index, second.index) == (0, 1)


@pytest.mark.parametrize(
    ("compute", "feed", "reason"),
    [
        (next, lambda x: _args(i * x for i in range(3)), "inputs cannot be copied: a generator"),
        (lambda x: x[: _Once.left()], _args, "output differs"),
        (lambda x: x / _Once.left_or_raise(), _args, "ValueError: used up"),
    ],
)
def test_skipped_with_the_reason(compute: Any, feed: Any, reason: str) -> None:
    _Once.calls = 0
    model = Outer(Inner(compute), feed)
    call = call_of(model, lambda: model(torch.ones(4, 4)), "inner")
    with pytest.raises(SkippedError, match=reason):
        alone(call)


class _Once:
    """Answers once as it should, then otherwise."""

    calls = 0

    @classmethod
    def left(cls) -> int:
        cls.calls += 1
        return 3 if cls.calls == 1 else 2

    @classmethod
    def left_or_raise(cls) -> int:
        if cls.left() == 2:
            raise ValueError("used up\nmore lines")
        return 1


def test_a_module_that_writes_to_its_parameters_is_skipped() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            inner.linear.weight.add_(1)
        return x

    inner = Inner(write)
    model = Outer(inner, _args)
    call = call_of(model, lambda: model(torch.ones(4, 4)), "inner")
    assert call.reason == "writes to its parameters"


def test_a_module_that_exchanges_a_parameters_data_is_put_back_before_every_run() -> None:
    class Bounded(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data = self.weight.data / 2
            return super().forward(x)

    layer = Bounded(4, 4)
    before = layer.weight.detach().clone()
    call = call_of(nn.Sequential(layer), lambda: layer(torch.ones(2, 4)), "0")
    layer.weight.data = before
    with isolated(call, CPU, FLUSH) as ready:
        assert ready.restores
        ready.prepare()
        assert torch.equal(layer.weight, before)
    assert torch.equal(layer.weight, before)


def test_collectives_are_not_replayed() -> None:
    def reduce(x: torch.Tensor) -> torch.Tensor:
        distributed.all_reduce(x)
        return x

    store = HashStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(4, 4), Inner(reduce))
        with torch.no_grad():
            found = captures(model, lambda: model(torch.ones(4, 4))).calls
    finally:
        distributed.destroy_process_group()
    reasons = {call.path: call.reason for call in found}
    assert reasons == {"": "runs collectives", "0": None, "1": "runs collectives"}


def test_a_call_that_raises_inside_the_step_does_not_confuse_the_others() -> None:
    def fail(_: torch.Tensor) -> torch.Tensor:
        raise ValueError("expected")

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = Inner(fail), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.bad(x)  # type: ignore[no-any-return]
            except ValueError:
                return self.good(x)  # type: ignore[no-any-return]

    model = Tries()
    x = torch.randn(2, 4)
    assert torch.equal(alone(call_of(model, lambda: model(x), "good")), model(x))
    assert torch.equal(alone(call_of(model, lambda: model(x), "")), model(x))
    assert call_of(model, lambda: model(x), "bad").reason == "raises in the step: ValueError"


def test_a_call_that_is_tried_again_counts_again() -> None:
    failures = iter([True, False])

    def sometimes(x: torch.Tensor) -> torch.Tensor:
        if next(failures, False):
            raise ValueError("expected")
        return x + 1

    inner = Inner(sometimes)

    def step() -> None:
        with suppress(ValueError):
            inner(torch.ones(2, 4))
        inner(torch.ones(3, 4))

    found = [(c.path, c.index, c.reason) for c in captures(nn.Sequential(inner), step).calls]
    assert found == [("0", 0, "raises in the step: ValueError"), ("0", 1, None)]
