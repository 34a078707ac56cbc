"""The browser, and reports to open in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cb_trace.reporters.html import render_report
from cb_trace.reporters.html_data import read_report
from cb_trace.reporters.html_diff import Side, read_diff_report
from cb_trace.store import open_profile
from tests.conftest import SAMPLES, Ingested
from tests.reporters.pairs import write_pair
from tests.web.browser import Browser, Page, find_browser
from tests.web.profiles import full_profile

SAMPLE = SAMPLES / "nanogpt_gpt2_b1_s64_bf16.zip"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    opened = Browser(program, tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hand-written profile that fills every section."""
    return full_profile(tmp_path_factory.mktemp("web") / "full.duckdb")


@pytest.fixture(scope="session")
def report(profile: Path) -> str:
    """The address of its report."""
    return write_report(profile)


@pytest.fixture(scope="session")
def sample(ingested: Ingested) -> Path:
    """The profile of a recording that ships, in a folder where a page can be written beside it."""
    made = ingested(SAMPLE)
    beside = tempfile.mkdtemp(prefix="web-", dir=made.parent.parent)  # as far from its trace
    return Path(shutil.copy(made, Path(beside) / "sample.duckdb"))


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two hand-written profiles that fill every section; of other work and hardware."""
    folder = tmp_path_factory.mktemp("pair")
    return write_pair(folder, full_profile, settings='{"batch": 8}', device_name="NVIDIA A100")


@pytest.fixture(scope="session")
def diff(pair: tuple[Path, Path]) -> str:
    """The address of the page of what changed between them."""
    return write_diff(*pair)


@pytest.fixture
def page(browser: Browser, report: str) -> Iterator[Page]:
    """The report, open; at the end nothing may have been written to the console."""
    opened = browser.open(report)
    yield opened
    assert opened.complaints() == []
    opened.close()


def write_report(profile: Path) -> str:
    target = profile.with_suffix(".html")
    with open_profile(profile) as connection:
        target.write_text(render_report(read_report(connection, profile)), encoding="utf-8")
    return target.as_uri()


def write_diff(base: Path, new: Path) -> str:
    target = new.with_suffix(".diff.html")
    with open_profile(base) as old, open_profile(new) as young:
        document = read_diff_report(Side(old, base), Side(young, new))
    target.write_text(render_report(document), encoding="utf-8")
    return target.as_uri()
