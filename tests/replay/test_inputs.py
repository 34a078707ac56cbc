"""Arguments of every shape are rebuilt as they were, or refused by name."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from cb_trace.replay.inputs import ThawedInputs, freeze, leaves_of, plan_inputs
from cb_trace.replay.tensors import UncopyableError

Pair = namedtuple("Pair", "first second")


@dataclass
class Batch:
    ids: torch.Tensor
    size: int
    parts: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    value: torch.Tensor


class Cache:
    """A plain object, as caches of decoders are."""

    def __init__(self, key: torch.Tensor) -> None:
        self.layers = [key]
        self.seen = 4


class Keyed:
    """Known to pytree, with a derived field that pytree does not carry."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.cached: dict[str, Any] = {}


pytree.register_pytree_node(
    Keyed, lambda k: ([k.values], None), lambda children, _: Keyed(next(iter(children)))
)


def thawed(*args: Any, **kwargs: Any) -> ThawedInputs:
    return freeze(plan_inputs(args, kwargs, set())).thaw(own=True)


def test_containers_and_keyword_arguments() -> None:
    x = torch.randn(3)
    out = thawed([x, (1, {"a": x})], OrderedDict(b=x), Pair(x, None), mask=x, scale=0.5)
    (listed, ordered, pair), kwargs = out.args, out.kwargs
    assert torch.equal(listed[0], x)
    assert listed[0] is listed[1][1]["a"] is ordered["b"] is pair.first is kwargs["mask"]
    assert listed[0] is not x
    assert (type(ordered), type(pair), kwargs["scale"]) == (OrderedDict, Pair, 0.5)


def test_dataclasses_and_plain_objects() -> None:
    x = torch.randn(3)
    batch, frozen, cache = thawed(Batch(x, 7, [x[1:]]), Frozen(x), Cache(x)).args
    assert torch.equal(batch.ids, x)
    assert batch.ids is frozen.value is cache.layers[0]
    batch.ids[1] = 9
    assert batch.parts[0][0] == 9
    assert (batch.size, cache.seen) == (7, 4)


def test_cached_fields_of_a_registered_class_are_left_out() -> None:
    keyed = Keyed(torch.randn(3))
    keyed.cached["sum"] = keyed.values.sum()
    (copied,) = thawed(keyed).args
    assert torch.equal(copied.values, keyed.values)
    assert copied.cached == {}


def test_one_object_named_twice_stays_one() -> None:
    shared = [torch.randn(2)]
    first, second = thawed(shared, {"again": shared}).args
    assert second["again"] is first


def test_no_arguments_at_all() -> None:
    out = thawed()
    assert (out.args, out.kwargs) == ((), {})


def test_parameters_and_modules_stay_themselves() -> None:
    layer = torch.nn.Linear(2, 2)
    keep = {id(layer.weight)}
    out = freeze(plan_inputs((layer.weight, layer), {}, keep)).thaw(own=True)
    assert out.args[0] is layer.weight
    assert out.args[1] is layer


def test_a_generator_is_copied_with_its_state() -> None:
    generator = torch.Generator().manual_seed(3)
    out = thawed(generator)
    wanted = torch.rand(4, generator=generator)
    assert torch.equal(torch.rand(4, generator=out.args[0]), wanted)
    out.restore()
    assert torch.equal(torch.rand(4, generator=out.args[0]), wanted)


def test_restore_undoes_grown_containers() -> None:
    cache: dict[str, Any] = {"keys": [torch.ones(2)]}
    out = thawed(cache, Cache(torch.ones(2)))
    out.args[0]["keys"].append(torch.zeros(2))
    out.args[0]["keys"][0].add_(1)
    out.args[1].seen += 1
    out.restore()
    assert [t.tolist() for t in out.args[0]["keys"]] == [[1.0, 1.0]]
    assert out.args[1].seen == 4
    assert len(cache["keys"]) == 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: (i for i in range(3)), "a generator"),
        (lambda: {"deep": [(i for i in range(3))]}, "a generator"),
        (Lock, "_thread.lock"),
    ],
)
def test_what_cannot_be_copied_is_named(make: Any, reason: str) -> None:
    value = make()
    with pytest.raises(UncopyableError, match=reason):
        plan_inputs((value,), {}, set())


def test_a_list_that_holds_itself_is_refused() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(UncopyableError, match="refers to itself"):
        plan_inputs((knot,), {}, set())


def test_signatures_tell_calls_apart() -> None:
    def sign(*args: Any, **kwargs: Any) -> object:
        return plan_inputs(args, kwargs, set()).signature

    x = torch.randn(4, 6)
    assert sign(x, scale=1) == sign(torch.randn(4, 6), scale=1)
    others = [sign(x, scale=2), sign(x.double(), scale=1), sign(x[:, :5], scale=1), sign(x)]
    others += [sign(torch.randn(6, 4).t(), scale=1), sign(x.requires_grad_(), scale=1)]
    assert sign(torch.randn(4, 6), scale=1) not in others
    assert len(set(others)) == len(others)
    assert sign(np.zeros((8, 2))) != sign(np.zeros((4, 2)))
    assert sign(np.zeros((8, 2))) == sign(np.ones((8, 2)))


class Copied(Cache):
    """Says itself how it is copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Copied:
        return Copied(self.layers[0].clone())


def test_objects_with_a_copy_of_their_own_are_told_apart_by_what_they_hold() -> None:
    def sign(size: int) -> object:
        return plan_inputs((Copied(torch.ones(size)),), {}, set()).signature

    assert sign(2) == sign(2) != sign(3)


def test_what_was_set_on_a_tensor_is_carried() -> None:
    x: Any = torch.ones(2)
    x.scale, x.mask = 2.0, torch.zeros(2)
    out = thawed(x, x.mask)
    copied = out.args[0]
    assert (copied.scale, copied.mask.tolist()) == (2.0, [0.0, 0.0])
    assert copied.mask is out.args[1] is not x.mask
    copied.scale = 3.0
    out.restore()
    assert out.args[0].scale == 2.0


def test_leaves_of_a_dataclass_lie_behind_it() -> None:
    batch = Batch(torch.ones(2), 3, [torch.zeros(1)])
    assert leaves_of({"a": batch, "b": 1}) == [batch, batch.ids, 3, batch.parts[0], 1]
    batch.parts.append(batch)
    assert leaves_of(batch)[-1] is batch
