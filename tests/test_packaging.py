"""The wheel: one import package, with the linked folders in it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_it_installs_only_cb_trace(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"cb_trace"}


def test_the_linked_folders_and_data_are_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"cb_trace/queries/{p.name}" for p in (ROOT / "queries").glob("*.sql")}
    wanted |= {f"cb_trace/replay/{p.name}" for p in (ROOT / "replay").glob("*.py")}
    wanted |= {f"cb_trace/store/{p.name}" for p in (ROOT / "cb_trace" / "store").glob("*.sql")}
    wanted |= {"cb_trace/py.typed"}
    assert wanted - names == set()


def test_it_works_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        "import cb_trace.replay, cb_trace.store\n"
        "print(cb_trace.replay.__file__)\n"
        "print(cb_trace.store.named_query('top_modules').question)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,  # first on the path, before the source tree's editable install
        check=True,
        capture_output=True,
        text=True,
    )
    where, question = done.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert question.startswith("Which modules cost")
