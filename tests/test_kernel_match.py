"""kernel_diff and the error terms pair kernels alike: one in SQL, the other on frames."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cb_trace.conduct import ingest
from cb_trace.range_names import range_name, replay_range
from cb_trace.store import open_profile
from tests.bundles import write_net_bundle
from tests.conftest import SAMPLES, Ingested
from tests.kineto import Event, annotation, kernel, launch, op, write_trace

BY_STATUS = """
    WITH difference AS (
        SELECT
            path,
            phase,
            coalesce(sum(difference_us) FILTER (WHERE status = 'same'), 0) AS same,
            coalesce(sum(difference_us) FILTER (WHERE status = 'changed'), 0) AS changed,
            coalesce(sum(difference_us) FILTER (WHERE status LIKE 'only%'), 0) AS only_one
        FROM kernel_diff
        GROUP BY path, phase
    )
    SELECT
        path, if(contention_us IS NULL, cache_us, same), same, kernel_choice_us, changed, fusion_us,
        only_one
    FROM compare
    JOIN difference USING (path, phase)
    WHERE deployment = 'eager'
        AND isolated_from IN ('replay', 'shared')
"""


REPLAYED = {
    "deepfm_paper",
    "nanogpt_gpt2_b8_s1024_bf16",
    "nanogpt_gpt2_b1_s64_bf16",
    "nanogpt_train",
}


def agree(profile: Path) -> int:
    """How many modules both were held against one another for."""
    with open_profile(profile) as connection:
        found = connection.execute(BY_STATUS).fetchall()
    for path, cache, same, choice, changed, fusion, only_one in found:
        # Terms are whole nanoseconds, rounded as running sums. With a sequence run the cache term
        # is held against that, and not here.
        assert (cache, choice, fusion) == pytest.approx((same, changed, only_one), abs=0.003), path
    return len(found)


def mixed(draw: random.Random, at: float, first: int, count: int) -> list[Event]:
    """Kernels of few names, grids and operators, some without an operator, in any order."""
    events: list[Event] = []
    for number in range(count):
        begin, correlation = at + 5 * number, first + number
        if name := draw.choice(["aten::mm", "aten::add", ""]):
            events.append(op(name, begin, 4))
        events.append(launch(begin + 1, 1, correlation))
        grid = [draw.randint(1, 2), 1, 1]
        events.append(
            kernel(draw.choice("ab"), begin + 2, draw.randint(1, 3), correlation, grid=grid)
        )
    return events


@pytest.mark.parametrize("seed", range(6))
def test_on_kernels_mixed_at_random(tmp_path: Path, seed: int) -> None:
    bundle = write_net_bundle(tmp_path / "net")
    context, alone = [], []
    for number in range(3):
        draw = random.Random(seed + (number == 2))  # the last step runs other kernels
        at, first = 1000.0 + 200 * number, 100 * number + 1
        context += [annotation(f"ProfilerStep#{number}", at, 100), annotation("cb:<root>", at, 90)]
        context += [annotation(range_name("fc"), at, 80), *mixed(draw, at + 1, first, 12)]
    for iteration in range(2):
        at = 1000.0 + 200 * iteration
        alone.append(annotation(replay_range(0, iteration), at, 100))
        alone += mixed(random.Random(seed + 50), at + 1, 100 * iteration + 1, 10)
    write_trace(bundle / "context.json.gz", context, baseTimeNanoseconds=0)
    write_trace(bundle / "isolated.json.gz", alone, baseTimeNanoseconds=0)
    ingest(bundle, tmp_path / "p.duckdb")
    assert agree(tmp_path / "p.duckdb") == 1
    with open_profile(tmp_path / "p.duckdb") as connection:
        found = connection.execute("SELECT DISTINCT status FROM kernel_diff").fetchall()
    assert len(found) > 1
    assert ("same",) in found


@pytest.mark.parametrize("bundle", sorted(SAMPLES.glob("*.zip")), ids=lambda path: path.stem)
def test_on_a_recording_that_ships(ingested: Ingested, bundle: Path) -> None:
    held = agree(ingested(bundle))
    assert held > 0 or bundle.stem not in REPLAYED
