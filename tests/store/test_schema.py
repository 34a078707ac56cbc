"""schema.sql and columns.py say the same; every table, view and column says what it means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection

from cb_trace.columns import TABLES
from tests.store.profiles import base_rows, opened

COMPARE = """
    run_id deployment path class phase ts_ns dur_ns perfetto_url calls kernels context_us busy_us
    exposed_us cost_us marginal_us isolated_us isolated_gpu_us isolated_cold_us error_us error_ratio
    launch_us cache_us kernel_choice_us fusion_us overlap_us contention_us idle_us residual_us
    knockout_us knockout_low_us knockout_high_us spread verdict isolated_from cost_low_us
    cost_high_us isolated_low_us isolated_high_us speedup_factor speedup_us speedup_low_us
    speedup_high_us speedup_predicted_us
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBPyConnection]:
    with opened(tmp_path_factory.mktemp("profile") / "p.duckdb", base_rows()) as connection:
        yield connection


def columns_of(profile: DuckDBPyConnection, kind: str) -> dict[str, dict[str, str]]:
    rows = profile.execute(
        f"SELECT c.table_name, c.column_name, c.data_type FROM duckdb_columns() AS c "
        f"JOIN duckdb_{kind}s() AS t ON t.{kind}_name = c.table_name "
        "WHERE NOT t.internal ORDER BY c.table_name, c.column_index"
    ).fetchall()
    found: dict[str, dict[str, str]] = {}
    for table, column, kind_of in rows:
        found.setdefault(table, {})[column] = kind_of
    return found


def test_the_tables_are_those_of_columns(profile: DuckDBPyConnection) -> None:
    found = {
        name: columns for name, columns in columns_of(profile, "table").items() if name[0] != "_"
    }
    assert found == TABLES
    assert {t: list(c) for t, c in found.items()} == {t: list(c) for t, c in TABLES.items()}


def test_every_table_view_and_column_has_a_comment(profile: DuckDBPyConnection) -> None:
    bare = profile.execute("""
        SELECT table_name, NULL FROM duckdb_tables() WHERE NOT internal AND comment IS NULL
        UNION ALL SELECT view_name, NULL FROM duckdb_views() WHERE NOT internal AND comment IS NULL
        UNION ALL SELECT table_name, column_name FROM duckdb_columns()
        WHERE NOT internal AND comment IS NULL
    """).fetchall()
    assert bare == []


def test_the_comment_of_every_time_and_size_names_its_unit(profile: DuckDBPyConnection) -> None:
    units = {"_ns": "ns", "_us": "us", "_bytes": "ytes", "_ratio": "ratio", "_mhz": "MHz"}
    rows = profile.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
    ).fetchall()
    unsaid = [
        (table, column)
        for table, column, comment in rows
        for ending, unit in units.items()
        if column.endswith(ending) and unit not in comment
    ]
    assert unsaid == []


def test_the_public_views_are_those_of_the_design(profile: DuckDBPyConnection) -> None:
    views = columns_of(profile, "view")
    assert {name for name in views if not name.startswith("_")} == {
        "compare", "coverage", "step_partition", "fused_kernel", "kernel_diff", "roofline",
        "host_overhead", "memory_by_module", "compile_opportunity",
    }  # fmt: skip
    assert list(views["compare"]) == COMPARE.split()
