"""Copies of tensors: same bytes, same layout, same address modulo 256, same flags."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.replay.inputs import freeze, plan_inputs
from cb_trace.replay.tensors import UncopyableError

Layout = tuple[Any, ...]


def copies(*tensors: torch.Tensor, own: bool = True) -> tuple[torch.Tensor, ...]:
    return freeze(plan_inputs(tensors, {}, set())).thaw(own=own).args


def layout(tensor: torch.Tensor) -> Layout:
    where = (tensor.storage_offset(), tensor.data_ptr() % 256)
    flags = (tensor.requires_grad, tensor.is_leaf, tensor.is_inference(), tensor.is_conj())
    return (tensor.dtype, tuple(tensor.shape), tensor.stride(), where, flags)


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """Any strided view: permuted, stepped, expanded, overlapping, empty, at any offset."""
    rank = draw(st.integers(0, 4))
    size = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    stride = draw(st.lists(st.integers(0, 7), min_size=rank, max_size=rank))
    offset = draw(st.integers(0, 40))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]))
    base = torch.arange(200).to(dtype)
    return base.as_strided(size, stride, offset)


@settings(deadline=None, max_examples=60)
@given(views(), st.booleans())
def test_a_copy_has_the_layout_and_values_of_the_original(view: torch.Tensor, own: bool) -> None:
    (copied,) = copies(view, own=own)
    assert layout(copied) == layout(view)
    assert torch.equal(copied, view)
    if view.numel():
        assert copied.data_ptr() != view.data_ptr()


@settings(deadline=None, max_examples=60)
@given(views(), views())
def test_writing_to_a_copy_leaves_the_original_and_the_pristine(
    first: torch.Tensor, second: torch.Tensor
) -> None:
    thawed = freeze(plan_inputs((first, second), {}, set())).thaw(own=True)
    wanted = [first.clone(), second.clone()]
    addresses = [t.data_ptr() for t in thawed.args]
    for tensor in thawed.args:
        if tensor.numel():  # through the storage, since overlapping views refuse a write
            whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            whole.bitwise_not_()
    changed = bool(first.numel() or second.numel())
    assert thawed.mutated() is changed
    thawed.restore()
    assert not thawed.mutated()
    assert [t.data_ptr() for t in thawed.args] == addresses
    assert all(torch.equal(t, w) for t, w in zip(thawed.args, wanted, strict=True))
    assert torch.equal(first, wanted[0])


def test_tensors_of_one_storage_share_one_again() -> None:
    base = torch.randn(3, 4)
    same, row, other = copies(base, base[1], torch.randn(4))
    row.fill_(5)
    assert torch.equal(same[1], torch.full((4,), 5.0))
    assert other.untyped_storage().data_ptr() != row.untyped_storage().data_ptr()


def test_a_far_part_of_a_large_storage_is_copied_without_the_rest() -> None:
    base = torch.zeros(4 << 20)
    row = base[3 << 20 :][:7]
    row.copy_(torch.arange(7.0))
    frozen = freeze(plan_inputs((row,), {}, set()))
    assert frozen.copies[0].data.numel() < 1024
    (copied,) = frozen.thaw(own=True).args
    assert torch.equal(copied, row)
    assert copied.data_ptr() % 256 == row.data_ptr() % 256


def test_grad_flags_are_kept_and_a_non_leaf_takes_an_in_place_write() -> None:
    leaf = torch.randn(2, 3, requires_grad=True)
    inner = (leaf * 2).expand(4, 2, 3)
    own_leaf, own_inner, relu_input = copies(leaf, inner, leaf * 3)
    assert layout(own_leaf) == layout(leaf)
    assert layout(own_inner) == layout(inner)
    torch.autograd.backward(relu_input.relu_().sum())
    assert leaf.grad is None


def test_an_inference_tensor_stays_one() -> None:
    with torch.inference_mode():
        made = torch.randn(3)
    (copied,) = copies(made)
    assert copied.is_inference()
    assert torch.equal(copied, made)


def test_conjugate_views_keep_their_bit() -> None:
    value = torch.randn(4, dtype=torch.complex64).conj()
    (copied,) = copies(value)
    assert layout(copied) == layout(value)
    assert torch.equal(copied, value)


@pytest.mark.parametrize("grad", [False, True])
def test_sparse(grad: bool) -> None:
    value = torch.eye(4).to_sparse().requires_grad_(grad)
    (copied,) = copies(value)
    assert (copied.layout, copied.requires_grad) == (torch.sparse_coo, grad)
    assert copied.is_coalesced()
    assert torch.equal(copied.detach().to_dense(), torch.eye(4))


def test_compressed_sparse() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse CSR is a beta of torch
        value = torch.eye(4).to_sparse_csr()
    (copied,) = copies(value)
    assert copied.layout == torch.sparse_csr
    assert torch.equal(copied.to_dense(), torch.eye(4))


@pytest.mark.parametrize("grad", [False, True])
def test_jagged_tensors_that_share_their_raggedness_still_do(grad: bool) -> None:
    parts = [torch.randn(3, 4), torch.randn(5, 4)]
    value = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=grad)
    first, second = copies(value, value * 2)
    assert (first.is_leaf, second.is_leaf) == (True, not grad)
    total = first + second  # fails where the two have different raggedness
    assert torch.equal(total.detach().unbind()[1], 3 * parts[1])


def test_strided_nested() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype of torch
        value = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)])
    (copied,) = copies(value)
    assert copied.is_nested
    assert all(map(torch.equal, copied.unbind(), value.unbind()))


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised(per_channel: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in torch 2.13
        values, scales = torch.randn(4, 5), torch.tensor([0.1, 0.2, 0.3, 0.4])
        if per_channel:
            zeros = torch.zeros(4, dtype=torch.long)
            value = torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
        else:
            value = torch.quantize_per_tensor(values, 0.1, 3, torch.quint8)
        (copied,) = copies(value)
        assert copied.qscheme() == value.qscheme()
        assert torch.equal(copied.int_repr(), value.int_repr())
        assert torch.equal(copied.dequantize(), value.dequantize())


def test_a_meta_tensor_has_nothing_to_copy() -> None:
    with pytest.raises(UncopyableError, match="meta tensor"):
        copies(torch.empty(3, device="meta"))


def test_ids_that_repeat_differently_are_different_inputs() -> None:
    spread, skewed = torch.arange(64), torch.arange(64) % 4
    again = torch.arange(64).flip(0)
    signatures = [plan_inputs((ids,), {}, set()).signature for ids in (spread, skewed, again)]
    assert signatures[0] != signatures[1]
    assert signatures[0] == signatures[2]
