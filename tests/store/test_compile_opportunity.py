"""What compiling saves alone and in the whole; the case where the two differ in sign."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection

from cb_trace.store import named_query
from tests.store.profiles import FC_0, FC_1, HEAD, NET, base_rows, opened, replay

# Alone as it is, and alone compiled. The head is a product with a vector that the compiler makes
# pointwise: slower alone, but in the whole it melts into the kernel before it (10 µs there).
ALONE = {FC_0: (40_000, 25_000), FC_1: (28_000, 20_000), HEAD: (12_000, 20_000),
         NET: (150_000, 110_000)}  # fmt: skip


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBPyConnection]:
    rows = base_rows()
    rows["replay"] = [
        replay(2 * number + compiled, module, pair[compiled],
               condition="hot" if compiled else "eager")
        for number, (module, pair) in enumerate(ALONE.items())
        for compiled in (0, 1)
    ]  # fmt: skip
    with opened(tmp_path_factory.mktemp("profile") / "p.duckdb", rows) as connection:
        yield connection


def test_promise_and_delivery_of_each_module(profile: DuckDBPyConnection) -> None:
    found = profile.execute(
        "SELECT path, eager_us, compiled_us, cost_us, promise_us, delivery_us, flip, innermost "
        "FROM compile_opportunity WHERE path IN ('', 'blocks.0.fc', 'blocks.1.fc', 'head')"
    ).fetchall()
    assert found == [
        ("", 150.0, 110.0, 95.0, 40.0, 55.0, None, False),
        ("blocks.0.fc", 40.0, 25.0, 20.0, 15.0, 20.0, None, True),
        ("blocks.1.fc", 28.0, 20.0, 30.0, 8.0, -2.0, "faster alone", True),
        ("head", 12.0, 20.0, 10.0, -8.0, 2.0, "slower alone", True),
    ]


def test_a_sum_that_leaves_something_out_is_no_figure(profile: DuckDBPyConnection) -> None:
    """The blocks do work of their own and were not measured, so neither is their list."""
    found = profile.execute(
        "SELECT path FROM compile_opportunity WHERE path IN ('blocks', 'blocks.0')"
    ).fetchall()
    assert found == []


def test_what_modules_promise_and_what_the_whole_delivers(profile: DuckDBPyConnection) -> None:
    found = profile.sql(named_query("compile_promise").sql).fetchall()
    # 15 + 8 − 8 of three modules; the whole goes from 150 to 95.
    assert found == [("eager", "forward", 3, 15.0, 80.0, 150.0, 95.0, 55.0, 1)]
    order = profile.sql(named_query("compile_opportunity").sql).fetchall()
    assert order[0][1] == ""  # what the whole adds most to: 55 against 40
    assert [row[9] for row in order if row[1] == "head"] == ["slower alone"]


def test_a_difference_within_noise_is_no_flip(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = base_rows()
    rows["replay"] = [
        replay(0, HEAD, 12_000, condition="eager"), replay(1, HEAD, 13_000, condition="hot"),
        replay(2, FC_0, 30_000, condition="hot"),  # never measured as it is
    ]  # fmt: skip
    with opened(tmp_path_factory.mktemp("noise") / "p.duckdb", rows) as connection:
        found = connection.execute("SELECT path, flip FROM compile_opportunity").fetchall()
    assert ("head", None) in found
    assert "blocks.0.fc" not in dict(found)
