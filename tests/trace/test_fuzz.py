"""Broken traces load with every invariant whole, or fail in one line. More: benchmarks/."""

from __future__ import annotations

import pytest

from benchmarks.fuzz_traces import mutant, run

SHARD = 20  # of 0.15 s each; small enough to be spread over workers


@pytest.mark.parametrize("shard", range(100))
def test_mutants_load_whole_or_fail_in_one_line(shard: int) -> None:
    outcome = run(range(SHARD * shard, SHARD * (shard + 1)))
    assert outcome.failures == []
    refused = outcome.refused.total()
    assert outcome.loaded + refused == SHARD
    assert outcome.loaded > SHARD // 4


def test_a_mutant_follows_from_its_number() -> None:
    assert mutant(5) == mutant(5)
    assert len({mutant(number) for number in range(40)}) > 30
