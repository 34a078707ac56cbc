"""The public Python API on a live model, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import nn

import cb_trace
from cb_trace.capture.options import RecordOptions
from tests.store.profiles import base_rows, write_profile

OPTIONS = RecordOptions(warmup=1, steps=2, bare_samples=3, bare_seconds=0.01, replay_seconds=6.0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.body:
            x = layer(x).relu()
        y: torch.Tensor = self.head(x)
        return y


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cb_trace.Profile]:
    path = tmp_path_factory.mktemp("api") / "net.duckdb"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        profile = cb_trace.profile(Net(), (torch.randn(4, 8),), path=path, options=OPTIONS)
    finally:
        torch.set_num_threads(threads)
    with profile:
        yield profile


def test_profile_records_replays_and_stores(recorded: cb_trace.Profile) -> None:
    frame = recorded.compare()
    assert isinstance(frame, pl.DataFrame)
    assert frame["path"].to_list() == ["", "body", "body.0", "body.1", "head"]
    assert frame["class"].to_list() == ["Net", "ModuleList", "Linear", "Linear", "Linear"]
    assert frame["isolated_from"].to_list() == ["replay", "children", "replay", "shared", "replay"]
    assert frame["cost_us"].null_count() == 0
    assert frame["knockout_us"].null_count() == frame.height
    cost = dict(frame.select("path", "cost_us").iter_rows())
    assert cost["body"] == pytest.approx(cost["body.0"] + cost["body.1"])
    assert cost[""] > cost["body"] + cost["head"]


def test_the_partition_of_a_recording_sums_to_its_bare_step(recorded: cb_trace.Profile) -> None:
    split = recorded.sql(
        "SELECT sum(ns) AS ns, any_value(step_bare_ns) AS bare FROM step_partition, run"
    )
    assert split["ns"].to_list() == split["bare"].to_list()


def test_the_terms_of_a_recording_sum_to_the_error(recorded: cb_trace.Profile) -> None:
    closed = recorded.sql(
        "SELECT path, error_us, launch_us + cache_us + kernel_choice_us + fusion_us + overlap_us "
        "+ idle_us AS terms FROM compare WHERE launch_us IS NOT NULL"
    )
    assert closed["path"].to_list() == ["", "body", "body.0", "body.1", "head"]
    assert closed["terms"].to_list() == pytest.approx(closed["error_us"].to_list(), abs=1e-6)


def test_every_query_answers_a_real_profile(recorded: cb_trace.Profile) -> None:
    from cb_trace.store import named_queries

    for query in named_queries():
        assert recorded.query(query.name).columns == list(query.columns), query.name
    assert recorded.query("top_modules", n=2).height == 2
    assert recorded.query("top_modules").height > 2  # variables do not linger
    assert set(recorded.query("kernels_of_module", module="head")["path"]) == {"head"}


def test_the_bundle_is_kept_beside_the_profile(recorded: cb_trace.Profile, tmp_path: Path) -> None:
    bundle = recorded.bundle
    assert bundle is not None
    assert bundle.path == recorded.path.with_suffix(".zip")
    with cb_trace.ingest(bundle.path, tmp_path / "again.duckdb") as again:
        assert again.compare().drop("perfetto_url").equals(recorded.compare().drop("perfetto_url"))


def test_record_a_loop_of_ones_own(tmp_path: Path) -> None:
    model = Net()
    options = replace(OPTIONS, replay=False)
    path = tmp_path / "loop.duckdb"
    with cb_trace.record(model, "loop", path, options=options, bare_steps=2) as recording:
        with pytest.raises(cb_trace.CbTraceError, match="no profile yet"):
            _ = recording.profile
        for _ in range(recording.steps_needed):
            model(torch.randn(4, 8))
            recording.step()
    with recording.profile as profile:
        assert profile.path == path
        assert profile.sql("SELECT workload FROM run").item() == "loop"
        assert profile.compare()["path"].to_list()[0] == ""
    assert recording.bundle_path == tmp_path / "loop.zip"


def test_targets_are_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "there.duckdb").touch()
    with pytest.raises(cb_trace.CbTraceError, match="exists"):
        cb_trace.profile(Net(), path=tmp_path / "there.duckdb")
    with pytest.raises(cb_trace.CbTraceError, match="names a bundle"):
        cb_trace.profile(Net(), path=tmp_path / "net.zip")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cb_trace.Profile]:
    path = write_profile(tmp_path_factory.mktemp("written") / "p.duckdb", base_rows())
    with cb_trace.open(path) as opened:
        yield opened


def test_sql_takes_parameters_and_gives_whole_numbers(profile: cb_trace.Profile) -> None:
    found = profile.sql("SELECT sum(ns) AS ns FROM partition WHERE kind = $kind", kind="busy")
    assert found["ns"].to_list() == [70_000]
    assert found.schema["ns"].is_integer()
    assert profile.sql("SELECT path FROM module WHERE FALSE").columns == ["path"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM compar", "compar"),
        ("DELETE FROM run", "read-only"),
        ("SELECT INTERVAL 1 DAY AS i", "INTERVAL"),
        ("SELECT $gone", "gone"),
    ],
)
def test_a_wrong_statement_is_one_line(profile: cb_trace.Profile, text: str, words: str) -> None:
    with pytest.raises(cb_trace.CbTraceError, match=words) as caught:
        profile.sql(text)
    assert "\n" not in str(caught.value)
    assert profile.sql("SELECT 1 AS one").item() == 1  # and the profile still answers


def test_a_wrong_query_or_variable_is_one_line(profile: cb_trace.Profile) -> None:
    with pytest.raises(cb_trace.CbTraceError, match="did you mean overlap"):
        profile.query("overlaps")
    with pytest.raises(cb_trace.CbTraceError, match=r"no variable 'm'.*it has: n"):
        profile.query("top_modules", m=3)
    with pytest.raises(cb_trace.CbTraceError, match="no module 'hea'"):
        profile.query("kernels_of_module", module="hea")


def test_a_profile_of_a_strangers_trace_has_no_bundle(profile: cb_trace.Profile) -> None:
    assert profile.bundle is None
    assert repr(profile) == f"Profile({str(profile.path)!r})"


def test_a_bundle_that_is_gone_is_said_in_one_line(tmp_path: Path) -> None:
    trace = {"trace_id": 0, "run_id": "r", "role": "context", "path": "gone.zip/context.json.gz"}
    rows = base_rows() | {"trace": [trace]}
    with (
        cb_trace.open(write_profile(tmp_path / "p.duckdb", rows)) as opened,
        pytest.raises(cb_trace.CbTraceError, match=r"bundle of .* is gone"),
    ):
        _ = opened.bundle


def loaded_by(program: str) -> set[str]:
    heavy = "{'torch', 'polars', 'duckdb', 'pyarrow', 'numpy', 'pandas'}"
    text = f"{program}\nimport sys\nprint(*({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_what_an_import_loads(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.duckdb", base_rows())
    assert loaded_by("import cb_trace, cb_trace.store, cb_trace.columns") == set()
    assert "torch" not in loaded_by(f"import cb_trace\ncb_trace.open({str(path)!r}).compare()")
    opened = "from cb_trace.store import open_profile\nfrom pathlib import Path\n"
    opened += f"open_profile(Path({str(path)!r})).execute('FROM compare').fetchall()"
    assert "polars" not in loaded_by(opened)


def test_the_public_names() -> None:
    assert cb_trace.__all__ == sorted(cb_trace.__all__)
    for name in cb_trace.__all__:
        assert getattr(cb_trace, name) is not None
    assert set(cb_trace.__all__) <= set(dir(cb_trace))
    with pytest.raises(AttributeError, match="no attribute 'compare'"):
        _ = cb_trace.compare
