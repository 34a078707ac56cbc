"""Which recordings read host times, and a whole recording that does, from bundle to table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from cb_trace.bundle import Manifest, Note, open_bundle
from cb_trace.capture import record as recording
from cb_trace.capture.modes import Deployed
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.capture.spans import SpannedSteps
from cb_trace.capture.tree import module_tree
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from cb_trace.replay import tour
from cb_trace.replay.host_spans import HostSpans
from cb_trace.store import open_profile
from tests.capture.test_record import QUICK

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def spanned(model: nn.Module, device: torch.device, mode: str = "eager") -> SpannedSteps:
    how = Deployed(lambda: model(torch.ones(2, 4)), module_tree(model))
    return SpannedSteps(model, how, RecordOptions(mode=mode), device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "mode"),
    [(CPU, "eager"), (CUDA, "compile"), (CUDA, "cudagraph"), (CUDA, "compile+cudagraph")],
)
def test_only_eager_steps_on_a_device_have_host_times(device: torch.device, mode: str) -> None:
    spans = spanned(nn.Linear(4, 4), device, mode)
    spans.block()
    assert (spans.records, spans.notes) == ([], [])


def test_replicas_on_other_threads_have_none_and_a_note() -> None:
    spans = spanned(nn.Sequential(nn.DataParallel(nn.Linear(4, 4))), CUDA)
    spans.block()
    detail = "a DataParallel runs replicas of its modules on other threads"
    assert (spans.records, spans.notes) == ([], [Note(reason="no host spans", detail=detail)])


class OnCpu(SpannedSteps):
    """Host times of a step that runs on the host itself."""

    def __init__(
        self, model: nn.Module, how: Deployed, options: RecordOptions, device: torch.device
    ) -> None:
        super().__init__(model, how, options, device)
        self._spans = HostSpans(how.tree.modules, how.step, device, options.wrap)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setattr(recording, "SpannedSteps", OnCpu)
    monkeypatch.setattr(tour, "DEVICES", ("cpu",))
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    folder = tmp_path / "net"
    folder.mkdir()
    record(Workload("net", model, (torch.ones(2, 4),)), folder, QUICK)
    return open_bundle(folder).manifest


def test_a_recording_holds_a_host_time_of_every_module(recorded: Manifest, tmp_path: Path) -> None:
    found = [(r.path, r.calls, r.dropped) for r in recorded.host_spans]
    assert found == [(None, 1, 0), ("", 1, 0), ("0", 1, 0), ("1", 1, 0)]
    assert {len(r.ns) for r in recorded.host_spans} == {len(recorded.host_spans[0].ns)}
    assert len(recorded.host_spans[0].ns) >= 4 * 3  # in four blocks
    profile = ingest(tmp_path / "net", tmp_path / "net.duckdb").profile
    with open_profile(profile) as connection:
        rows = connection.execute(
            "SELECT path, calls, low_ns <= ns AND ns <= high_ns, samples FROM host_span "
            "LEFT JOIN module USING (run_id, module_id) ORDER BY module_id NULLS FIRST"
        ).fetchall()
    samples = len(recorded.host_spans[0].ns)
    assert rows == [(path, 1, True, samples) for path in (None, "", "0", "1")]


def test_a_recording_holds_the_tour_of_its_modules(recorded: Manifest, tmp_path: Path) -> None:
    assert [(r.path, r.calls) for r in recorded.host_tours] == [("0", 1), ("1", 1)]
    samples = len(recorded.host_tours[0].ns)
    assert samples >= 3 * tour.MIN_TOURS
    profile = ingest(tmp_path / "net", tmp_path / "net.duckdb").profile
    with open_profile(profile) as connection:
        rows = connection.execute(
            "SELECT path, calls, low_ns <= ns AND ns <= high_ns, samples FROM host_tour "
            "JOIN module USING (run_id, module_id) ORDER BY module_id"
        ).fetchall()
    assert rows == [("0", 1, True, samples), ("1", 1, True, samples)]
