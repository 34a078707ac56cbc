"""One cause of error at a time, injected into a recording: its own term moves, by exactly that.

The real counterpart, on a GPU and with intervals: ``benchmarks/injection.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cb_trace.bundle import CompiledGraph, CompiledKernel, CompiledNode
from tests.analysis.injected import Alone, Changes, Read, Recording, Work, moves, read_both

MM, ADD = "aten::mm", "aten::add"
GEMM = Work("a", MM, "gemm", 10, 50)
VECTOR = Work("b", ADD, "vector_add", 60, 30)
BASE = Recording(
    work=(GEMM, VECTOR),
    alone={"a": Alone(64, ((MM, "gemm", 50),)), "b": Alone(44, ((ADD, "vector_add", 30),))},
    window=100,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Read:
    return BASE.read(tmp_path_factory.mktemp("base"))


def test_nothing_moves_nothing(base: Read, tmp_path: Path) -> None:
    """A/A; and what is the same in the step and alone has no terms but launch."""
    assert BASE.read(tmp_path).moved_from(base) == {}
    assert {key: ns for key, ns in base.terms.items() if ns} == {
        ("a", "launch"): 14_000,
        ("b", "launch"): 14_000,
    }


@pytest.mark.parametrize("graphed", [False, True], ids=["eager", "graph"])
def test_a_copy_on_a_second_stream_is_contention_and_overlap(graphed: bool, tmp_path: Path) -> None:
    """The copy takes 5 µs more and slows the GEMM by 5, under which it hides 20."""
    copy = Work("c", "aten::clone", "Memcpy", 10, 20)
    alone = {**BASE.alone, "c": Alone(24, (("aten::clone", "Memcpy", 20),))}
    gemm, vector = Work("a", MM, "gemm", 30, 50), Work("b", ADD, "vector_add", 80, 30)
    in_line = Recording(work=(copy, gemm, vector), alone=alone, window=120, graphed=graphed)
    beside = in_line.but(
        work=(
            Work("c", "aten::clone", "Memcpy", 10, 25, stream=8, alone=20, launched=1),
            Work("a", MM, "gemm", 15, 55, alone=50),
            Work("b", ADD, "vector_add", 70, 30),
        ),
        window=110,
    )
    found = moves(in_line, beside, tmp_path)
    assert found == {
        ("c", "contention"): 20_000 - 25_000,
        ("a", "contention"): 50_000 - 55_000,
        ("a", "overlap"): 20_000,
    }
    assert sum(found.values()) == (120 - 110) * 1000  # by so much the step is shorter


def test_what_only_the_module_alone_overlaps_is_overlap(tmp_path: Path) -> None:
    """Its second kernel takes 20 µs: after the first in the step, and alone beside it."""
    two = ((MM, "gemm", 50), (ADD, "vector_add", 20))
    work = (GEMM, Work("a", ADD, "vector_add", 60, 20))
    in_line = Recording(work=work, alone={"a": Alone(84, two)}, window=90)
    beside = in_line.but(alone={"a": Alone(64, two, at_once=True)})
    assert moves(in_line, beside, tmp_path) == {("a", "overlap"): -20_000}


def test_a_host_that_spins_is_idle_time_of_what_comes_next(base: Read, tmp_path: Path) -> None:
    later = Work("b", ADD, "vector_add", 1060, 30, launched=1055)
    spun = BASE.but(work=(GEMM, later), window=1100)
    found = spun.read(tmp_path)
    assert found.moved_from(base) == {("b", "idle"): -1_000_000}
    assert found.partition == {"busy": 80_000, "idle_host": 10_000 + 1_000_000 + 10_000}


def test_a_profiler_that_makes_other_waits_longer_takes_its_part_of_a_spin(
    base: Read, tmp_path: Path
) -> None:
    """All idle is scaled alike: the profiler doubled the 20 µs at the edges, not the spin. So 19 µs
    of the millisecond are taken for them. What a spin costs is exact where it is most of the idle.
    """
    later = Work("b", ADD, "vector_add", 1070, 30, launched=1065)
    spun = BASE.but(work=(Work("a", MM, "gemm", 20, 50), later), window=1120, bare=1100)
    found = spun.read(tmp_path)
    assert found.moved_from(base) == {("b", "idle"): -980_769}
    assert found.partition == {"busy": 80_000, "idle_host": 1_020_000}


def test_a_table_that_the_cache_holds_is_faster_alone(base: Read, tmp_path: Path) -> None:
    """In the step and in the sequence something empties the cache each time."""
    alone = {**BASE.alone, "a": Alone(64 - 12, ((MM, "gemm", 50 - 12),))}
    assert BASE.but(alone=alone).read(tmp_path).moved_from(base) == {("a", "cache"): -12_000}


def test_a_warm_cache_in_the_step_is_the_other_sign(base: Read, tmp_path: Path) -> None:
    """What ran before left the input in the cache: in the step as in the sequence."""
    warm = Work("b", ADD, "vector_add", 60, 24)
    found = BASE.but(work=(GEMM, warm), window=94).read(tmp_path).moved_from(base)
    assert found == {("b", "cache"): 6_000}


def test_a_lower_clock_in_the_step_is_residual(base: Read, tmp_path: Path) -> None:
    slow = (
        Work("a", MM, "gemm", 10, 51, alone=50),
        Work("b", ADD, "vector_add", 61, 32, alone=30),
    )
    assert BASE.but(work=slow, window=103).read(tmp_path).moved_from(base) == {
        ("a", "residual"): -1_000,
        ("b", "residual"): -2_000,
    }


@pytest.mark.parametrize(
    ("name", "more"),
    [("gemm_align1", 22), ("gemm_nn", -7)],
    ids=["unaligned", "contiguous"],  # the input alone; a contiguous one is read faster
)
def test_a_replay_on_another_input_is_kernel_choice(
    base: Read, name: str, more: int, tmp_path: Path
) -> None:
    alone = {**BASE.alone, "a": Alone(64 + more, ((MM, name, 50 + more),))}
    found = BASE.but(alone=alone).read(tmp_path).moved_from(base)
    assert found == {("a", "kernel_choice"): 1_000 * more}


def test_a_choice_takes_the_memset_of_the_other_kernel_along(tmp_path: Path) -> None:
    """A memset of 1 µs before the GEMM of the step; alone there is one kernel without a memset."""
    clear = ("Memset (Device)", 1)
    cleared = BASE.but(
        work=(Work("a", MM, clear[0], 9, 1, launched=1), GEMM, VECTOR),
        alone={**BASE.alone, "a": Alone(65, ((MM, *clear), (MM, "gemm", 50)))},
    )
    other = cleared.but(alone={**BASE.alone, "a": Alone(86, ((MM, "gemm_align1", 72),))})
    assert moves(cleared, other, tmp_path) == {("a", "kernel_choice"): 72_000 - 51_000}


def test_another_kernel_takes_what_the_cache_did_to_it_along(tmp_path: Path) -> None:
    """A − E of a kernel that differs cannot be told apart: all of it is kernel choice."""
    warm = BASE.but(alone={**BASE.alone, "a": Alone(60, ((MM, "gemm", 46),))})
    other = BASE.but(alone={**BASE.alone, "a": Alone(82, ((MM, "gemm_align1", 68),))})
    assert moves(warm, other, tmp_path) == {
        ("a", "cache"): 4_000,
        ("a", "kernel_choice"): 18_000,
    }


def test_host_time_that_only_the_replay_needs_is_launch(base: Read, tmp_path: Path) -> None:
    alone = {**BASE.alone, "a": Alone(64 + 40, ((MM, "gemm", 50),))}
    assert BASE.but(alone=alone).read(tmp_path).moved_from(base) == {("a", "launch"): 40_000}


# --- as a CUDA graph ------------------------------------------------------------------------------


GRAPHED = BASE.but(graphed=True)
LATE = Work("b", ADD, "vector_add", 1060, 30, launched=1055, graphed=60)  # behind a spin of 1 ms
IN_THE_GRAPH: dict[str, tuple[Recording, Changes]] = {
    "nothing": (GRAPHED, {}),
    "spin": (GRAPHED.but(work=(GEMM, LATE), window=1100), {}),  # a graph has no host between
    "cache": (
        GRAPHED.but(alone={**BASE.alone, "a": Alone(64 - 12, ((MM, "gemm", 50 - 12),))}),
        {("a", "cache"): -12_000},
    ),
    "kernel choice": (
        GRAPHED.but(alone={**BASE.alone, "a": Alone(64 + 22, ((MM, "gemm_align1", 50 + 22),))}),
        {("a", "kernel_choice"): 22_000},
    ),
    "launch": (
        GRAPHED.but(alone={**BASE.alone, "a": Alone(64 + 40, ((MM, "gemm", 50),))}),
        {("a", "launch"): 40_000},
    ),
    "gap": (  # between its two kernels
        GRAPHED.but(work=(GEMM, Work("b", ADD, "vector_add", 60, 30, graphed=63))),
        {("b", "idle"): -3_000},
    ),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Read:
    return GRAPHED.read(tmp_path_factory.mktemp("graph"))


@pytest.mark.parametrize("name", IN_THE_GRAPH)
def test_in_the_graph_each_moves_its_own_term(graph: Read, name: str, tmp_path: Path) -> None:
    injected, moved = IN_THE_GRAPH[name]
    assert injected.read(tmp_path).moved_from(graph) == moved


# --- compiled -------------------------------------------------------------------------------------


def code(*kernels: tuple[str, tuple[str, ...]]) -> CompiledGraph:
    """Generated code: kernels with the modules of their nodes, which move as many bytes each."""
    return CompiledGraph(
        key="k",
        phase="forward",
        kernels=[
            CompiledKernel(
                name=name,
                handle=number + 1,
                nodes=[
                    CompiledNode(name=path, target="aten.mul.Tensor", path=path, phase="forward",
                                 bytes=8, flops=0)
                    for path in paths
                ],
            )
            for number, (name, paths) in enumerate(kernels)
        ],
    )  # fmt: skip


def test_a_chain_that_is_compiled_is_fusion(tmp_path: Path) -> None:
    """Two kernels of 25 µs alone; in the step one of 30, half of which is each module's."""
    gelu, silu = "triton_gelu", "triton_silu"
    apart = Recording(
        work=(Work("a", gelu, gelu, 10, 25), Work("b", silu, silu, 35, 25)),
        alone={"a": Alone(39, ((gelu, gelu, 25),)), "b": Alone(39, ((silu, silu, 25),))},
        window=70,
        graph=code((gelu, ("a",)), (silu, ("b",))),
    )
    fused = "triton_poi_fused_gelu_silu_0"
    together = apart.but(
        work=(Work("", fused, fused, 10, 30),), window=50, graph=code((fused, ("a", "b")))
    )
    found = moves(apart, together, tmp_path)
    assert found == {("a", "fusion"): 10_000, ("b", "fusion"): 10_000}
    assert sum(found.values()) == (70 - 50) * 1000


def test_a_chain_of_operators_that_is_compiled_is_fusion(tmp_path: Path) -> None:
    """The same from an eager step: alone, too, the modules are compiled then."""
    gelu, silu = "aten::gelu", "aten::silu"
    eager = Recording(
        work=(Work("a", gelu, "gelu", 10, 25), Work("b", silu, "silu", 35, 25)),
        alone={"a": Alone(39, ((gelu, "gelu", 25),)), "b": Alone(39, ((silu, "silu", 25),))},
        window=70,
    )
    fused = "triton_poi_fused_gelu_silu_0"
    alone = {
        path: Alone(39, ((name, name, 25),))
        for path, name in (("a", "triton_poi_fused_gelu_0"), ("b", "triton_poi_fused_silu_0"))
    }
    compiled = eager.but(
        work=(Work("", fused, fused, 10, 30),),
        alone=alone, window=50, graph=code((fused, ("a", "b"))),
    )  # fmt: skip
    found = moves(eager, compiled, tmp_path)
    assert found == {("a", "fusion"): 10_000, ("b", "fusion"): 10_000}


def test_what_is_slower_alone_can_be_faster_in_the_whole(tmp_path: Path) -> None:
    """A GEMV rewritten elementwise: 8 µs more alone, 20 µs less in the step that fuses it."""
    silu, mm, fused = "triton_silu", "extern_kernels.mm", "triton_red_fused_silu_sum_0"
    product = Recording(
        work=(Work("act", silu, silu, 10, 30), Work("head", MM, "gemv", 40, 40)),
        alone={"act": Alone(44, ((silu, silu, 30),)), "head": Alone(54, ((MM, "gemv", 40),))},
        window=90,
        graph=code((silu, ("act",)), (mm, ("head",))),
    )
    reduction = "triton_red_fused_sum_0"
    elementwise = product.but(
        work=(Work("", fused, fused, 10, 50),),
        alone={**product.alone, "head": Alone(62, ((reduction, reduction, 48),))},
        window=70,
        graph=code((fused, ("act", "head"))),
    )
    before, after = read_both(product, elementwise, tmp_path)
    assert after.moved_from(before) == {("act", "fusion"): 5_000, ("head", "fusion"): 23_000}
    assert after.alone["head"] - before.alone["head"] == 8_000
    assert after.cost["head"] - before.cost["head"] == -15_000
    assert sum(after.partition.values()) - sum(before.partition.values()) == -20_000
