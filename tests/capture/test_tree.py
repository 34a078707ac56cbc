"""Canonical paths, sizes and signatures of a module tree."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from cb_trace.capture.tree import module_tree
from cb_trace.errors import CbTraceError
from cb_trace.replay.tree import unwrapped
from tests.capture.models import Everything


def test_paths_parents_and_order_follow_named_modules() -> None:
    model = Everything()
    tree = module_tree(model)
    names = [name for name, _ in model.named_modules()]
    assert [r.path for r in tree.records] == names
    assert [r.ordinal for r in tree.records] == list(range(len(names)))
    by_path = {r.path: r for r in tree.records}
    assert (by_path[""].parent, by_path[""].depth) == (None, 0)
    assert (by_path["norm"].parent, by_path["norm"].depth) == ("", 1)
    assert (by_path["branches.1.act"].parent, by_path["branches.1.act"].depth) == ("branches.1", 3)
    assert by_path["branches.1.act"].class_name == "ReLU"
    assert all(tree.modules[path] is module for path, module in model.named_modules())


def test_a_shared_module_is_one_record_with_its_other_paths() -> None:
    inner = nn.Sequential(nn.Linear(2, 2))
    model = nn.ModuleDict({"a": inner, "b": nn.Sequential(inner)})
    aliases = {r.path: r.aliases for r in module_tree(model).records}
    assert aliases == {"": [], "a": ["b.0"], "a.0": ["b.0.0"], "b": []}


def test_a_module_that_holds_itself_ends() -> None:
    model = nn.Sequential(nn.ReLU())
    model.add_module("self", model)
    assert [r.path for r in module_tree(model).records] == ["", "0"]


@pytest.mark.parametrize("alias", [False, True])
def test_two_modules_under_one_path_are_refused(alias: bool) -> None:
    """Only names put into ``_modules`` by hand, empty or with a dot, can do that."""
    inner = nn.ReLU()
    model = nn.Sequential(nn.ModuleDict({"b": inner}))
    other = nn.Linear(2, 2)
    if alias:
        model.add_module("first", other)
    model._modules["0.b"] = other
    with pytest.raises(CbTraceError, match=r"the path '0\.b': a ReLU and a Linear") as caught:
        module_tree(model)
    assert "\n" not in str(caught.value)
    model._modules["0.b"] = inner  # one module, twice at one place
    assert {"", "0", "0.b"} <= {r.path for r in module_tree(model).records}


def test_an_empty_name_is_the_path_of_its_parent() -> None:
    model = nn.Sequential(nn.Sequential(nn.ReLU()))
    model[0]._modules[""] = nn.GELU()
    assert [r.path for r in module_tree(model).records] == ["", "0", "0.0", "0."]
    model._modules[""] = nn.GELU()
    with pytest.raises(CbTraceError, match="the path '': a Sequential and a GELU"):
        module_tree(model)


def test_sizes_are_inclusive_and_count_a_shared_parameter_once() -> None:
    by_path = {r.path: r for r in module_tree(Everything()).records}
    linear = 8 * 8 + 8
    assert by_path["twice"].parameters == linear
    assert by_path[""].parameters == 2 * 8 + 2 * linear + linear + 8 + 12
    assert by_path[""].parameter_bytes == 4 * by_path[""].parameters
    assert by_path["norm"].buffer_bytes == 4 * 8 + 4 * 8 + 8  # mean, variance, int64 count
    assert by_path[""].buffer_bytes == by_path["norm"].buffer_bytes + 4 + 4 * 8


def test_parameters_belong_to_their_first_module() -> None:
    model = Everything()
    model.never.requires_grad_(False)
    found = {p.name: p for p in module_tree(model).parameters}
    assert set(found) == {name for name, _ in model.named_parameters()}
    assert found["twice.weight"].path == "twice"
    assert (found["twice.weight"].numel, found["twice.weight"].bytes) == (64, 256)
    assert found["twice.weight"].trainable
    assert not found["never.bias"].trainable


def signature(module: nn.Module) -> str:
    return module_tree(module).records[0].signature


def test_signature_is_class_and_configuration_not_values() -> None:
    assert signature(nn.Linear(2, 3)) == signature(nn.Linear(2, 3))
    assert signature(nn.Linear(2, 3)) != signature(nn.Linear(2, 4))
    assert signature(nn.Linear(2, 3)) != signature(nn.Linear(2, 3, bias=False))
    assert signature(nn.Linear(2, 3)) != signature(nn.Linear(2, 3, dtype=torch.bfloat16))
    assert signature(nn.Linear(2, 3)) != signature(nn.Linear(2, 3).requires_grad_(False))
    assert signature(nn.Dropout(0.1)) != signature(nn.Dropout(0.2))
    assert signature(nn.Dropout(0.1)) != signature(nn.Dropout(0.1).eval())
    assert signature(nn.ReLU()) != signature(nn.GELU())
    assert signature(nn.Sequential(nn.ReLU())) != signature(nn.Sequential(nn.GELU()))


class Headed(nn.Module):
    def __init__(self, heads: int, layer_idx: int) -> None:
        super().__init__()
        self.heads, self.layer_idx = heads, layer_idx


def test_plain_attributes_count_but_not_a_layer_number() -> None:
    assert signature(Headed(4, 0)) != signature(Headed(8, 0))
    assert signature(Headed(4, 0)) == signature(Headed(4, 1))


def test_wrappers_leave_no_trace_in_paths() -> None:
    plain = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    inner = plain[1]
    plain[1] = checkpoint_wrapper(inner)
    model = cast("nn.Module", torch.compile(plain, backend="eager"))
    tree = module_tree(model)
    assert [(r.path, r.class_name) for r in tree.records] == [
        ("", "Sequential"), ("0", "Linear"), ("1", "Sequential"), ("1.0", "ReLU"),
    ]  # fmt: skip
    assert tree.modules["1"] is inner
    assert unwrapped(model) is plain
    parallel = nn.DataParallel(nn.Sequential(nn.ReLU()))
    assert [r.path for r in module_tree(parallel).records] == ["", "0"]
    assert [p.name for p in tree.parameters] == ["0.weight", "0.bias"]


def test_a_module_named_module_stays() -> None:
    tree = module_tree(nn.ModuleDict({"module": nn.ReLU()}))
    assert [r.path for r in tree.records] == ["", "module"]
