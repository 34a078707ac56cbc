"""``cb-trace whatif`` from a bundle's files to its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cb_trace.bundle import StepSamples
from cb_trace.conduct import ingest
from cb_trace.errors import CbTraceError
from cb_trace.whatif import Wish, parse_setting, what_if, with_overheads_of
from tests.bundles import run_record, write_net_bundle


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whatif")
    samples = [
        StepSamples(kind="bare", deployment="eager", ns=[80_000] * 3),
        StepSamples(kind="bare", deployment="graph", ns=[52_000] * 3),
    ]
    write_net_bundle(folder / "net", step_samples=samples)
    return ingest(folder / "net", folder / "net.duckdb").profile


def test_each_change_alone_and_all_together(profile: Path) -> None:
    found = what_if(profile, [Wish("set", "fc", 0.5), Wish("remove", "fc")])
    assert [(o.change, o.deployment, o.now_ns, o.then_ns) for o in found] == [
        # Alone it takes 50 µs of the host; with the others' 143 the bare step is to be 80.
        ("fc × 0.5", "eager", 80_000, 80_000 - 10_345),
        ("fc × 0.5", "graph", 52_000, 37_000),
        ("remove fc", "eager", 80_000, 80_000 - 20_690),
        ("remove fc", "graph", 52_000, 20_000),  # its 30 µs and a gap of 2
        ("all of these", "eager", 80_000, 80_000 - 20_690),
        ("all of these", "graph", 52_000, 20_000),
    ]
    assert [o.saved_ns for o in found[:2]] == [10_345, 15_000]


def test_host_overheads_of_others(profile: Path, tmp_path: Path) -> None:
    found = with_overheads_of(profile, [profile, profile])
    assert (found.change, found.deployment) == ("host overheads of 2 other recordings", "eager")
    assert found.now_ns == 80_000
    assert found.low_ns <= found.then_ns <= found.high_ns
    write_net_bundle(tmp_path / "cpu", run=run_record(device_type="cpu"))
    cpu = ingest(tmp_path / "cpu", tmp_path / "cpu.duckdb").profile
    with pytest.raises(CbTraceError, match="has no eager step on a device"):
        with_overheads_of(cpu, [profile])
    with pytest.raises(CbTraceError, match=r"cpu\.duckdb holds no host overheads"):
        with_overheads_of(profile, [cpu])


def test_mistakes(profile: Path) -> None:
    with pytest.raises(CbTraceError, match="no module 'cf'"):
        what_if(profile, [Wish("remove", "cf")])
    with pytest.raises(CbTraceError, match="nothing to change"):
        what_if(profile, [])
    for text in ("fc", "fc=", "fc=fast", "fc=-1x"):
        with pytest.raises(CbTraceError, match="wants PATH=FACTOR"):
            parse_setting(text)


def test_settings() -> None:
    assert parse_setting("h.0.mlp=0.5x") == Wish("set", "h.0.mlp", 0.5)
    assert parse_setting("a=50%") == Wish("set", "a", 0.5)
    assert parse_setting("=2") == Wish("set", "", 2.0)
