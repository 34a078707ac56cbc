"""``cb-trace compare`` as it is seen: in a terminal, in a file, by a program, in CI."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cb_trace.columns import SCHEMA_VERSION
from tests.commands.running import Cli
from tests.reporters.profiles import RUN, run_row, write_profile

TREE = """\
module       class        cost µs   share   isolated µs   error   spread
────────────────────────────────────────────────────────────────────────
GPT          GPT            970.0   97.0%         900.0     -7%     4.4%
  h          ModuleList     720.0   72.0%       1,000.0    +39%     4.0%
    0        Block          720.0   72.0%       1,000.0    +39%     4.0%
      mlp    MLP            400.0   40.0%         402.0      ~0     6.2%
      attn   Attention      300.0   30.0%         600.0   +100%     3.3%
  head       Linear         100.0   10.0%       skipped       –        –

the step, once over                               µs   share
────────────────────────────────────────────────────────────
modules that hold no other                     800.0   80.0%
glue: work of parents outside their children    70.0    7.0%
idle: waiting for the host                     100.0   10.0%
unattributed                                    30.0    3.0%

step: 1,000.0 µs bare (990.0 to 1,010.0), ×1.20 under the profiler
not measured alone: head: RuntimeError: boom
"""


def test_off_a_terminal_it_is_plain_text(cli: Cli, small: Path) -> None:
    outcome = cli("compare", small)
    assert (outcome.status, outcome.err) == (0, "")
    head, _, rest = outcome.out.partition("\n\n")
    assert head == (
        "nanogpt\nNVIDIA H200 · bf16 · recorded eager · eager deployment · forward · torch 2.13.0"
    )
    assert rest == TREE


def in_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a terminal of some width is sent."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "cb_trace", *arguments],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment},
    )
    os.close(theirs)
    chunks = []
    try:
        while chunk := os.read(ours, 65536):
            chunks.append(chunk)
    except OSError:  # Linux ends a closed terminal this way
        pass
    os.close(ours)
    assert child.wait(timeout=60) == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def without_style(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("columns", [30, 45, 66, 80])
def test_a_narrow_terminal_cuts_names_before_figures(small: Path, columns: int) -> None:
    text = without_style(in_terminal(columns, "compare", str(small)))
    table = text.split("\n\n")[1].splitlines()
    assert all(len(line) <= columns for line in table)
    figures = (["970.0", "-7%"], ["720.0", "+39%"], ["720.0", "+39%"], ["400.0", "~0"])
    for line, whole in zip(table[2:], figures, strict=False):
        assert set(whole) <= set(line.split())


def test_colour_on_a_terminal_only_and_not_with_no_color(small: Path) -> None:
    assert "\x1b[" in in_terminal(100, "compare", str(small))
    quiet = in_terminal(100, "compare", str(small), NO_COLOR="1")
    assert not [code for code in ("\x1b[3", "\x1b[9") if code in quiet]


def test_json(cli: Cli, small: Path) -> None:
    document = json.loads(cli("compare", small, "--format", "json").out)
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["run"]["step_bare_ns"] == 1_000_000
    assert [row["path"] for row in document["rows"]][:2] == ["", "h"]
    for row in document["rows"]:
        assert isinstance(row["ts_ns"], int)
        assert isinstance(row["dur_ns"], int)
        assert f"ts={row['ts_ns']}&dur={row['dur_ns']}" in row["perfetto_url"]
    attention = next(row for row in document["rows"] if row["path"] == "h.0.attn")
    assert attention["cost_us"] == 300.0
    assert attention["error_ratio"] == 1.0
    assert attention["knockout_us"] is None
    assert document["skipped"][0]["reason"] == "RuntimeError: boom"
    assert sum(part["ns"] for part in document["parts"]) == 1_000_000


def test_csv(cli: Cli, small: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("compare", small, "--format", "csv").out)))
    assert [row["path"] for row in rows] == ["", "h", "h.0", "h.0.mlp", "h.0.attn", "head"]
    assert (rows[4]["cost_us"], rows[5]["isolated_us"]) == ("300.0", "")


def test_markdown(cli: Cli, small: Path) -> None:
    lines = cli("compare", small, "--format", "markdown").out.splitlines()
    assert lines[0] == "| module | class | cost µs | share | isolated µs | error | spread |"
    assert lines[1] == "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[3].startswith("| &nbsp;&nbsp;h | ModuleList | 720.0 |")
    assert lines[9].startswith("- step: 1,000.0 µs bare")


@pytest.mark.parametrize(
    ("limit", "named"), [("0.9", ["h.0.attn"]), ("10%", ["h.0.attn", "h ", "h.0 "])]
)
def test_fail_above_names_the_modules(cli: Cli, small: Path, limit: str, named: list[str]) -> None:
    outcome = cli("compare", small, "--fail-above", limit)
    assert outcome.status == 1
    assert "GPT" in outcome.out  # the table is printed all the same
    assert outcome.err.startswith(f"cb-trace: error above {limit} in {len(named)} of the modules")
    assert all(name in outcome.err for name in named)
    assert outcome.err.count("\n") == 1


def test_fail_above_passes_within_noise(cli: Cli, small: Path) -> None:
    assert cli("compare", small, "--fail-above", "97%").status == 0
    assert cli("compare", small, "--module", "h.0.mlp", "--fail-above", "0").status == 0


@pytest.mark.parametrize("limit", ["much", "-1", "nan", "inf%"])
def test_fail_above_wants_a_number(cli: Cli, small: Path, limit: str) -> None:
    outcome = cli("compare", small, f"--fail-above={limit}")
    assert (outcome.status, outcome.out) == (2, "")
    assert "--fail-above wants" in outcome.err


def test_a_trace_without_replays_shows_no_empty_columns(cli: Cli, traced: Path) -> None:
    out = cli("compare", traced).out
    assert "isolated µs" not in out
    assert "isolated: nothing was measured alone in this recording" in out
    assert "step: not timed bare" in out
    assert "\n  block " in out


HOSTILE = "<script>alert(1)</script>[bold]\x1b[31m|`\u202e=1" + "x" * 10_000


def test_hostile_names_are_text(cli: Cli, tmp_path: Path) -> None:
    extra = [{"module_id": 9, "run_id": RUN, "path": HOSTILE, "class": HOSTILE, "parent_id": 0}]
    part = [
        {
            "run_id": RUN, "module_id": 9, "phase": "forward", "deployment": "eager",
            "kind": "busy", "ns": 1,
        }
    ]  # fmt: skip
    run = [run_row(workload=HOSTILE)]
    file = write_profile(tmp_path / "p.duckdb", run=run, module=extra, partition=part)
    for output_format in ("table", "markdown", "csv", "json"):
        outcome = cli("compare", file, "--format", output_format)
        assert outcome.status == 0
        assert "\x1b" not in outcome.out
        assert "\u202e" not in outcome.out
    table = cli("compare", file).out
    assert "<script>alert(1)</script>[bold]" in table
    assert max(len(line) for line in table.splitlines()) < 500
    assert "<script>" not in cli("compare", file, "--format", "markdown").out


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "no such profile"),
        (lambda p: p.mkdir(), "is a folder"),
        (lambda p: p.write_text("{}"), "is not a profile"),
        (lambda p: write_profile(p, run=[run_row(schema_version=999)]), "newer cb-trace"),
    ],
)
def test_what_is_no_profile(cli: Cli, tmp_path: Path, make: object, message: str) -> None:
    file = tmp_path / "x.duckdb"
    make(file)  # type: ignore[operator]
    for command in (["compare"], ["query"], ["perfetto"]):
        outcome = cli(*command, file)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.err
        assert outcome.err.count("\n") <= 2


def test_unknown_module(cli: Cli, small: Path) -> None:
    outcome = cli("compare", small, "-m", "h.0.atn")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == (
        "cb-trace: no module 'h.0.atn' in this profile\n  did you mean h.0.attn, h.0?\n"
    )


def test_a_module_that_is_asked_for_has_its_link(cli: Cli, small: Path) -> None:
    link = "https://ui.perfetto.dev/#!/?url="
    assert link in cli("compare", small, "-m", "h.0.attn").out
    assert link not in cli("compare", small).out  # a link a row would drown the table
    rows = json.loads(cli("compare", small, "--format", "json").out)["rows"]
    assert all(row["perfetto_url"].startswith(link) for row in rows if row["calls"])
