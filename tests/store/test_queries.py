"""The named queries: their headers say what they return, and they run as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from duckdb import DuckDBPyConnection

from cb_trace.errors import CbTraceError
from cb_trace.store import Query, named_queries, named_query, open_profile
from tests.store.profiles import BLOCK_0, FC_0, HEAD, base_rows, opened, replay, write_profile

NAMES = [
    "compile_opportunity", "compile_promise", "host_overheads",
    "hta_disagreements", "isolation_error", "kernels_of_module", "launch_bound", "memory",
    "module_tree",
    "overlap", "roofline", "same_work", "step_time", "top_modules", "unattributed",
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [("bare", ns) for ns in (90_000, 100_000, 110_000)] + [("profiled", 150_000)]
    rows = base_rows() | {
        "replay": [replay(0, HEAD, 30_000), replay(1, FC_0, 21_000, busy_ns=20_000)],
        "step_sample": [
            {"run_id": "r", "kind": kind, "deployment": "eager", "sample": k, "ns": ns}
            for k, (kind, ns) in enumerate(samples)
        ],
        "overhead": [
            {
                "run_id": "r",
                "kind": kind,
                "name": name,
                "launches": launches,
                "count": count,
                "measured": 1,
                "profiled": 3 * value,
                "value": value,
                "low": value,
                "high": value,
                "unit": "ns",
            }
            for kind, name, launches, count, value in (
                ("T4", "aten::mm", None, 2, 2_500.0),
                ("T5", "aten::t", 0, 5, 3_000.0),
            )
        ],
    }
    rows["module_context"][2] |= {"busy_ns": 18_000, "exposed_ns": 13_000}
    return write_profile(tmp_path_factory.mktemp("profile") / "p.duckdb", rows)


@pytest.fixture
def profile(path: Path) -> Iterator[DuckDBPyConnection]:
    with open_profile(path) as connection:
        yield connection


def test_the_queries_of_the_manual_are_there() -> None:
    assert [query.name for query in named_queries()] == NAMES


@pytest.mark.parametrize("query", named_queries(), ids=lambda q: q.name)
def test_a_header_tells_question_columns_units_and_an_example(
    query: Query, profile: DuckDBPyConnection
) -> None:
    relation = profile.sql(query.sql)
    assert relation.columns == list(query.columns)
    assert query.question.endswith("?")
    assert query.no_rows.endswith(".")
    assert f"queries/{query.name}.sql" in query.example
    for column, meaning in query.columns.items():
        assert "µs" in meaning or not column.endswith("_us"), column
        assert "ratio" in meaning or not column.endswith(("_ratio", "share", "spread")), column
    for variable in query.variables:
        assert f"Variables: {variable}," in query.sql


def test_an_unknown_query_names_close_ones() -> None:
    with pytest.raises(CbTraceError, match=r"'top_module' \(did you mean top_modules"):
        named_query("top_module")
    with pytest.raises(CbTraceError, match="there are: compile_opportunity"):
        named_query("../../etc/passwd")


def answer(profile: DuckDBPyConnection, name: str) -> list[tuple[object, ...]]:
    return profile.sql(named_query(name).sql).fetchall()


def test_top_modules_leaves_children_out(profile: DuckDBPyConnection) -> None:
    profile.execute("SET VARIABLE n = 2")
    assert answer(profile, "top_modules") == [
        (None, "eager", "blocks.1.fc", "Linear", "forward", 30.0, 30.0, 0.0, 0.3),
        (None, "eager", "", "Net", "forward", 25.0, 0.0, 25.0, 0.25),
    ]


def test_isolation_error_starts_with_the_largest(profile: DuckDBPyConnection) -> None:
    """The sums that lack a module, 51 µs against 95, are bounds and no errors."""
    assert [(row[1], *row[4:7]) for row in answer(profile, "isolation_error")] == [
        ("head", 10.0, 30.0, 20.0),
        ("blocks.0.fc", 20.0, 21.0, 1.0),
    ]


def test_launch_bound_takes_a_threshold(profile: DuckDBPyConnection) -> None:
    assert answer(profile, "launch_bound") == [
        ("eager", "head", "Linear", "forward", 30.0, 15.0, 15.0, 0.5, 10.0)
    ]
    profile.execute("SET VARIABLE ratio = 0.04")
    assert [row[1] for row in answer(profile, "launch_bound")] == ["head", "blocks.0.fc"]


def test_host_overheads_start_with_what_takes_most(profile: DuckDBPyConnection) -> None:
    assert answer(profile, "host_overheads") == [
        ("T5", "aten::t", 0, None, 5, 1, 3.0, 3.0, 3.0, 9.0, 0.75),
        ("T4", "aten::mm", None, None, 2, 1, 2.5, 2.5, 2.5, 7.5, 0.25),
    ]


def test_step_time_compares_with_bare(profile: DuckDBPyConnection) -> None:
    assert answer(profile, "step_time") == [
        ("r", "bare", "eager", 3, 100.0, 95.0, 105.0, 1.0),
        ("r", "profiled", "eager", 1, 150.0, 150.0, 150.0, 1.5),
    ]


def test_module_tree_is_indented_and_in_order(profile: DuckDBPyConnection) -> None:
    assert [row[0] for row in answer(profile, "module_tree")] == [
        "Net", "  blocks", "    blocks.0", "      blocks.0.fc", "    blocks.1",
        "      blocks.1.fc", "  head",
    ]  # fmt: skip


def test_overlap_splits_the_hidden_part(profile: DuckDBPyConnection) -> None:
    assert answer(profile, "overlap") == [
        (None, "blocks.0.fc", "Linear", "forward", "eager", 20.0, 18.0, 13.0, 2.0, 5.0)
    ]


def test_kernels_of_module_takes_a_path(tmp_path: Path) -> None:
    played = {"trace_id": 1, "name": "gemm", "dur_ns": 9_000, "start_ns": 0}
    rows = base_rows() | {
        "replay": [replay(0, HEAD, 30_000), replay(1, BLOCK_0, 21_000)],
        "trace": [{"trace_id": 1, "run_id": "r", "role": "isolated"}],
        "kernel": [{"kernel_id": 0, **played}, {"kernel_id": 1, **played, "name": "other"}],
        "replay_kernel": [
            {"replay_id": k, "iteration": 0, "position": 0, "kernel_id": k} for k in (0, 1)
        ],
    }
    with opened(tmp_path / "p.duckdb", rows) as profile:
        assert [row[0] for row in answer(profile, "kernels_of_module")] == ["blocks.0"]
        profile.execute("SET VARIABLE module = 'head'")
        assert answer(profile, "kernels_of_module") == [
            ("head", "forward", None, "only there", None, "gemm", 0.0, 1.0, 0.0, 9.0)
        ]


def two_ways(rows: dict[str, Any]) -> dict[str, Any]:
    """The same step as a graph as well, where all takes half of the time."""
    graph = [row | {"deployment": "graph", "ns": row["ns"] // 2} for row in rows["partition"]]
    return rows | {"partition": [*rows["partition"], *graph]}


def two_ranks(rows: dict[str, Any]) -> dict[str, Any]:
    """The recording as rank 0, and the same again as rank 1."""
    found = {
        name: [
            *content,
            *(
                row | {"run_id": "r1"}
                | {k: row[k] + 100 for k in ("module_id", "parent_id") if row.get(k) is not None}
                for row in content
            ),
        ]
        for name, content in rows.items()
    }  # fmt: skip
    traces = [
        {"trace_id": rank, "run_id": run, "role": "foreign", "rank": rank}
        for rank, run in enumerate(("r", "r1"))
    ]
    return found | {"trace": traces}


@pytest.mark.parametrize("query", named_queries(), ids=lambda q: q.name)
def test_no_two_rows_tell_of_different_things_by_the_same_name(
    query: Query, tmp_path: Path
) -> None:
    """Deployments, ranks and phases are named, wherever their figures stand in one table."""
    rows = two_ranks(two_ways(base_rows()))
    rows["module_context"][2] |= {"busy_ns": 18_000}
    rows["module_context"][9] |= {"busy_ns": 18_000}
    rows["replay"] = [replay(0, HEAD, 30_000), replay(1, FC_0, 21_000, busy_ns=20_000)]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        frame = profile.sql(query.sql).pl()
    named = [c for c, kind in frame.schema.items() if kind == pl.String or c == "rank"]
    assert not frame.height or not frame.select(named).is_duplicated().any()


def test_launch_bound_of_a_step_that_was_timed_as_a_graph_only(tmp_path: Path) -> None:
    rows = two_ways(base_rows())
    rows["partition"] = [row for row in rows["partition"] if row["deployment"] == "graph"]
    rows["replay"] = [replay(0, HEAD, 30_000)]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        assert answer(profile, "launch_bound") == [
            ("graph", "head", "Linear", "forward", 30.0, 15.0, 15.0, 0.5, 5.0)
        ]


def test_isolation_error_has_n_rows_of_each_deployment(tmp_path: Path) -> None:
    rows = two_ways(base_rows()) | {"replay": [replay(0, HEAD, 30_000)]}
    with opened(tmp_path / "p.duckdb", rows) as profile:
        profile.execute("SET VARIABLE n = 1")
        assert [row[:2] for row in answer(profile, "isolation_error")] == [
            ("eager", "head"), ("graph", "head"),
        ]  # fmt: skip
