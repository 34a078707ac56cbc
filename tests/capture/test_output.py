"""Where a bundle goes: whole or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from cb_trace.bundle import MANIFEST, is_bundle
from cb_trace.capture.output import bundle_at
from cb_trace.errors import CbTraceError


def fill(folder: Path, text: str = "{}") -> None:
    (folder / MANIFEST).write_text(text)


def test_a_zip_or_a_folder_by_its_name(tmp_path: Path) -> None:
    for name in ("a.zip", "b"):
        with bundle_at(tmp_path / name) as folder:
            fill(folder)
            assert not (tmp_path / name).exists()
        assert is_bundle(tmp_path / name)
    assert zipfile.is_zipfile(tmp_path / "a.zip")
    assert (tmp_path / "b").is_dir()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "b"]


@pytest.mark.parametrize("name", ["a.zip", "b"])
def test_a_failed_recording_leaves_the_old_bundle(tmp_path: Path, name: str) -> None:
    with bundle_at(tmp_path / name) as folder:
        fill(folder, "old")

    def failing() -> None:
        with bundle_at(tmp_path / name, force=True) as folder:
            fill(folder, "new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    old = zipfile.ZipFile(tmp_path / name).read(MANIFEST) if name == "a.zip" else None
    assert (old or (tmp_path / name / MANIFEST).read_bytes()) == b"old"


@pytest.mark.parametrize("name", ["a.zip", "b"])
def test_force_replaces_a_bundle(tmp_path: Path, name: str) -> None:
    for text in ("old", "new"):
        with bundle_at(tmp_path / name, force=True) as folder:
            fill(folder, text)
            (folder / f"{text}.txt").touch()
    if name == "b":
        assert sorted(p.name for p in (tmp_path / name).iterdir()) == [MANIFEST, "new.txt"]
    else:
        assert sorted(zipfile.ZipFile(tmp_path / name).namelist()) == [MANIFEST, "new.txt"]


def test_refused_targets(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    (tmp_path / "old.zip").touch()
    for name, force, words in (
        ("x.duckdb", False, "a folder or a .zip, not x.duckdb"),
        ("no/where.zip", False, "no such folder"),
        ("old.zip", False, "exists (add --force, or in Python force=True)"),
        ("mine", True, "exists and is no bundle"),
    ):
        with pytest.raises(CbTraceError) as caught, bundle_at(tmp_path / name, force=force):
            pytest.fail("it was let through")
        assert words in str(caught.value)
    assert (tmp_path / "mine" / "thesis.tex").exists()
