"""The empty profile that is kept: the same as a fresh one, and never in the way."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cb_trace.store import create, template

PUBLIC = """
SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE NOT internal
UNION ALL
SELECT table_name || '.' || column_name || ' ' || data_type, comment
FROM duckdb_columns() WHERE NOT internal
ORDER BY ALL
"""


def catalog(path: Path) -> list[tuple[str, str]]:
    with duckdb.connect(path, read_only=True) as connection:
        return connection.execute(PUBLIC).fetchall()


def make(path: Path) -> Path:
    with create(path):
        pass
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cb-trace"


def test_the_second_profile_is_a_copy_with_all_that_the_first_has(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path / "first.duckdb")
    assert [p.suffix for p in cache.iterdir()] == [".duckdb"]
    monkeypatch.setattr(template, "_make", lambda _: pytest.fail("made again"))
    second = make(tmp_path / "second.duckdb")
    assert catalog(first) == catalog(second)
    assert {"kernel", "compare", "kernel.dur_ns BIGINT"} <= {name for name, _ in catalog(second)}
    # DuckDB knows files by a number in them: copies must still go side by side
    with duckdb.connect() as connection:
        for name in ("first", "second"):
            connection.execute(f"ATTACH '{tmp_path / name}.duckdb' AS {name} (READ_ONLY)")
        assert connection.execute("SELECT * FROM first.compare, second.compare").fetchall() == []


def test_a_changed_script_makes_another(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "old.duckdb")
    old = list(cache.iterdir())
    text = template.script
    more = "\nCREATE TABLE more (x INTEGER);"
    monkeypatch.setattr(template, "script", lambda name: text(name) + more * (name == "schema.sql"))
    assert "more" in {name for name, _ in catalog(make(tmp_path / "new.duckdb"))}
    assert len(list(cache.iterdir())) == 1
    assert list(cache.iterdir()) != old


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path, cache: Path) -> None:
    cache.parent.write_text("a file, no folder")
    assert catalog(make(tmp_path / "p.duckdb"))


def test_a_damaged_copy_is_made_again(tmp_path: Path, cache: Path) -> None:
    whole = catalog(make(tmp_path / "p.duckdb"))
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:70_000])
    assert catalog(make(tmp_path / "q.duckdb")) == whole
    assert kept.stat().st_size > 70_000
