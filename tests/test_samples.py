"""The recordings that ship say what was measured on the H200, and the profile that ships opens."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from cb_trace.store import open_profile
from tests.conftest import SAMPLES, Ingested

Rows = list[tuple[object, ...]]


def rows(profile: Path, sql: str) -> Rows:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("name", "eager_us", "graph_us", "modules"),
    [
        ("nanogpt_gpt2_b8_s1024_bf16", 6361.5, 5934.1, 127),
        ("nanogpt_gpt2_b1_s64_bf16", 5514.9, 949.4, 127),
        ("deepfm_paper", 10461.7, 10334.0, 45),
    ],
)
def test_a_recording_that_ships_has_the_step_that_its_table_names(
    ingested: Ingested, name: str, eager_us: float, graph_us: float, modules: int
) -> None:
    profile = ingested(SAMPLES / f"{name}.zip")
    steps = rows(profile, "SELECT deployment, cost_us FROM compare WHERE path = '' ORDER BY 1")
    assert [deployment for deployment, _ in steps] == ["eager", "graph"]
    assert [cost for _, cost in steps] == pytest.approx([eager_us, graph_us], abs=0.06)
    assert rows(profile, "SELECT count(*) FROM module") == [(modules,)]


def test_the_profile_that_ships_names_its_traces_beside_itself() -> None:
    (profile,) = SAMPLES.glob("*.duckdb")
    found = {str(path) for (path,) in rows(profile, "SELECT path FROM trace")}
    assert {path.partition("/")[0] for path in found} == {f"{profile.stem}.zip"}
    assert all((profile.parent / path.partition("/")[0]).is_file() for path in found)


def test_a_block_of_the_small_batch_costs_what_knock_out_once_measured(sample_traces: Path) -> None:
    """72 µs in the CUDA-graphed step, where alone it takes 434 (h200.md: 71.6, 69 to 75)."""
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


@pytest.mark.parametrize(
    ("name", "deployment", "mean", "worst"),
    [
        ("deepfm_paper", "graph", 0.01, 0.02),
        ("deepfm_paper", "eager", 0.01, 0.02),
        ("nanogpt_gpt2_b8_s1024_bf16", "graph", 0.02, 0.03),
        ("nanogpt_gpt2_b8_s1024_bf16", "eager", 0.03, 0.04),
        ("nanogpt_gpt2_b1_s64_bf16", "graph", 0.03, 0.04),
        ("nanogpt_gpt2_b1_s64_bf16", "eager", 0.04, 0.08),  # h.0, inside its interval
    ],
)
def test_marginal_costs_are_those_that_knock_out_measured(
    ingested: Ingested, name: str, deployment: str, mean: float, worst: float
) -> None:
    pairs = rows(
        ingested(SAMPLES / f"{name}.zip"),
        "SELECT marginal_us, knockout_us FROM compare WHERE knockout_us IS NOT NULL "
        f"AND deployment = '{deployment}'",
    )
    assert len(pairs) == 10
    errors = [abs(float(str(m)) / float(str(k)) - 1) for m, k in pairs]
    assert statistics.mean(errors) < mean
    assert max(errors) < worst
