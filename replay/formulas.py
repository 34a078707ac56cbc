"""FLOPs of one operator call: torch's own registry, and our formulas for what it leaves out.

Ours count one FLOP an arithmetic operation of the textbook formula, one a transcendental call, and
nothing for moving data. They belong to ``flops_extended`` only. Shapes are the logical ones:
kernels pad head sizes (pytorch/pytorch#134804).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Bound = Mapping[str, Any]  # arguments by the names of the schema, defaults left out
Formula = Callable[[Bound, Any], int]  # arguments, result → FLOPs


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs of one operator call; ``known`` is False where no formula covers the operator."""

    flops: int
    extended: int
    known: bool


def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Counted:
    """Count one call. A formula that fails on odd arguments leaves the call uncounted."""
    packet = getattr(func, "_overloadpacket", func)
    name = base_name(func)
    try:
        bound = bind(func, args, kwargs)
        if packet in flop_registry:
            flops = int(flop_registry[packet](*args, **kwargs, out_val=out))
            return Counted(flops, flops // 2 if _is_causal(name, bound) else flops, known=True)
        formula = _FORMULAS.get(name)
        if formula is not None:
            return Counted(0, int(formula(bound, out)), known=True)
    except Exception:  # a formula of torch asserts, or a shape is none
        return Counted(0, 0, known=False)
    known = name in _NO_WORK or name.startswith("profiler::") or moves_nothing(func)
    return Counted(0, 0, known=known)


def base_name(func: Any) -> str:
    """An operator's name without overload and in-place mark: ``aten::add_.Tensor`` is ``add``."""
    full = operator_name(func).removeprefix("aten::").removeprefix("prims::")
    return full.removesuffix("_") if not full.endswith("__") else full


def operator_name(func: Any) -> str:
    """An operator's name as a Kineto trace has it: ``aten::add_``."""
    schema = getattr(func, "_schema", None)
    return str(schema.name) if schema is not None else str(func)


def bind(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the operator's schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return dict(kwargs)
    names = (argument.name for argument in schema.arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def moves_nothing(func: Any) -> bool:
    """Whether an operator only gives another view of its input."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.returns:
        return False
    aliases = [value.alias_info for value in schema.returns]
    return all(alias is not None and not alias.is_write for alias in aliases)


# torch gives these no types
_attention: Callable[..., int] = sdpa_flop_count
_attention_backward: Callable[..., int] = sdpa_backward_flop_count

# --- attention --------------------------------------------------------------------------------


def _is_causal(name: str, bound: Bound) -> bool:
    """Causal over a square, where half of the scores are masked; jagged rows are squares each."""
    causal = bool(bound.get("is_causal")) or bool(bound.get("custom_mask_type"))
    query, key = bound.get("query"), bound.get("key")
    if not causal or query is None or key is None:
        return False
    for lengths in (("cum_seq_q", "cum_seq_k"), ("cu_seqlens_q", "cu_seqlens_k")):
        one, other = (bound.get(length) for length in lengths)
        if one is not None and other is not None:
            return bool(torch.equal(one, other))
    # B × S × H × D for the kernels themselves, B × H × S × D above them
    at = 1 if name.startswith(("_flash_attention", "_efficient_attention")) else -2
    return int(query.shape[at]) == int(key.shape[at])


def _cpu_attention(bound: Bound, _: Any) -> int:
    """The CPU's kernel, which torch's registry lacks (pytorch/pytorch#195460)."""
    flops = int(_attention(*(bound[name].shape for name in ("query", "key", "value"))))
    return flops // 2 if _is_causal("", bound) else flops


def _cpu_attention_backward(bound: Bound, _: Any) -> int:
    names = ("grad_out", "query", "key", "value")
    flops = int(_attention_backward(*(bound[name].shape for name in names)))
    return flops // 2 if _is_causal("", bound) else flops


# --- elementwise, reductions, norms -----------------------------------------------------------


def _results(each: int) -> Formula:
    return lambda _, out: each * elements(out)


def _inputs(each: int) -> Formula:
    return lambda bound, _: each * elements(first(bound))


def elements(value: Any) -> int:
    """Elements of the first tensor in a value, or of all tensors of a list."""
    if isinstance(value, list):
        return sum(elements(item) for item in value)
    return next((leaf.numel() for leaf in pytree.tree_leaves(value) if _is_tensor(leaf)), 0)


def first(bound: Bound) -> Any:
    """The first argument, which the operator works on."""
    return next(iter(bound.values()), None)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _mean(bound: Bound, out: Any) -> int:
    return elements(first(bound)) + elements(out)


def _layer_norm(bound: Bound, _: Any) -> int:
    """Mean 1, variance 3, normalise 2, scale and shift 1 each, an element."""
    affine = (bound.get("weight") is not None) + (bound.get("bias") is not None)
    return (6 + affine) * elements(first(bound))


def _rms_norm(bound: Bound, _: Any) -> int:
    """Square, sum, normalise, and scale where there is a weight, an element."""
    return (3 + (bound.get("weight") is not None)) * elements(first(bound))


def _batch_norm(bound: Bound, _: Any) -> int:
    """As a layer norm; with running statistics only to normalise, scale and shift."""
    affine = (bound.get("weight") is not None) + (bound.get("bias") is not None)
    computed = 4 if bound.get("training", bound.get("train", False)) else 0
    return (computed + 2 + affine) * elements(first(bound))


def _norm_backward(bound: Bound, _: Any) -> int:
    """x̂ 2, g·w 1, two sums 3, the input's gradient 4; 2 for the weight's and 1 for the bias's."""
    return 13 * elements(first(bound))


# --- embeddings -------------------------------------------------------------------------------


def _embedding_bag(bound: Bound, out: Any) -> int:
    """B·L·D additions (Σ of bag lengths × width), as many products where ids carry weights.

    A mean divides once a result (mode 1).
    """
    width = int(bound["weight"].shape[1])
    weighted = bound.get("per_sample_weights") is not None
    means = elements(out) if bound.get("mode") == 1 else 0
    return (1 + weighted) * int(bound["indices"].numel()) * width + means


def _rows_added(bound: Bound, _: Any) -> int:
    """One addition an element of the gradient of every id."""
    grad, indices = first(bound), bound["indices"]
    return int(indices.numel()) * int(grad.shape[-1])


def _added(name: str) -> Formula:
    return lambda bound, _: elements(bound.get(name))


def _adam(bound: Bound, _: Any) -> int:
    """Decay 1, both moments 3 + 4, root and correction 3, step 3, an element."""
    return 14 * elements(first(bound))


def _scan(bound: Bound, _: Any) -> int:
    """n·log₂ n comparisons."""
    source = first(bound)
    along = int(source.shape[-1]) if source.dim() else 1
    return int(source.numel() * max(1, math.ceil(math.log2(max(along, 2)))))


_EACH_RESULT = {
    1: """
        add sub rsub mul div true_divide floor_divide remainder fmod neg abs sign reciprocal square
        sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh
        tanh erf erfc erfinv pow relu threshold clamp clamp_min clamp_max maximum minimum fmax fmin
        floor ceil round trunc frac leaky_relu eq ne lt le gt ge where logical_and logical_or
        logical_not logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not isnan isinf isfinite
        masked_fill threshold_backward tril triu __and__ __or__ lgamma digamma
    """,
    2: "hardtanh relu6 native_dropout elu prelu hardtanh_backward leaky_relu_backward hypot",
    3: "addcmul addcdiv lerp tanh_backward sigmoid_backward elu_backward mse_loss",
    4: "sigmoid silu softplus hardswish hardsigmoid log_sigmoid_forward logaddexp mish glu",
    5: "_softmax softmax _log_softmax log_softmax _safe_softmax",
}
_EACH_INPUT = {
    1: "sum amax amin max min argmax argmin any all prod cumsum cumprod nansum logcumsumexp",
    2: "norm linalg_vector_norm logsumexp",
    3: "var std var_mean std_mean",
    4: "_softmax_backward_data _log_softmax_backward_data silu_backward mse_loss_backward",
}

_FORMULAS: dict[str, Formula] = {
    **{name: _results(n) for n, names in _EACH_RESULT.items() for name in names.split()},
    **{f"_foreach_{name}": _inputs(n) for n, s in _EACH_RESULT.items() for name in s.split()},
    **{name: _inputs(n) for n, names in _EACH_INPUT.items() for name in names.split()},
    "mean": _mean,
    "gelu": lambda b, out: (9 if b.get("approximate") == "tanh" else 5) * elements(out),
    "gelu_backward": _inputs(15),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "_batch_norm_with_update": lambda b, out: _batch_norm({**b, "training": True}, out),
    "_batch_norm_no_update": _batch_norm,
    "native_layer_norm_backward": _norm_backward,
    "native_group_norm_backward": _norm_backward,
    "native_batch_norm_backward": _norm_backward,
    "cudnn_batch_norm_backward": _norm_backward,
    "batch_norm_backward": _norm_backward,
    "_fused_rms_norm_backward": _norm_backward,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "embedding_dense_backward": _rows_added,
    "_embedding_bag_dense_backward": _rows_added,
    "_embedding_bag_backward": _rows_added,
    "index_add": _added("source"),
    "scatter_add": _added("src"),
    "nll_loss_forward": _inputs(1),
    "nll_loss_backward": _inputs(1),
    "dot": _inputs(2),
    "mv": _inputs(2),
    "sort": _scan,
    "topk": _scan,
    "_fused_adam": _adam,
    "_fused_adamw": _adam,
    "_scaled_dot_product_flash_attention_for_cpu": _cpu_attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _cpu_attention_backward,
}

# No arithmetic: data is moved, made or described.
_MOVERS = """
    clone copy _to_copy contiguous cat stack embedding index index_select gather scatter index_put
    _index_put_impl index_copy select_backward slice_backward slice_scatter select_scatter
    as_strided_scatter fill zero zeros zeros_like ones ones_like full full_like empty
    empty_like empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones new_full
    scalar_tensor arange linspace eye rand randn rand_like randn_like randint randperm uniform
    normal bernoulli random exponential _unsafe_view _reshape_alias _reshape_copy view alias detach
    lift_fresh lift repeat repeat_interleave flip roll constant_pad_nd pad tril_indices triu_indices
    _local_scalar_dense item is_same_size nonzero masked_select unfold_backward expand_copy
    permute_copy _pin_memory resize set unbind split split_with_sizes chunk narrow_copy bincount
    nested_tensor _nested_view_from_jagged _jagged_to_padded_dense_forward one_hot
    _foreach_copy _foreach_zero _efficientzerotensor
"""
_NO_WORK = frozenset(_MOVERS.split())
