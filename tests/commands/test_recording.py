"""profile, capture and replay: a workload on the CPU, end to end, and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import BadParameter

from cb_trace.bundle import open_bundle
from cb_trace.cli import run
from cb_trace.commands.options import seconds
from tests.commands.running import Cli, python

PAIR = "tests.commands.workloads:pair"
FAST = ("--device", "cpu", "--steps", "1")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pair.duckdb`` with ``pair.zip`` beside it, from one command line."""
    target = tmp_path_factory.mktemp("recorded") / "pair.duckdb"
    arguments = ["profile", PAIR, "--set", "rows=6", *FAST, "--budget", "2", "-o", str(target)]
    assert run(arguments) == 0
    return target


def test_profile_gives_a_profile_with_its_bundle_beside_it(recorded: Path, cli: Cli) -> None:
    assert sorted(path.name for path in recorded.parent.iterdir()) == ["pair.duckdb", "pair.zip"]
    document = json.loads(cli("compare", recorded, "--format", "json").out)
    rows = {row["path"]: row for row in document["rows"]}
    assert set(rows) == {"", "first", "second"}
    assert all(row["cost_us"] > 0 and row["isolated_us"] > 0 for row in rows.values())
    step = document["run"]["step_bare_ns"]
    assert sum(part["ns"] for part in document["parts"]) == step
    settings = cli("query", recorded, "SELECT settings FROM run", "--format", "json").out
    assert int(json.loads(json.loads(settings)["rows"][0]["settings"])["rows"]) == 6


def test_perfetto_of_a_recording_shows_the_replays(
    recorded: Path, cli: Cli, tmp_path: Path
) -> None:
    target = tmp_path / "a.json"
    assert cli("perfetto", recorded, "-o", target).status == 0
    events = json.loads(target.read_bytes())["traceEvents"]
    pids = {
        event["args"]["name"]: event["pid"]
        for event in events
        if event.get("name") == "process_name" and event["args"]["name"].startswith("cb-trace")
    }
    assert set(pids) == {"cb-trace", "cb-trace isolated"}
    slices = [event for event in events if event["ph"] == "X"]
    here = [e for e in slices if e["pid"] == pids["cb-trace"] and e["name"] == "second"]
    alone = [e for e in slices if e["pid"] == pids["cb-trace isolated"] and e["name"] == "second"]
    assert alone[0]["ts"] in {event["ts"] for event in here}  # beside the call it stands for
    assert round(alone[0]["dur"] * 1000) == alone[0]["args"]["median_ns"]
    assert here[-1]["args"]["error_ratio"] == pytest.approx(
        here[-1]["args"]["isolated_us"] / here[-1]["args"]["cost_us"] - 1
    )
    kernels = [e for e in slices if "aten::addmm" in e["name"] and e["pid"] in pids.values()]
    assert kernels


def test_capture_then_replay_then_ingest(cli: Cli, tmp_path: Path) -> None:
    folder, target = f"{tmp_path}/bundle/", tmp_path / "p.duckdb"
    outcome = cli("capture", PAIR, *FAST, "-o", folder)
    assert (outcome.status, outcome.out) == (0, "")
    assert open_bundle(Path(folder)).manifest.replays == []
    outcome = cli("replay", folder, "--device", "cpu", "--budget", "2")
    assert outcome.status == 0, outcome.err
    assert "measured 3 modules alone, skipped 0" in outcome.err
    assert {replay.path for replay in open_bundle(Path(folder)).manifest.replays} == {
        "", "first", "second"
    }  # fmt: skip
    assert cli("ingest", folder, "-o", target).status == 0
    assert cli("compare", target).status == 0


def test_bundle_without_the_reading_half(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('polars', 'duckdb', 'pyarrow'): sys.modules[name] = None\n"
        "from cb_trace.cli import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    target = tmp_path / "pair.zip"
    outcome = python("-c", code, "profile", PAIR, *FAST, "--budget", "1", "-o", str(target))
    assert (outcome.status, outcome.out) == (0, ""), outcome.err
    assert open_bundle(target).manifest.replays
    assert [path.name for path in tmp_path.iterdir()] == ["pair.zip"]


def test_a_profile_without_the_reading_half_is_refused_before_the_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cb_trace.commands.options.installed", lambda name: name == "torch")
    outcome = cli("profile", PAIR, "-o", tmp_path / "x.duckdb")
    assert outcome.status == 2
    assert "a profile needs polars and duckdb" in outcome.err
    assert "-o NAME.zip" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_recording_without_torch_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cb_trace.commands.options.installed", lambda name: name != "torch")
    for command in (["profile", PAIR], ["capture", PAIR]):
        outcome = cli(*command, "-o", tmp_path / "x.zip")
        assert outcome.status == 2
        assert "recording needs torch" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nanogtp"], "unknown provider 'nanogtp'"),
        (["nanogpt", "--preset", "huge"], "no preset 'huge'"),
        (["nanogpt", "--set", "layer=2"], "layer"),
        (["nanogpt", "--set", "layers"], "--set wants KEY=VALUE"),
        (["tests.commands.workloads:broken"], "no data today"),
        (["tests.commands.workloads:missing"], "missing"),
        (["no.such.module:function"], "no.such.module"),
        (["tests.commands.workloads:fails_in_the_step"], "shapes cannot be multiplied"),
        (["tests.commands.workloads:exits"], "workload's own code called sys.exit(0)"),
        (["tests.commands.workloads:exits_in_the_step"], "called sys.exit('enough')"),
        (["tests.commands.workloads:without_data"], "cannot be moved to cpu: Cannot copy out of"),
        ([PAIR, "--device", "tpu"], "tpu"),
        ([PAIR, "--device", "cuda:99"], "CUDA"),
    ],
)
@pytest.mark.parametrize("command", ["profile", "capture"])
def test_mistakes_write_nothing(
    cli: Cli, tmp_path: Path, command: str, arguments: list[str], message: str
) -> None:
    device = [] if "--device" in arguments else ["--device", "cpu"]
    outcome = cli(command, *arguments, *device, "-o", tmp_path / "x.zip")
    assert (outcome.status, outcome.out) == (2, ""), outcome.err
    lines = outcome.err.splitlines()
    assert message in lines[0]
    assert len(lines) <= 2
    assert list(tmp_path.iterdir()) == []


def test_a_workload_that_goes_elsewhere_is_written_where_it_was_asked_for(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    leaves = "tests.commands.workloads:leaves"
    assert cli("capture", leaves, *FAST, "-o", "first.zip").status == 0
    assert Path.cwd() == tmp_path
    assert cli("replay", "first.zip", "--device", "cpu", "--budget", "1", "-o", "b.zip").status == 0
    assert Path.cwd() == tmp_path
    outcome = cli("profile", leaves, *FAST, "--budget", "1", "-o", "whole.duckdb")
    assert outcome.status == 0, outcome.err
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["b.zip", "first.zip", "whole.duckdb", "whole.zip"]


def test_interrupted_before_anything_is_measured(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("profile", "tests.commands.workloads:stopped", *FAST, "-o", tmp_path / "x.zip")
    assert (outcome.status, outcome.err.strip()) == (130, "cb-trace: interrupted")
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_are_taken(cli: Cli, recorded: Path, tmp_path: Path) -> None:
    for target in (recorded, recorded.with_suffix(".zip")):
        outcome = cli("profile", PAIR, *FAST, "-o", target)
        assert outcome.status == 2
        assert "exists" in outcome.err
        assert "--force" in outcome.err
    outcome = cli("capture", PAIR, "-o", tmp_path / "x.duckdb")
    assert outcome.status == 2
    assert "capture writes a bundle" in outcome.err
    outcome = cli("profile", PAIR, "-o", tmp_path / "no" / "x.duckdb")
    assert outcome.status == 2
    assert "no such folder" in outcome.err


def test_names_of_outputs_tell_recordings_apart() -> None:
    from cb_trace.commands.recording import Request

    def name(provider: str, preset: str | None, settings: dict[str, str], ending: str) -> str:
        return Request(
            provider=provider, preset=preset, settings=settings, device=None, dtype="fp32",
            phase="forward", mode="eager", wrap=(), seed=0, steps=3,
        ).file_name(ending)  # fmt: skip

    assert name("nanogpt", "tiny", {"batch": "4"}, ".duckdb") == "nanogpt-tiny-batch4.duckdb"
    assert name("pkg.mod:my_fn", None, {"path": "../x"}, ".zip") == "my_fn-path.._x.zip"


def test_replay_of_what_cannot_be_replayed(cli: Cli, recorded: Path, tmp_path: Path) -> None:
    outcome = cli("replay", tmp_path / "no.zip")
    assert outcome.status == 2
    assert "no such bundle" in outcome.err
    outcome = cli("replay", recorded)
    assert outcome.status == 2
    assert "no cb-trace bundle" in outcome.err
    bundle = _edited(recorded.with_suffix(".zip"), tmp_path / "live", provider=None)
    outcome = cli("replay", bundle, "--device", "cpu")
    assert outcome.status == 2
    assert "names no provider" in outcome.err
    bundle = _edited(recorded.with_suffix(".zip"), tmp_path / "gone", provider="gone.away:fn")
    before = sorted(bundle.iterdir())
    outcome = cli("replay", bundle, "--device", "cpu")
    assert outcome.status == 2
    assert "gone.away" in outcome.err
    assert sorted(bundle.iterdir()) == before


def _edited(bundle: Path, folder: Path, **run_fields: object) -> Path:
    import zipfile

    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    manifest = folder / "manifest.json"
    document = json.loads(manifest.read_text())
    document["run"] |= run_fields
    manifest.write_text(json.dumps(document))
    return folder


def test_phase_mode_and_wrap_reach_the_recording(cli: Cli, tmp_path: Path) -> None:
    folder = f"{tmp_path}/bundle/"
    outcome = cli("capture", PAIR, *FAST, "--phase", "train", "--wrap", "encode", "-o", folder)
    assert outcome.status == 0, outcome.err
    run_record = open_bundle(Path(folder)).manifest.run
    assert run_record.phases == ["forward", "backward", "optimizer"]
    outcome = cli("replay", folder, "--device", "cpu", "--budget", "2")
    assert outcome.status == 0, outcome.err
    outcome = cli("capture", PAIR, *FAST, "--mode", "cudagraph", "-o", f"{tmp_path}/b/")
    assert outcome.status == 2
    assert "mode cudagraph needs a CUDA device" in outcome.err


@pytest.mark.parametrize(
    ("given", "wanted"), [("60", 60.0), ("60s", 60.0), ("1.5 m", 90.0), (".5", 0.5)]
)
def test_a_budget_is_a_time(given: str, wanted: float) -> None:
    assert seconds(given) == wanted


@pytest.mark.parametrize("given", ["0", "-1", "s", "60h", "", "1e999"])
def test_a_budget_that_is_no_time_is_refused(given: str) -> None:
    with pytest.raises(BadParameter, match="is no time above 0"):
        seconds(given)
