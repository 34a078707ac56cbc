"""``cb-trace ingest``: outputs, overwriting, bad input."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.commands.conftest import TRACE
from tests.commands.running import Cli, python
from tests.kineto import kernel, write_trace


def test_profile_is_named_after_the_source(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "rank0.pt.trace.json.gz", TRACE)
    outcome = cli("ingest", "rank0.pt.trace.json.gz")
    assert (outcome.status, outcome.out) == (0, "")
    assert "2 kernels" in outcome.err
    assert "Wrote rank0.pt.trace.duckdb" in outcome.err
    assert (tmp_path / "rank0.pt.trace.duckdb").is_file()


def test_a_process_of_its_own_tells_all_before_it_ends(tmp_path: Path) -> None:
    source, target = write_trace(tmp_path / "t.json", TRACE), tmp_path / "t.duckdb"
    command = ("-m", "cb_trace", "ingest", str(source), "-o", str(target))
    first = python(*command)
    assert (first.status, first.out) == (0, "")
    assert first.err.splitlines()[-1] == f"next: cb-trace compare {target}"
    again = python(*command)
    assert (again.status, again.out) == (2, "")
    assert f"{target} exists" in again.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.duckdb", "t.json"]


def test_a_folder_of_ranks(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        info = {"rank": rank, "world_size": 2}
        write_trace(folder / f"rank{rank}.json", TRACE, distributedInfo=info)
    target = tmp_path / "ranks.duckdb"
    assert cli("ingest", folder, "-o", target).status == 0
    document = json.loads(cli("compare", target, "--rank", "1", "--format", "json").out)
    assert document["run"]["rank"] == 1
    assert cli("compare", target, "--rank", "2").status == 2


def test_nothing_is_overwritten_unasked(cli: Cli, tmp_path: Path) -> None:
    source, target = write_trace(tmp_path / "t.json", TRACE), tmp_path / "t.duckdb"
    assert cli("ingest", source, "-o", target).status == 0
    before = target.read_bytes()
    outcome = cli("ingest", source, "-o", target)
    assert outcome.status == 2
    assert "exists" in outcome.err
    assert "--force" in outcome.err
    assert target.read_bytes() == before
    assert cli("ingest", source, "-o", target, "--force").status == 0


BAD = {
    "text.json": b"not json at all",
    "chakra.json": b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}',
    "empty.json": b"",
    "damaged.json.gz": b"\x1f\x8b\x08\x00" + b"\xff" * 40,
    "cut.json.gz": gzip.compress(b'{"traceEvents": [')[:12],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_leaves_nothing_behind(cli: Cli, tmp_path: Path, name: str) -> None:
    source, target = tmp_path / name, tmp_path / "out" / "p.duckdb"
    source.write_bytes(BAD[name])
    target.parent.mkdir()
    outcome = cli("ingest", source, "-o", target)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("cb-trace: ")
    assert len(outcome.err.splitlines()) <= 2
    assert list(target.parent.iterdir()) == []


def test_missing_source_and_missing_folder(cli: Cli, tmp_path: Path) -> None:
    assert cli("ingest", tmp_path / "no.json").status == 2
    source = write_trace(tmp_path / "t.json", TRACE)
    outcome = cli("ingest", source, "-o", tmp_path / "no" / "p.duckdb")
    assert outcome.status == 2
    assert "no such folder" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["ingest", "t.json", "-o", "/proc/x.duckdb"],
        ["perfetto", "p.duckdb", "-o", "/proc/x.json.gz"],
        ["capture", "nanogpt", "--device", "cpu", "-o", "/proc/x.zip"],
        ["profile", "nanogpt", "--device", "cpu", "-o", "/proc/x.duckdb"],
    ],
)
def test_folder_that_nobody_can_write(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """/proc takes no file, not even from root."""
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "t.json", TRACE)
    assert cli("ingest", "t.json", "-o", "p.duckdb").status == 0
    outcome = cli(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("cb-trace: cannot write"), outcome.err
    assert len(outcome.err.splitlines()) <= 2


def ranks(folder: Path) -> Path:
    folder.mkdir()
    for rank in range(2):
        write_trace(folder / f"rank{rank}.json", TRACE, distributedInfo={"rank": rank})
    return folder


@pytest.mark.parametrize("kind", ["link", "pipe", "config", "empty"])
def test_a_rank_is_not_left_out_in_silence(cli: Cli, tmp_path: Path, kind: str) -> None:
    odd = ranks(tmp_path / "ranks") / "rank2.json"
    if kind == "link":
        odd.symlink_to(odd)
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.write_text('{"a": 1}' if kind == "config" else "")
    outcome = cli("ingest", odd.parent, "-o", tmp_path / "p.duckdb")
    assert (outcome.status, outcome.out) == (2, "")
    assert "rank2.json" in outcome.err.splitlines()[0]
    assert "move" in outcome.err.splitlines()[1]
    assert not (tmp_path / "p.duckdb").exists()


def test_notes_name_the_rank_s_file_and_ranks_given_out(cli: Cli, tmp_path: Path) -> None:
    folder = ranks(tmp_path / "ranks")
    write_trace(folder / "rank1.json", [*TRACE, kernel("alone", 9, 1, 0)])
    write_trace(folder / "again.json", TRACE, distributedInfo={"rank": 1})
    outcome = cli("ingest", folder, "-o", tmp_path / "p.duckdb")
    assert outcome.status == 0
    notes = [line for line in outcome.err.splitlines() if line.startswith("note: ")]
    said = "1 no launch in file; two files have one rank; this one is 2"
    assert notes == [f"note: rank1.json: {said}"]


@pytest.mark.parametrize("place", ["source", "target", "folder"])
def test_a_name_that_is_no_utf_8_is_refused(cli: Cli, tmp_path: Path, place: str) -> None:
    folder = ranks(tmp_path / "ranks")
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/a\xff.json"))
    source = odd if place == "source" else folder
    target = odd if place == "target" else tmp_path / "p.duckdb"
    if place != "target":
        write_trace(odd, TRACE)
    outcome = cli("ingest", source, "-o", target)
    assert (outcome.status, outcome.out) == (2, "")
    assert "is not UTF-8" in outcome.err
    assert len(outcome.err.splitlines()) == 2


def test_row_7_damage_in_mid_stream_is_loaded_and_is_no_success(cli: Cli, tmp_path: Path) -> None:
    noise = [kernel(f"k{i * 7919 % 104_729}", 200 + i, 1, 0) for i in range(3000)]
    packed = write_trace(tmp_path / "sound.json.gz", [*TRACE, *noise]).read_bytes()
    source, target = tmp_path / "t.json.gz", tmp_path / "t.duckdb"
    source.write_bytes(packed[: len(packed) // 2] + packed[: len(packed) // 2])
    outcome = cli("ingest", source, "-o", target)
    assert (outcome.status, target.is_file()) == (1, True)
    assert "several ranks wrote one file at once?" in outcome.err
    assert "t.json.gz is damaged: only what decodes was loaded" in outcome.err
    assert cli("ingest", source, "-o", target, "--force", "--partial").status == 0
    source.write_bytes(packed[:-200])  # cut, as a full disk does: no damage
    assert cli("ingest", source, "-o", target, "--force").status == 0


@pytest.mark.parametrize("text", ['{"traceEvents": [}', "[}", "[1, 2]", '{"traceEvents": [xyz]}'])
def test_row_7_damaged_text_is_no_empty_success(text: str, cli: Cli, tmp_path: Path) -> None:
    source, target = tmp_path / "t.json", tmp_path / "t.duckdb"
    source.write_text(text)
    outcome = cli("ingest", source, "-o", target)
    assert (outcome.status, target.is_file()) == (1, True)
    assert "t.json is damaged: only what decodes was loaded" in outcome.err
    assert cli("ingest", source, "-o", target, "--force", "--partial").status == 0


@pytest.mark.parametrize("text", ['{"traceEvents": [', '{"traceEvents": [{"ph": "X", "na', "[,]"])
def test_row_12_a_file_cut_before_its_first_event_is_empty(
    text: str, cli: Cli, tmp_path: Path
) -> None:
    source = tmp_path / "t.json"
    source.write_text(text)
    outcome = cli("ingest", source, "-o", tmp_path / "t.duckdb")
    assert outcome.status == 0
    assert "0 truncated tail" not in outcome.err
