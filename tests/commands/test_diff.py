"""``cb-trace diff``: text, JSON, and a gate for CI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.running import Cli
from tests.reporters.pairs import write_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"))


def test_the_table_says_what_changed_and_what_is_noise(cli: Cli, pair: tuple[Path, Path]) -> None:
    outcome = cli("diff", *pair)
    assert outcome.status == 0, outcome.err
    lines = {line.split()[0]: line for line in outcome.out.splitlines() if line.strip()}
    assert "1,020.0 µs bare → 1,131.0 µs bare: +111.0 µs (+10.9%" in lines["step:"]
    assert lines["mlp"].split()[2:] == ["400.0", "480.0", "+80.0", "+20.0%", "+71.2", "to", "+88.8"]
    assert "within noise" in lines["attn"]
    assert "added" in lines["extra"]
    assert "removed" in lines["old"]
    assert "NOT" not in outcome.out


def test_other_work_and_hardware_are_said_first_and_loudly(cli: Cli, tmp_path: Path) -> None:
    base, new = write_pair(
        tmp_path, settings='{"batch": 8}', device_name="NVIDIA A100", dtype="fp32"
    )
    lines = cli("diff", base, new).out.splitlines()
    assert lines[1].startswith("NOT THE SAME WORK: batch 4 → 8; dtype bf16 → fp32.")
    assert lines[2].startswith("NOT THE SAME HARDWARE: device NVIDIA H200 → NVIDIA A100.")


def test_a_step_under_the_profiler_is_no_bare_step(cli: Cli, tmp_path: Path) -> None:
    base, new = write_pair(tmp_path, step_bare_ns=None)
    lines = cli("diff", base, new).out.splitlines()
    assert lines[1].startswith("NOT THE SAME WORK: step timed bare → under the profiler.")
    outcome = cli("diff", base, new, "--fail-above", "5%")
    assert outcome.status == 2
    assert "cannot hold a bare step against one under the profiler" in outcome.err


def test_json_has_both_sides_and_their_links(cli: Cli, pair: tuple[Path, Path]) -> None:
    document = json.loads(cli("diff", *pair, "--format", "json").out)
    assert document["step"]["step_change_us"] == 111
    rows = {row["path"]: row for row in document["rows"]}
    mlp = rows["h.0.mlp"]
    assert (mlp["base_cost_us"], mlp["new_cost_us"], mlp["cost_change_us"]) == (400, 480, 80)
    assert mlp["cost_within_noise"] is False
    assert mlp["base_perfetto_url"].startswith("https://ui.perfetto.dev/")
    assert mlp["new_perfetto_url"] is not None
    assert rows["old"]["presence"] == "removed"
    assert rows["old"]["new_verdict"] is None


@pytest.mark.parametrize("given", ["csv", "markdown"])
def test_other_formats_have_a_line_a_module(cli: Cli, pair: tuple[Path, Path], given: str) -> None:
    out = cli("diff", *pair, "--format", given).out
    assert len([line for line in out.splitlines() if "Adapter" in line]) == 2


def test_a_gate_fails_on_growth_beyond_noise_only(cli: Cli, pair: tuple[Path, Path]) -> None:
    outcome = cli("diff", *pair, "--fail-above", "15%")
    assert outcome.status == 1
    assert outcome.err.startswith("cb-trace: cost grew by over 15%: h.0.mlp +20.0%")
    assert "attn" not in outcome.err
    assert cli("diff", *pair, "--fail-above", "25%").status == 0
    assert "the step" not in cli("diff", *reversed(pair), "--fail-above", "0").err  # it shrank


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--deployment", "graph"], "do not both have graph"), (["-m", "hh"], "no module 'hh'")],
)
def test_mistakes(cli: Cli, pair: tuple[Path, Path], arguments: list[str], message: str) -> None:
    outcome = cli("diff", *pair, *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err
