"""The frame of the command line: help, versions, errors in one line, quick starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cb_trace.cli import COMMANDS, group, run
from cb_trace.version import VERSION
from tests.commands.running import Cli, python


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(cli: Cli, flag: str) -> None:
    outcome = cli(flag)
    assert outcome.status == 0
    assert all(f"\n  {name} " in outcome.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(cli: Cli, name: str) -> None:
    outcome = cli(name, "-h")
    assert outcome.status == 0
    assert f"Example: cb-trace {name}" in outcome.out


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_agrees_with_the_command(name: str) -> None:
    command = group.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_knows_its_help_whoever_calls_it_first(name: str) -> None:
    command = group.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    alone = command.make_context(name, [], resilient_parsing=True)
    assert alone.help_option_names == ["-h", "--help"]


def test_version_by_module_and_by_name(cli: Cli) -> None:
    assert cli("--version").out == f"cb-trace {VERSION}\n"
    assert python("-m", "cb_trace", "--version").out == f"cb-trace {VERSION}\n"


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from cb_trace.cli import run; run(sys.argv[1:]); "
        "heavy = {'torch', 'polars', 'duckdb', 'numpy', 'pyarrow', 'rich'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    outcome = python("-c", code, *arguments)
    assert outcome.status == 0, outcome.err


def test_compare_imports_neither_torch_nor_polars(small: Path) -> None:
    code = (
        "import sys; from cb_trace.cli import run; run(sys.argv[1:]); "
        "heavy = {'torch', 'polars', 'numpy', 'pyarrow', 'pandas'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    outcome = python("-c", code, "compare", str(small))
    assert outcome.status == 0, outcome.err
    assert "h" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compere"], "No such command 'compere'"),
        (["compare"], "Missing argument 'PROFILE'"),
        (["compare", "x", "--sort", "size"], "Invalid value for '--sort'"),
        (["profile", "nanogpt", "--steps", "0"], "Invalid value for '--steps'"),
    ],
)
def test_usage_errors(cli: Cli, arguments: list[str], message: str) -> None:
    outcome = cli(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    lines = outcome.err.splitlines()
    assert lines[0].startswith("cb-trace: ")
    assert message in lines[0]
    assert len(lines) == 2  # the problem, and where to look


def test_hostile_text_in_a_message_is_escaped(cli: Cli) -> None:
    outcome = cli("compare", "no\x1b[2Jsuch\n[bold]file")
    assert outcome.status == 2
    assert "\x1b" not in outcome.err
    assert "[bold]file" in outcome.err


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("cb_trace.store.open_profile", broken)
    with pytest.raises(ZeroDivisionError):
        run(["compare", "x.duckdb"])


def piped(arguments: str, reader: str) -> subprocess.CompletedProcess[str]:
    command = f"set -o pipefail; {sys.executable} -m cb_trace {arguments} | {reader}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


def test_a_reader_that_leaves_early_is_no_error(small: Path) -> None:
    done = piped(f"query {small} 'FROM range(300000)' --format csv", "head -n 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "range\n", "")


@pytest.mark.parametrize("output_format", ["table", "json"])
@pytest.mark.parametrize(("limit", "status"), [("9000%", 0), ("1%", 1)])
def test_a_gate_holds_though_nobody_reads(
    small: Path, output_format: str, limit: str, status: int
) -> None:
    done = piped(f"compare {small} --format {output_format} --fail-above {limit}", "true")
    assert done.returncode == status, done.stderr
    assert ("error above" in done.stderr) is (status == 1)


LONG_NAME = "n" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", LONG_NAME],
        ["query", LONG_NAME],
        ["whatif", LONG_NAME, "--remove", "h"],
        ["report", LONG_NAME],
        ["serve", LONG_NAME],
        ["perfetto", LONG_NAME],
        ["ingest", LONG_NAME],
        ["replay", f"{LONG_NAME}.zip"],
        ["capture", "nanogpt", "-o", f"{LONG_NAME}.zip"],
        ["doctor", "--measure", "-o", LONG_NAME],
    ],
)
def test_a_name_that_no_file_can_have_is_told_in_one_line(cli: Cli, arguments: list[str]) -> None:
    outcome = cli(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("cb-trace: File name too long: nnn")
    assert len(outcome.err.splitlines()) == 1


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m cb_trace {command}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


def test_output_that_nobody_can_take_is_told_or_left_out(small: Path) -> None:
    full = shell(f"compare {small} >/dev/full")
    assert (full.returncode, full.stderr) == (2, "cb-trace: No space left on device\n")
    assert shell(f"compare {small}.no 2>/dev/full").returncode == 2
    assert shell(f"compare {small} --fail-above 1% >&- 2>&-").returncode == 1
    closed = shell(f"compare {small} >&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    closed = shell(f"compare {small}.no 2>&-")
    assert (closed.returncode, closed.stdout) == (2, "")


def test_no_output_takes_the_place_of_what_is_read_or_of_a_device(cli: Cli, traced: Path) -> None:
    folder = traced.parent
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    trace = folder / "trace.json.gz"
    commands: list[list[str | Path]] = [
        ["report", traced, "-o", traced],
        ["report", traced, traced, "-o", traced],
        ["perfetto", traced, "-o", traced],
        ["ingest", trace, "-o", trace],
        ["ingest", folder, "-o", trace],
    ]
    for command in commands:
        outcome = cli(*command, "--force")
        assert (outcome.status, outcome.out) == (2, "")
        assert "is its own target" in outcome.err
    outcome = cli("perfetto", traced, "-o", trace, "--force")
    assert (outcome.status, outcome.out) == (2, "")
    assert "holds the trace to annotate" in outcome.err
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    commands = [
        ["report", traced],
        ["perfetto", traced],
        ["ingest", trace],
        ["profile", "nanogpt"],
        ["doctor", "--measure"],
    ]
    for command in commands:
        outcome = cli(*command, "-o", pipe, "--force")
        assert outcome.status == 2
        assert "is a pipe or a device" in outcome.err
    pipe.unlink()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
