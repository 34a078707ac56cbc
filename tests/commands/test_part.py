"""Parts of a trace by option: a window of time, a range of steps, the name of a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cb_trace import store
from cb_trace.commands.ingest import command
from tests import kineto


def trace_with_steps(path: Path) -> Path:
    """Four steps of 100 µs, 1 ms apart, with one kernel each."""
    events = [kineto.annotation(f"ProfilerStep#{k}", 1000.0 * k, 100) for k in range(4)]
    for k in range(4):
        events.append(kineto.launch(1000.0 * k + 10, 5, correlation=k + 1))
        events.append(kineto.kernel(f"k{k}", 1000.0 * k + 20, 30, correlation=k + 1))
    events.append(kineto.annotation("decode 7", 3010, 80))
    return kineto.write_trace(path, events)


def kernels(tmp_path: Path, *options: str) -> list[str]:
    """The kernels that an ingest with these options keeps."""
    source = trace_with_steps(tmp_path / "t.json")
    target = tmp_path / "t.duckdb"
    result = CliRunner().invoke(command, [str(source), "-o", str(target), *options])
    assert result.exit_code == 0, result.output
    with store.open_profile(target) as connection:
        rows = connection.execute("SELECT name FROM kernel ORDER BY start_ns").fetchall()
    return [name for (name,) in rows]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["k0", "k1", "k2", "k3"]),
        (["--steps", "1-2"], ["k1", "k2"]),
        (["--steps", "3"], ["k3"]),
        (["--window", "900us:2.5ms"], ["k1", "k2"]),
        (["--window", "0ns:0.0005s"], ["k0"]),
    ],
)
def test_a_part_holds_its_kernels_only(
    tmp_path: Path, options: list[str], expected: list[str]
) -> None:
    assert kernels(tmp_path, *options) == expected


def test_a_pattern_names_the_steps(tmp_path: Path) -> None:
    kernels(tmp_path, "--step-pattern", r"^decode \d+$")
    with store.open_profile(tmp_path / "t.duckdb") as connection:
        steps = connection.execute("SELECT name, start_ns FROM step").fetchall()
    assert steps == [("decode 7", 3_010_000)]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--window", "5", "not START:END with units"),
        ("--window", "1:2", "not START:END with units"),
        ("--window", "2ms:1ms", "is empty"),
        ("--window", "1e3ms:2s", "not START:END with units"),
        ("--steps", "a", "not FIRST-LAST"),
        ("--steps", "5-3", "is empty"),
        ("--steps", "-1", "No such option|not FIRST-LAST"),
    ],
)
def test_a_part_that_is_none_is_refused(
    tmp_path: Path, option: str, value: str, words: str
) -> None:
    source = trace_with_steps(tmp_path / "t.json")
    result = CliRunner().invoke(command, [str(source), option, value])
    assert result.exit_code == 2
    assert any(word in result.output for word in words.split("|"))
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
