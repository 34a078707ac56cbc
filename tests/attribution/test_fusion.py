"""Which module has which part of a generated kernel: the rule of ``fusion``, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from cb_trace.attribution.fusion import Part, called, generated
from cb_trace.bundle import CompiledGraph, CompiledKernel, CompiledNode


def node(name: str, path: str | None, size: int, target: str = "", **more: Any) -> CompiledNode:
    target = target or f"aten.{name}.default"
    given: dict[str, Any] = {"phase": "forward", "flops": 0, **more}
    return CompiledNode(name=name, target=target, path=path, bytes=size, **given)


def graph(*kernels: tuple[str, list[CompiledNode]], key: str = "k") -> CompiledGraph:
    calls = [
        CompiledKernel(name=name, handle=at, nodes=nodes)
        for at, (name, nodes) in enumerate(kernels, start=1)
    ]
    return CompiledGraph(key=key, phase="forward", kernels=calls)


def parts(*kernels: tuple[str, list[CompiledNode]]) -> list[dict[str | None, float]]:
    """For each kernel: path → weight."""
    return [{p.path: p.weight for p in call.parts} for call in generated([graph(*kernels)])[0]]


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("extern_kernels.addmm", "addmm"),
        ("extern_kernels.bias_addmm", "addmm"),
        ("extern_kernels._mm_plus_mm", "_mm_plus_mm"),
        ("torch.ops.aten._scaled_dot_product_flash_attention.default",
         "_scaled_dot_product_flash_attention"),
        ("torch.ops.mkl._mkl_linear.default", "_mkl_linear"),
        ("aten.sort.stable", "sort"),
        ("triton_poi_fused_gelu_view_8", "triton_poi_fused_gelu_view_8"),
        ("cpp_fused_add_0", "cpp_fused_add_0"),
    ],
)  # fmt: skip
def test_what_a_generated_call_is_named_in_a_run(name: str, operator: str) -> None:
    assert called(name) == operator


def test_a_fused_kernel_is_split_by_bytes_and_views_weigh_nothing() -> None:
    nodes = [
        node("add", "a", 100), node("mul", "b", 200), node("relu", "b", 100),
        node("permute", "c", 900), node("getitem", "c", 900, "<built-in function getitem>"),
    ]  # fmt: skip
    assert parts(("triton_poi_fused_0", nodes)) == [{"a": 100.0, "b": 300.0}]


def test_a_node_counts_in_the_first_kernel_that_holds_it() -> None:
    add, norm = node("add", "a", 100), node("native_layer_norm", "b", 100)
    assert parts(
        ("triton_poi_fused_add_0", [add]), ("triton_per_fused_add_norm_1", [norm, add])
    ) == [{"a": 100.0}, {"b": 100.0}]


def test_the_second_half_of_a_split_reduction_has_all_its_nodes() -> None:
    total = node("sum_1", "a", 100)
    found = parts(("triton_red_fused_sum_0", [total]), ("triton_per_fused_sum_1", [total]))
    assert found == [{"a": 100.0}, {"a": 100.0}]


def test_an_extern_kernel_is_its_own_main_node() -> None:
    """As Inductor lists SDPA on the CPU: with what made its inputs, and named in kernels before."""
    sdpa = node("_sdpa_1", "attn", 500, "aten._sdpa.default", flops=10)
    norm = node("add_1", "ln", 100)
    view = node("permute", "attn", 100)
    assert parts(
        ("cpp_fused__sdpa_add_0", [norm, sdpa, view]),
        ("torch.ops.aten._sdpa.default", [sdpa, view, norm]),
    ) == [{"ln": 100.0}, {"attn": 500.0}]


def test_extern_kernels_of_one_operator_take_their_nodes_in_turn() -> None:
    first, second = (node(f"mm_{p}", p, 100, "aten.mm.default") for p in ("a", "b"))
    found = parts(("extern_kernels.mm", [first]), ("extern_kernels.mm", [first, second]))
    assert found == [{"a": 100.0}, {"b": 100.0}]


def test_an_extern_kernel_of_no_known_node_goes_by_its_nodes() -> None:
    """``_mm_plus_mm`` is two matmuls and an addition: the matmuls' FLOPs decide."""
    nodes = [
        node("mm", "a", 10, "aten.mm.default", flops=9000),
        node("mm_1", "b", 10, "aten.mm.default", flops=3000), node("add", "b", 10),
    ]  # fmt: skip
    assert parts(("extern_kernels._mm_plus_mm", nodes)) == [{"a": 9000.0, "b": 3000.0}]


def test_flops_weigh_where_there_are_many_a_byte() -> None:
    few = [node("mm", "a", 100, flops=5000), node("add", "b", 100)]
    many = [node("mm", "a", 100, flops=10_001), node("add", "b", 100)]
    assert parts(("triton_tem_fused_mm_0", few)) == [{"a": 100.0, "b": 100.0}]
    assert parts(("triton_tem_fused_mm_0", many)) == [{"a": 10_001.0}]


def test_a_node_of_no_module_goes_with_the_others_only_where_they_agree() -> None:
    lost = node("add_7", None, 50)
    alone, two = [node("mul", "a", 100)], [node("mul", "a", 100), node("relu", "b", 100)]
    assert parts(("triton_0", [*alone, lost])) == [{"a": 150.0}]
    assert parts(("triton_0", [*two, lost])) == [{"a": 100.0, "b": 100.0, None: 50.0}]
    assert parts(("triton_0", [lost])) == [{None: 50.0}]


def test_the_phases_of_a_module_stay_apart() -> None:
    nodes = [node("mul", "a", 100, phase="backward"), node("exp", "a", 50, phase="recompute")]
    (call,) = generated([graph(("triton_0", nodes))])[0]
    assert call.parts == (Part("a", "backward", 100.0, 100), Part("a", "recompute", 50.0, 50))


def test_nodes_that_move_nothing_share_alike_and_a_kernel_of_no_node_is_nobodys() -> None:
    views = [node("view", "a", 8), node("permute", "b", 8)]
    assert parts(("triton_0", views)) == [{"a": 1.0, "b": 1.0}]
    assert parts(("triton_0", [])) == [{None: 1.0}]


def test_one_key_for_two_modules_is_of_an_unknown_module() -> None:
    one, other = (graph(("triton_0", [node("mul", p, 1)])) for p in ("a", "b"))
    assert [c.parts for c in generated([one, one])[0]] == [(Part("a", "forward", 1.0, 1),)]
    assert [c.parts for c in generated([one, other])[0]] == [(Part(None, "forward", 1.0, 0),)]


def test_kernels_go_by_their_handles() -> None:
    made = graph(("triton_0", [node("a", "a", 1)]), ("triton_1", [node("b", "b", 1)]))
    turned = CompiledGraph(key="k", phase="forward", kernels=made.kernels[::-1])
    assert generated([turned]) == generated([made])
