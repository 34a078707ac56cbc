from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.attribution import split_by_shares

KERNELS = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.lists(st.floats(0, 1e12, allow_subnormal=False), min_size=1, max_size=6).filter(
            lambda weights: sum(weights) > 1e-300
        ),
    ),
    max_size=6,
)


def rows(*kernels: tuple[int, list[float]]) -> pl.DataFrame:
    flat = [(k, dur, share) for k, (dur, shares) in enumerate(kernels) for share in shares]
    schema = {"kernel_id": pl.Int64, "dur_ns": pl.Int64, "share": pl.Float64}
    return pl.DataFrame(flat, schema=schema, orient="row")


def test_running_sums_are_rounded_not_parts() -> None:
    split = split_by_shares(rows((10, [1.0, 1.0, 1.0]), (7, [3.0, 1.0])))
    assert split["ns"].to_list() == [3, 4, 3, 5, 2]
    assert split["share"].to_list() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.75, 0.25])


def test_the_last_part_is_exact_where_a_double_is_not() -> None:
    split = split_by_shares(rows((2**60 + 1, [1.0, 1.0])))
    assert split["ns"].to_list() == [2**59, 2**59 + 1]


def test_rows_of_one_kernel_need_not_stand_together() -> None:
    mixed = rows((9, [1.0, 2.0]), (4, [1.0, 1.0]))[[0, 2, 1, 3]]
    assert split_by_shares(mixed)["ns"].to_list() == [3, 2, 6, 2]


@settings(deadline=None)
@given(KERNELS)
def test_parts_sum_to_the_whole(kernels: list[tuple[int, list[float]]]) -> None:
    split = split_by_shares(rows(*kernels))
    assert (split["ns"] >= 0).all()
    sums = split.group_by("kernel_id").agg(pl.col("ns").sum(), pl.col("share").sum())
    for kernel_id, ns, share in sums.iter_rows():
        assert ns == kernels[kernel_id][0]
        assert share == 1.0
    backwards = split[::-1].group_by("kernel_id").agg(pl.col("share").sum())["share"]
    assert (backwards == 1.0).all()
