"""DuckDB's engine, begun in a thread or when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from cb_trace import engine

WANTED = "SELECT current_setting('temp_directory'), current_setting('fsync_mode')"


@pytest.mark.parametrize("early", [False, True])
def test_an_engine_has_its_folder_and_syncs_nothing(tmp_path: Path, early: bool) -> None:
    folder = str(tmp_path / "it's here")
    if early:
        engine.begin()
        engine.begin()  # one is enough
    with engine.connect(folder) as connection:
        assert connection.execute(WANTED).fetchall() == [(folder, "NONE")]
    assert not engine._begun


def test_each_asks_for_its_own(tmp_path: Path) -> None:
    engine.begin()
    with engine.connect(str(tmp_path)) as first, engine.connect(str(tmp_path)) as second:
        first.execute("CREATE TABLE a (b INTEGER)")
        assert second.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]


def test_the_errors_are_those_of_the_package() -> None:
    with pytest.raises(engine.module().Error) as caught:
        duckdb.execute("SELECT nothing")
    assert isinstance(caught.value, duckdb.BinderException)


def test_without_such_an_engine_the_package_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def other(name: str) -> object:
        return SimpleNamespace() if name == "_duckdb" else importlib.import_module(name)

    monkeypatch.setattr(engine, "import_module", other)
    assert engine.module() is duckdb
    engine.begin()
    with engine.connect(str(tmp_path)) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_an_engine_that_does_not_start_is_told_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "_SETTINGS", {"no_such_setting": True})
    engine.begin()
    with pytest.raises(duckdb.Error, match="no_such_setting"):
        engine.connect(str(tmp_path))
