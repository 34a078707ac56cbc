"""The pages say what the code does: options exist, links lead somewhere, names are public."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import cb_trace
from cb_trace.cli import COMMANDS, group
from cb_trace.store import named_queries
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [page.name for page in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def command_lines() -> list[str]:
    lines = [
        line for page in PAGES for block in blocks(page, "bash") for line in block.splitlines()
    ]
    examples = re.findall(
        r"^  Example: (cb-trace .*)$", (ROOT / "docs/cli.md").read_text("utf-8"), re.M
    )
    return [line for line in [*lines, *examples] if line.startswith("cb-trace ")]


def test_every_row_on_traces_has_its_behaviour_and_a_test_that_names_it() -> None:
    """Rows 1 to 40 of the facts on how traces break."""
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
    assert sorted(int(row) for rows in listed for row in rows.split(",")) == list(range(1, 41))
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    named = {n for text in texts for n in re.findall(r"rows?_(\d+)(?:_and_(\d+))?", text)}
    assert set(map(str, range(1, 41))) <= {number for pair in named for number in pair}


def test_the_reference_is_what_help_prints() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/cli_reference.py"], capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs/cli.md").read_text("utf-8")
    assert page == done.stdout, "run: python docs/cli_reference.py > docs/cli.md"


@pytest.mark.parametrize("line", command_lines())
def test_command_lines_can_be_parsed(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    command = group.get_command(click.Context(group), name)
    assert command is not None, line
    command.make_context(name, arguments)  # raises on an unknown option or a missing argument


def test_the_readme_names_every_command() -> None:
    text = PAGES[0].read_text("utf-8")
    assert not [name for name in COMMANDS if f"`{name}`" not in text]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    local = [target for target in targets if "://" not in target]
    assert not [target for target in local if not (page.parent / target).exists()]


def test_python_blocks_use_public_names() -> None:
    code = "\n".join(block for page in PAGES for block in blocks(page, "python"))
    used = set(re.findall(r"cb_trace\.([A-Za-z_]+)", code))
    assert used
    assert used <= set(cb_trace.__all__)
    compile(code, "docs", "exec")


def test_queries_named_in_the_pages_exist() -> None:
    known = {query.name for query in named_queries()}
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    named = re.findall(r"cb-trace query \S+ ([a-z_]+)", text) + re.findall(r'query\("(\w+)"', text)
    assert named
    assert set(named) <= known


def test_examples_say_which_deployment() -> None:
    """A recording on a GPU has rows of two ways of running, which nobody must add up."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    read = re.findall(r'"[^"]*\bFROM (?:compare|step_partition|roofline)\b[^"]*"', text)
    read += re.findall(r"^.*\.compare\(\).*$", text, re.M)
    assert len(read) >= 5
    assert not [example for example in read if "deployment" not in example]


def test_makefile_targets_named_in_the_pages_exist() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"\bmake (demo|test|lint|format|setup|bench)\b", text))
    assert {"demo", "test", "lint"} <= targets
    assert not [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)]
