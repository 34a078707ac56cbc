"""HTA's rows find ours: by correlation, stream, name and rounded start, and by nothing less."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from cb_trace.hta.link import calling_module, link_host, link_kernels, made_by, main_module
from tests.frames import frame

EVENTS = {"event_index": pl.Int64, "correlation": pl.Int64, "stream": pl.Int64, "name": pl.String,
          "start_ns": pl.Int64}  # fmt: skip


def theirs(*rows: tuple[int, int, int, str, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=EVENTS, orient="row")


def ours(*rows: tuple[int, int | None, int, str, int]) -> pl.DataFrame:
    names = ("kernel_id", "correlation", "stream", "name", "start_ns")
    return frame("kernel", *(dict(zip(names, row, strict=True)) for row in rows))


def pairs(events: pl.DataFrame, kernels: pl.DataFrame) -> dict[int, int]:
    return dict(link_kernels(events, kernels).iter_rows())


def test_a_start_is_rounded_up_as_hta_does() -> None:
    kernels = ours((7, 1, 0, "gemm", 10_001), (8, 2, 0, "gemm", 11_000))
    assert pairs(theirs((0, 1, 0, "gemm", 11_000), (1, 2, 0, "gemm", 11_000)), kernels) == {
        0: 7,
        1: 8,
    }


def test_every_part_of_the_key_counts() -> None:
    kernels = ours((7, 1, 0, "gemm", 11_000))
    others = [(0, 2, 0, "gemm", 11_000), (1, 1, 3, "gemm", 11_000), (2, 1, 0, "add", 11_000),
              (3, 1, 0, "gemm", 13_000)]  # fmt: skip
    assert pairs(theirs(*others), kernels) == {}


def test_one_microsecond_off_is_tried_after_the_exact_one() -> None:
    kernels = ours((7, 1, 0, "gemm", 11_000), (8, 1, 0, "gemm", 12_000))
    assert pairs(theirs((0, 1, 0, "gemm", 12_000), (1, 1, 0, "gemm", 10_000)), kernels) == {
        0: 8,
        1: 7,
    }


def test_kernels_of_one_graph_launch_pair_in_time_order() -> None:
    kernels = ours((9, 5, 0, "k", 10_900), (8, 5, 0, "k", 10_100), (7, 5, 0, "k", 20_000))
    events = theirs((3, 5, 0, "k", 11_000), (4, 5, 0, "k", 11_000), (5, 5, 0, "k", 20_000))
    assert pairs(events, kernels) == {3: 8, 4: 9, 5: 7}


def test_a_row_that_hta_counts_twice_is_one_kernel() -> None:
    row = (3, 5, 0, "k", 11_000)
    assert link_kernels(theirs(row, row), ours((7, 5, 0, "k", 11_000))).rows() == [(3, 7)]


def test_no_correlation_is_minus_one_on_their_side() -> None:
    assert pairs(theirs((0, -1, 0, "k", 11_000)), ours((7, None, 0, "k", 11_000))) == {0: 7}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9_000)), max_size=12))
def test_every_kernel_finds_itself_once(given_kernels: list[tuple[int, int]]) -> None:
    rows = [(k, c, 0, "k", start) for k, (c, start) in enumerate(given_kernels)]
    events = theirs(*((k, c, s, n, -(-start // 1000) * 1000) for k, c, s, n, start in rows))
    found = link_kernels(events, ours(*rows))
    assert (
        found.height
        == len(rows)
        == found["event_index"].n_unique()
        == found["kernel_id"].n_unique()
    )


def test_a_host_row_that_could_be_two_of_ours_is_neither() -> None:
    path = pl.DataFrame(
        [(0, "aten::mm", 5_000, None), (1, "aten::to", 5_000, None), (2, "aten::mm", 5_000, 7)],
        schema={"position": pl.Int64, "name": pl.String, "start_ns": pl.Int64, "stream": pl.Int64},
        orient="row",
    )
    ops = frame("op", *(host(op_id=k, name=name, start_ns=at) for k, name, at in (
        (1, "aten::mm", 4_200), (2, "aten::to", 4_100), (3, "aten::to", 4_900),
    )))  # fmt: skip
    assert link_host(path, ops, "op_id").rows() == [(0, 1)]


def host(**given_values: Any) -> dict[str, Any]:
    return {"trace_id": 0, "thread": 0, **given_values}


def test_a_fused_kernel_goes_to_the_largest_share() -> None:
    shares = [
        (1, 5, 0.25), (1, 6, 0.75), (2, 8, 0.5), (2, 7, 0.5),
        (3, 8, 0.375), (3, 7, 0.3125), (3, 7, 0.3125),  # of two phases
    ]  # fmt: skip
    rows = [{"kernel_id": k, "module_id": m, "share": s} for k, m, s in shares]
    assert sorted(main_module(frame("kernel_module", *rows)).rows()) == [(1, 6), (2, 7), (3, 7)]


def test_a_host_row_belongs_to_the_innermost_call_on_its_thread() -> None:
    calls = frame(
        "module_call",
        host(call_id=0, module_id=0, start_ns=0, dur_ns=100),
        host(call_id=1, module_id=1, start_ns=20, dur_ns=30),
        host(call_id=2, module_id=2, start_ns=20, dur_ns=80),
        host(call_id=3, module_id=3, start_ns=0, dur_ns=100) | {"thread": 1},
    )
    at = pl.DataFrame(
        [(0, 0, 19), (1, 0, 20), (2, 0, 50), (3, 0, 100), (4, 1, 30)],
        schema={"position": pl.Int64, "thread": pl.Int32, "start_ns": pl.Int64},
        orient="row",
    )
    assert sorted(calling_module(at, calls).rows()) == [(0, 0), (1, 1), (2, 2), (4, 3)]


def test_backward_host_rows_lead_to_the_forward_operator_of_their_node() -> None:
    """Row 41: by sequence number, to the thread and the moment of the forward operator."""
    numbered = {"sequence_number": 7, "forward_thread": 0}
    ops = frame(
        "op",
        host(op_id=0, name="aten::mm", start_ns=10, dur_ns=20) | numbered,
        host(op_id=1, name="MmBackward0", start_ns=100, dur_ns=50)
        | {"thread": 1, "sequence_number": 7, "forward_thread": 1},
        host(op_id=2, name="aten::mm", start_ns=110, dur_ns=20) | {"thread": 1},
        host(op_id=3, name="LostBackward0", start_ns=200, dur_ns=50)
        | {"thread": 1, "sequence_number": 9, "forward_thread": 1},
    )
    at = pl.DataFrame(
        [(0, 1, 110), (1, 1, 100), (2, 1, 160), (3, 1, 210), (4, 0, 110)],
        schema={"position": pl.Int64, "thread": pl.Int32, "start_ns": pl.Int64},
        orient="row",
    )
    step = frame("step", host(step=0, start_ns=0, dur_ns=900))
    assert made_by(at, ops, step).rows() == [(0, 0, 10), (1, 0, 10)]
    assert made_by(at.clear(), ops, step).rows() == []
    assert made_by(at, ops.clear(), step.clear()).rows() == []
