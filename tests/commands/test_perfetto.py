"""``cb-trace perfetto`` on a trace of nine events, checked event by event."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cb_trace.bundle import file_sha256, open_bundle, write_bundle
from cb_trace.commands.serve import site_of
from cb_trace.store import open_profile
from tests.bundles import run_record, write_net_bundle
from tests.commands.conftest import TRACE
from tests.commands.running import Cli
from tests.kineto import annotation, kernel, launch, op, write_trace


def annotated(cli: Cli, profile: Path, *more: str | Path) -> tuple[list[Any], list[Any], str]:
    """Kineto's events and ours, in the file that was written, and what was printed."""
    target = profile.with_name("annotated.json.gz")
    outcome = cli("perfetto", profile, "-o", target, "--force", *more)
    assert outcome.status == 0, outcome.err
    document = json.loads(gzip.decompress(target.read_bytes()))
    assert set(document) == {"schemaVersion", "deviceProperties", "traceEvents"}
    ours = [event for event in document["traceEvents"] if is_ours(event)]
    theirs = [event for event in document["traceEvents"] if not is_ours(event)]
    return theirs, ours, outcome.out


def is_ours(event: Any) -> bool:
    return bool(event.get("cat") == "cb_trace" or event["pid"] == 1_000_000_001)


def test_kinetos_events_are_all_there_and_equal(cli: Cli, traced: Path) -> None:
    theirs, _, _ = annotated(cli, traced)
    assert theirs == TRACE


def test_a_process_of_our_own_sorted_first_with_a_row_per_depth(cli: Cli, traced: Path) -> None:
    _, ours, _ = annotated(cli, traced)
    (pid,) = {event["pid"] for event in ours if event["ph"] == "X"}
    assert pid not in {event["pid"] for event in TRACE}
    named = {
        event["name"]: event["args"] for event in ours if event["ph"] == "M" and not event["tid"]
    }
    assert named == {
        "process_name": {"name": "cb-trace"},
        "process_sort_index": {"sort_index": -2},
    }
    rows = [event["args"]["name"] for event in ours if event["name"] == "thread_name"]
    assert rows == ["forward, depth 0", "forward, depth 1"]


def test_slices_have_the_times_and_figures_of_their_calls(cli: Cli, traced: Path) -> None:
    _, ours, _ = annotated(cli, traced)
    root, block = [event for event in ours if event["ph"] == "X"]
    assert (root["ts"], root["dur"], root["args"]["path"]) == (1.0, 99.0, "")
    assert (block["name"], block["ts"], block["dur"]) == ("block", 10.0, 50.0)
    assert block["args"]["call"] == 0
    assert block["args"]["cost_us"] > 0
    assert "isolated_us" not in block["args"]  # not measured: absent, not 0


def test_the_sql_of_a_slice_reproduces_it(cli: Cli, traced: Path) -> None:
    _, ours, _ = annotated(cli, traced)
    args = next(event for event in ours if event["name"] == "block")["args"]
    document = json.loads(cli("query", traced, args["sql"], "--format", "json").out)
    assert [row["path"] for row in document["rows"]] == ["block"]
    assert document["rows"][0]["cost_us"] == args["cost_us"]


def test_arrows_lead_from_each_call_to_its_kernels(cli: Cli, traced: Path) -> None:
    _, ours, _ = annotated(cli, traced)
    slices = {event["name"]: event for event in ours if event["ph"] == "X"}
    starts = {event["id"]: event for event in ours if event["ph"] == "s"}
    ends = [event for event in ours if event["ph"] == "f"]
    assert {event["cat"] for event in [*starts.values(), *ends]} == {"cb_trace"}
    assert [(event["ts"], event["pid"], event["tid"], event["bp"]) for event in ends] == [
        (75.125, 0, 7, "e"),
        (20.0, 0, 7, "e"),
    ]
    for event, name in zip(ends, ("(trace)", "block"), strict=True):
        start = starts[event["id"]]
        assert (start["tid"], start["ts"]) == (slices[name]["tid"], slices[name]["ts"])
        assert start["ts"] <= event["ts"]
    order = [event["ph"] for event in ours if event["ph"] in "Xsf"]
    assert order == sorted(order, key="Xsf".index) or order[:2] == ["X", "X"]


def test_arrows_of_a_cpu_recording_lead_to_operators_once(cli: Cli, tmp_path: Path) -> None:
    bundle = write_net_bundle(tmp_path / "net", run=run_record(device_type="cpu"))
    events = [
        annotation("ProfilerStep#0", 1000, 100),
        annotation("cb:<root>", 1000, 90),
        op("aten::outer", 1010, 30),
        op("aten::inner", 1020, 5),  # the outer one goes on where this one ends
    ]
    file = write_trace(bundle / "context.json.gz", events, baseTimeNanoseconds=0)
    manifest = open_bundle(bundle).manifest
    context = replace(manifest.traces[0], sha256=file_sha256(file))
    write_bundle(bundle, replace(manifest, traces=[context, *manifest.traces[1:]]))
    assert cli("ingest", bundle, "-o", tmp_path / "cpu.duckdb").status == 0
    assert cli("perfetto", tmp_path / "cpu.duckdb", "-o", tmp_path / "a.json").status == 0
    written = json.loads((tmp_path / "a.json").read_bytes())["traceEvents"]
    assert [event["ts"] for event in written if event["ph"] == "f"] == [1010.0, 1020.0]


def test_a_module_cuts_the_file_to_what_happens_around_it(cli: Cli, tmp_path: Path) -> None:
    """What touches the first call stays whole, the rest goes: kernels of the one after it, too."""
    events = [
        annotation("ProfilerStep#0", 0.0, 5000.0),
        annotation("cb:<root>", 1.0, 4900.0),
        annotation("cb:early", 10.0, 50.0),
        op("aten::mm", 11.0, 8.0),
        launch(12.0, 2.0, 1),
        kernel("early_kernel", 100.0, 40.5, 1),  # after its call has returned
        annotation("cb:next", 60.0, 50.0),  # from the very end of the first
        launch(62.0, 2.0, 3),
        kernel("next_kernel", 3000.0, 5.0, 3),
        annotation("cb:late", 4000.0, 50.0),
        op("aten::relu", 4011.0, 8.0),
        launch(4012.0, 2.0, 2),
        kernel("late_kernel", 4020.0, 5.0, 2),
    ]
    write_trace(tmp_path / "trace.json.gz", events)
    assert cli("ingest", tmp_path / "trace.json.gz", "-o", tmp_path / "t.duckdb").status == 0
    theirs, ours, _ = annotated(cli, tmp_path / "t.duckdb", "-m", "early")
    assert theirs == [event for event in events if event["ts"] < 3000]
    assert {event["name"] for event in ours if event["ph"] == "X"} == {"(trace)", "early", "next"}
    assert [event["ts"] for event in ours if event["ph"] == "f"] == [100.0]
    theirs, _, _ = annotated(cli, tmp_path / "t.duckdb", "-m", "early", "--whole")
    assert theirs == events


def test_counters_say_how_many_kernels_run_and_how_the_device_is_idle(
    cli: Cli, traced: Path
) -> None:
    _, ours, _ = annotated(cli, traced)
    steps: dict[str, list[tuple[float, float]]] = {}
    for event in ours:
        if event["ph"] == "C":
            steps.setdefault(event["name"], []).append((event["ts"], event["args"]["value"]))
    assert steps["kernels running"] == [(20.0, 1), (60.5, 0), (75.125, 1), (80.125, 0)]
    assert steps["idle: waiting for the host"][:2] == [(0.0, 1), (20.0, 0)]
    assert (60.5, 1) in steps["idle: waiting for the host"]


def test_links(cli: Cli, traced: Path) -> None:
    _, ours, out = annotated(cli, traced)
    root = next(event for event in ours if event["ph"] == "X")
    (link,) = out.splitlines()
    fields = parse_qs(urlsplit(link).fragment.removeprefix("!/?"))
    assert (fields["ts"], fields["dur"]) == (["1000"], ["99000"])
    assert (fields["pid"], fields["tid"]) == ([str(root["pid"])], [str(root["tid"])])
    _, _, out = annotated(cli, traced, "-m", "block", "-m", "<root>")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["block", "(root)"]
    assert "ts=10000&dur=50000" in out.splitlines()[0]
    _, _, out = annotated(cli, traced, "--perfetto-ui", "http://localhost:10000")
    assert out.startswith("http://localhost:10000/#!/?url=")


def test_the_header_is_filtered(cli: Cli, traced: Path) -> None:
    annotated(cli, traced)
    text = gzip.decompress(traced.with_name("annotated.json.gz").read_bytes())
    assert b"s3cret" not in text


def test_plain_json_and_default_name(cli: Cli, traced: Path) -> None:
    assert cli("perfetto", traced, "-o", traced.with_name("a.json")).status == 0
    events = json.loads(traced.with_name("a.json").read_bytes())["traceEvents"]
    assert [event for event in events if not is_ours(event)] == TRACE
    assert cli("perfetto", traced).status == 0
    assert traced.with_name("traced.annotated.json.gz").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "blok"], "no module 'blok'"),
        (["--perfetto-ui", "javascript:alert(1)"], "wants an address"),
        (["-o", "no/such/folder/x.json"], "no such folder"),
    ],
)
def test_mistakes_write_nothing(cli: Cli, traced: Path, arguments: list[str], message: str) -> None:
    before = sorted(traced.parent.iterdir())
    outcome = cli("perfetto", traced, *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err
    assert sorted(traced.parent.iterdir()) == before


def test_nothing_is_overwritten_unasked(cli: Cli, traced: Path) -> None:
    assert cli("perfetto", traced).status == 0
    outcome = cli("perfetto", traced)
    assert outcome.status == 2
    assert "--force" in outcome.err


def test_trace_that_is_gone_or_another(cli: Cli, traced: Path) -> None:
    trace = traced.with_name("trace.json.gz")
    content = trace.read_bytes()
    trace.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    outcome = cli("perfetto", traced)
    assert outcome.status == 2
    assert "is not the trace this profile was made from" in outcome.err
    trace.unlink()
    outcome = cli("perfetto", traced)
    assert outcome.status == 2
    assert f"is gone: it was expected at {trace}" in outcome.err
    assert not traced.with_name("traced.annotated.json.gz").exists()
    trace.write_bytes(content)
    assert cli("perfetto", traced).status == 0


def test_of_several_ranks_the_trace_is_that_of_the_one_named(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        info = {"rank": rank, "world_size": 2}
        events = [*TRACE, kernel(f"of rank {rank}", 5_000, 1, 0)]
        write_trace(folder / f"rank{rank}.json", events, distributedInfo=info)
    profile = tmp_path / "ranks.duckdb"
    assert cli("ingest", folder, "-o", profile).status == 0
    for rank, more in ((0, ()), (1, ("--rank", "1"))):
        target = tmp_path / f"{rank}.json"
        assert cli("perfetto", profile, "-o", target, *more).status == 0
        names = {event["name"] for event in json.loads(target.read_text("utf-8"))["traceEvents"]}
        assert {name for name in names if name.startswith("of rank")} == {f"of rank {rank}"}
    outcome = cli("perfetto", profile, "-o", tmp_path / "no.json", "--rank", "2")
    assert outcome.status == 2
    assert "holds no trace of rank 2" in outcome.err
    module = json.loads(cli("compare", profile, "--format", "json").out)["rows"][0]["path"]
    shown = cli("compare", profile, "--rank", "1", "-m", module).out
    assert "while 'cb-trace perfetto PROFILE --rank 1 --open' serves it" in shown
    with open_profile(profile) as connection:
        site = site_of(connection, profile, 1, None, tmp_path)
        assert b'"of rank 1"' in gzip.decompress(site.trace().read_bytes())
