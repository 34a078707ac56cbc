"""The sequence run and knock-out of a bundle, from its files to the views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cb_trace.bundle import KnockoutRecord, TraceRecord, file_sha256, open_bundle, write_bundle
from cb_trace.conduct import ingest
from cb_trace.store import open_profile
from tests.bundles import sequence_events, write_net_bundle
from tests.kineto import write_trace

KNOCKOUTS = [
    KnockoutRecord(path="fc", phase="forward", deployment="eager",
                   base_ns=[80_000, 82_000, 81_000], knocked_ns=[68_000, 69_000, 68_000]),
    KnockoutRecord(path="", phase="forward", deployment="eager",
                   skipped="it changes its own state"),
]  # fmt: skip


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causal")
    bundle = write_net_bundle(folder / "net", knockouts=KNOCKOUTS)
    events = [row for n in (0, 1) for row in sequence_events(n, 70, 28, (40, 20))]
    file = write_trace(bundle / "sequence.json.gz", events, baseTimeNanoseconds=0)
    manifest = open_bundle(bundle).manifest
    record = TraceRecord(file=file.name, role="sequence", sha256=file_sha256(file))
    write_bundle(bundle, replace(manifest, traces=[*manifest.traces, record]))
    return ingest(bundle, folder / "net.duckdb").profile


def rows(profile: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


def test_the_sequence_tells_cache_and_residual_apart(profile: Path) -> None:
    # Alone 25, in the sequence 28, in the step 30.
    assert rows(
        profile,
        "SELECT cache_us, residual_us, contention_us FROM compare WHERE path = 'fc'",
    ) == [(-3.0, -2.0, 0.0)]


def test_kernels_of_the_sequence_are_given_to_modules_in_order(profile: Path) -> None:
    assert (
        rows(
            profile,
            "SELECT kernel.name, module.path, part.method FROM kernel JOIN trace USING (trace_id) "
            "JOIN kernel_module AS part USING (kernel_id) JOIN module USING (module_id) "
            "WHERE trace.role = 'sequence' ORDER BY kernel_id",
        )
        == [("gemm", "fc", "graph_order"), ("add", "", "graph_order")] * 2
    )


def test_the_step_is_not_counted_twice(profile: Path) -> None:
    assert rows(profile, "SELECT kernels, context_us FROM compare WHERE path = 'fc'") == [
        (1.0, 30.0)
    ]


def test_knock_outs_are_differences_of_pairs(profile: Path) -> None:
    assert rows(
        profile,
        "SELECT path, marginal_ns, low_ns, high_ns, samples, base_ns, skipped "
        "FROM knockout JOIN module USING (module_id) ORDER BY path",
    ) == [
        ("", None, None, None, None, None, "it changes its own state"),
        ("fc", 12_853, 10_276, 15_431, 3, 81_000, None),
    ]
    assert rows(
        profile,
        "SELECT path, knockout_us, knockout_low_us, knockout_high_us FROM compare ORDER BY path",
    ) == [("", None, None, None), ("fc", 12.853, 10.276, 15.431)]


def test_the_whole_step_is_predicted_beside_its_bare_length(profile: Path) -> None:
    found = dict(rows(profile, "SELECT kind, ns FROM marginal WHERE module_id IS NULL"))
    assert found["kernel_sum"] == 50_000
    assert found["isolation_sum"] == 50_000
    assert found["predicted"] > 50_000
