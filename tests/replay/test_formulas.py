"""FLOPs of single operators: literal figures, and what nobody can count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cb_trace.replay.formulas import Counted, base_name, count, operator_name

aten = torch.ops.aten
HEADS = (1, 12, 1024, 64)  # B, H, T, D of a 124 M model


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def counted(func: Any, *args: Any, out: Any = None, **kwargs: Any) -> Counted:
    return count(func, args, kwargs, out)


def test_a_matrix_product_is_two_mnk() -> None:
    out = meta(3, 5)
    assert counted(aten.mm.default, meta(3, 4), meta(4, 5), out=out) == Counted(120, 120, True)


def test_a_bias_is_left_out() -> None:
    args = (meta(5), meta(3, 4), meta(4, 5))
    assert counted(aten.addmm.default, *args, out=meta(3, 5)) == Counted(120, 120, True)


@pytest.mark.parametrize(("causal", "extended"), [(False, 3_145_728), (True, 1_572_864)])
def test_causal_attention_is_halved_in_extended_only(causal: bool, extended: int) -> None:
    q = meta(*HEADS)
    out = (q, meta(1, 12, 1024), None, None, 1024, 1024, None, None, None)
    flash = aten._scaled_dot_product_flash_attention.default
    found = counted(flash, q, q, q, 0.0, causal, out=out)
    assert found == Counted(3_145_728 * 1024, extended * 1024, True)  # a token, times tokens


def test_the_cpus_attention_is_in_extended_only() -> None:
    q = meta(*HEADS)
    kernel = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert counted(kernel, q, q, q, 0.0, True, out=(q,)) == Counted(0, 1_572_864 * 1024, True)


def test_one_query_over_a_cache_is_no_square() -> None:
    q, k = meta(1, 12, 1, 64), meta(*HEADS)
    kernel = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert counted(kernel, q, k, k, 0.0, True, out=(q,)).extended == 4 * 12 * 1024 * 64


def test_jagged_attention_counts_real_lengths() -> None:
    q = meta(6, 2, 8)  # tokens, heads, width: rows of 4 and 2 tokens
    offsets = torch.tensor([0, 4, 6], dtype=torch.int32)
    flash = aten._flash_attention_forward.default
    args = (q, q, q, offsets, offsets, 4, 4, 0.0, True, False)
    dense = 4 * 2 * 8 * (4 * 4 + 2 * 2)
    assert counted(flash, *args, out=(q,)) == Counted(dense, dense // 2, True)


def test_heads_count_at_their_logical_width() -> None:
    q = meta(1, 1, 8, 4)  # kernels pad it to 8
    kernel = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert counted(kernel, q, q, q, out=(q,)).extended == 4 * 8 * 8 * 4


@pytest.mark.parametrize(
    ("func", "args", "flops"),
    [
        (aten.add.Tensor, (meta(10), meta(10)), 10),
        (aten.add_.Tensor, (meta(10), meta(10)), 10),
        (aten.relu.default, (meta(10),), 10),
        (aten.gelu.default, (meta(10),), 50),
        (aten._softmax.default, (meta(2, 5), 1, False), 50),
        (aten._foreach_add_.Scalar, ([meta(3), meta(4)], 1.0), 7),
    ],
)
def test_elementwise(func: Any, args: Any, flops: int) -> None:
    assert counted(func, *args, out=meta(10)) == Counted(0, flops, True)


def test_an_approximate_gelu_is_its_own_formula() -> None:
    assert counted(aten.gelu.default, meta(10), out=meta(10), approximate="tanh").extended == 90


def test_reductions_count_what_goes_in() -> None:
    assert counted(aten.sum.dim_IntList, meta(4, 6), [1], out=meta(4)).extended == 24
    assert counted(aten.mean.dim, meta(4, 6), [1], out=meta(4)).extended == 28


@pytest.mark.parametrize(("weight", "bias", "each"), [(1, 1, 8), (1, 0, 7), (0, 0, 6)])
def test_layer_norm(weight: int, bias: int, each: int) -> None:
    affine = [meta(6) if given else None for given in (weight, bias)]
    found = counted(aten.native_layer_norm.default, meta(4, 6), [6], *affine, 1e-5)
    assert found.extended == 24 * each


def test_batch_norm_in_eval_only_normalises() -> None:
    args = (meta(2, 3, 4), meta(3), meta(3), meta(3), meta(3))
    norm = aten.native_batch_norm.default
    assert counted(norm, *args, False, 0.1, 1e-5).extended == 24 * 4
    assert counted(norm, *args, True, 0.1, 1e-5).extended == 24 * 8


@pytest.mark.parametrize(("mode", "flops"), [(0, 7 * 8), (1, 7 * 8 + 3 * 8)])
def test_an_embedding_bag_adds_every_row(mode: int, flops: int) -> None:
    ids, offsets = torch.zeros(7, dtype=torch.int64), torch.tensor([0, 2, 5])
    args = (meta(100, 8), ids, offsets, False, mode)
    found = counted(aten._embedding_bag.default, *args, out=(meta(3, 8),))
    assert found == Counted(0, flops, True)


def test_weights_of_ids_are_a_product_more() -> None:
    ids, offsets = torch.zeros(7, dtype=torch.int64), torch.tensor([0, 2, 5])
    args = (meta(100, 8), ids, offsets, False, 0, False, torch.ones(7))
    assert counted(aten._embedding_bag.default, *args, out=(meta(3, 8),)).extended == 2 * 7 * 8


def test_moving_data_is_no_work_but_known() -> None:
    marker = torch.ops.profiler._record_function_exit._RecordFunction
    for func in (marker, aten.view.default, aten.t.default, aten.cat.default, aten.zero_.default):
        assert counted(func, meta(4), out=meta(4)) == Counted(0, 0, True), func


def test_what_no_formula_covers_is_not_known() -> None:
    assert counted(aten.linalg_qr.default, meta(4, 4)) == Counted(0, 0, False)


def test_a_formula_that_fails_leaves_the_call_uncounted() -> None:
    assert counted(aten.mm.default, meta(3), meta(4, 5)) == Counted(0, 0, False)


def test_names() -> None:
    assert operator_name(aten.add_.Tensor) == "aten::add_"
    assert base_name(aten.add_.Tensor) == "add"
    assert base_name(aten.__and__.Tensor) == "__and__"
