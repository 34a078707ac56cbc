"""The profiles that ship open as they are, and say what was measured on the H200."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from cb_trace.store import open_profile

Rows = list[tuple[object, ...]]


def rows(profile: Path, sql: str) -> Rows:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("name", "eager_us", "graph_us", "modules"),
    [
        ("nanogpt_gpt2_b8_s1024_bf16", 6289.5, 5940.5, 127),
        ("nanogpt_gpt2_b1_s64_bf16", 5834.0, 950.4, 127),
        ("deepfm_paper", 10567.9, 10401.3, 45),
    ],
)
def test_a_profile_that_ships_has_the_step_that_its_table_names(
    sample_traces: Path, name: str, eager_us: float, graph_us: float, modules: int
) -> None:
    profile = sample_traces / f"{name}.duckdb"
    steps = rows(profile, "SELECT deployment, cost_us FROM compare WHERE path = '' ORDER BY 1")
    assert [deployment for deployment, _ in steps] == ["eager", "graph"]
    assert [cost for _, cost in steps] == pytest.approx([eager_us, graph_us], abs=0.06)
    assert rows(profile, "SELECT count(*) FROM module") == [(modules,)]


def test_a_block_of_the_small_batch_costs_what_knock_out_once_measured(sample_traces: Path) -> None:
    """72 µs in the CUDA-graphed step, where alone it takes 466 (h200.md: 71.6, 69 to 75)."""
    profile = sample_traces / "nanogpt_gpt2_b1_s64_bf16.duckdb"
    blocks = rows(
        profile,
        "SELECT marginal_us, isolated_us FROM compare WHERE deployment = 'graph' "
        "AND regexp_full_match(path, 'h\\.\\d+')",
    )
    assert len(blocks) == 12
    marginal = statistics.median(float(str(row[0])) for row in blocks)
    assert 69 < marginal < 75
    assert all(float(str(row[1])) > 6 * marginal for row in blocks)


def test_marginal_costs_are_those_that_knock_out_measured(sample_traces: Path) -> None:
    profile = sample_traces / "deepfm_paper.duckdb"
    pairs = rows(
        profile,
        "SELECT marginal_us, knockout_us FROM compare WHERE deployment = 'graph' "
        "AND knockout_us IS NOT NULL",
    )
    assert len(pairs) == 10
    errors = [abs(float(str(m)) / float(str(k)) - 1) for m, k in pairs]
    assert statistics.mean(errors) < 0.01
    assert max(errors) < 0.02
