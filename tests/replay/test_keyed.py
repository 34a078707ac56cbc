"""KeyedJaggedTensor as input: taken apart by pytree, rebuilt without what it has cached."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from cb_trace.replay.inputs import freeze, plan_inputs
from tests.replay.support import alone, call_of, captures, in_context


class Keyed:
    """Stands in for torchrec's class: the same fields to pytree, the same caches beside them."""

    def __init__(self, keys: list[str], *, values: Any, lengths: Any, offsets: Any = None) -> None:
        self._keys, self._values, self._lengths, self._offsets = keys, values, lengths, offsets
        self._length_per_key: list[int] | None = None
        self._jt_dict: dict[str, torch.Tensor] | None = None

    def lengths_per_key(self) -> list[int]:
        """Computed once, as torchrec's ``sync`` does; costs an operator and a read back."""
        if self._length_per_key is None:
            self._length_per_key = self._lengths.view(len(self._keys), -1).sum(1).tolist()
        return self._length_per_key

    def to_dict(self) -> dict[str, torch.Tensor]:
        """Values by key; what was made is kept."""
        if self._jt_dict is None:
            parts = torch.split(self._values, self.lengths_per_key())
            self._jt_dict = dict(zip(self._keys, parts, strict=True))
        return self._jt_dict


def _flatten(keyed: Keyed) -> tuple[list[Any], list[str]]:
    return [keyed._values, keyed._lengths, keyed._offsets], keyed._keys


def _unflatten(children: Any, keys: list[str]) -> Keyed:
    values, lengths, offsets = children
    return Keyed(keys, values=values, lengths=lengths, offsets=offsets)


pytree.register_pytree_node(Keyed, _flatten, _unflatten)


class Pools(nn.Module):
    """Sums the rows of each key; asks for the dictionary, which is then cached in the input."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, features: Any) -> torch.Tensor:
        parts = [self.table(ids).sum(0) for ids in features.to_dict().values()]
        return torch.stack(parts)


def keyed(values: list[int] | None = None) -> Keyed:
    ids = torch.tensor(values or [1, 2, 3, 3, 5, 9])
    return Keyed(["a", "b"], values=ids, lengths=torch.tensor([2, 1, 0, 3]))


def test_values_and_lengths_are_copied_and_caches_are_not() -> None:
    given = keyed()
    given.to_dict()
    (copied,) = freeze(plan_inputs((given,), {}, set())).thaw(own=True).args
    assert copied._keys == ["a", "b"]
    assert torch.equal(copied._values, given._values)
    assert copied._values is not given._values
    assert (copied._offsets, copied._length_per_key, copied._jt_dict) == (None, None, None)


def test_a_module_alone_gives_what_it_gave_and_finds_the_cache_empty_again() -> None:
    model = nn.Sequential(Pools())
    seen: list[bool] = []
    model[0].register_forward_pre_hook(lambda _m, args: seen.append(args[0]._jt_dict is None))

    def step() -> object:
        return model(keyed())

    wanted = in_context(model, step, "0")
    call = call_of(model, step, "0")
    seen.clear()
    assert torch.equal(alone(call), wanted)
    assert torch.equal(alone(call), wanted)
    assert all(seen)


def test_keys_and_reuse_tell_inputs_apart() -> None:
    def sign(*values: int, keys: tuple[str, ...] = ("a", "b")) -> object:
        made = keyed(list(values))
        made._keys = list(keys)
        return plan_inputs((made,), {}, set()).signature

    same = sign(1, 2, 3, 4, 5, 6)
    assert sign(6, 5, 4, 3, 2, 1) == same
    assert sign(1, 1, 1, 1, 1, 1) != same
    assert sign(1, 2, 3, 4, 5, 6, keys=("a", "c")) != same


# Passed with torch 2.13 on a CPU after pip install --no-deps torchrec==1.9.2 fbgemm-gpu-cpu==1.8.0
# tensordict==0.15.3 torchmetrics==1.9.0 iopath==0.1.10 pyre-extensions==0.0.32 pyvers==0.2.3
# cloudpickle==3.1.3 typing-inspect==0.9.0; the other fbgemm-gpu-cpu from 1.6.0 on do not load.
@pytest.mark.filterwarnings("ignore")  # of importing it
def test_torchrecs_own_class() -> None:
    try:
        torchrec: Any = import_module("torchrec")
    except (ImportError, OSError) as error:  # its kernels are built for one torch each
        pytest.skip(f"no torchrec that works here: {error}")
    table = torchrec.EmbeddingBagConfig(
        name="t", embedding_dim=4, num_embeddings=10, feature_names=["a", "b"]
    )
    model = nn.Sequential(torchrec.EmbeddingBagCollection(tables=[table]))

    def given() -> Any:
        return torchrec.KeyedJaggedTensor(
            keys=["a", "b"],
            values=torch.tensor([1, 2, 3, 3, 5, 9]),
            lengths=torch.tensor([2, 1, 0, 3]),
        )

    def step() -> object:
        features = given()
        features.sync()
        return model(features)

    (root, *_) = captures(model, step).calls
    assert root.reason is None
    assert torch.equal(alone(root).values(), model(given()).values())
