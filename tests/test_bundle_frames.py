"""Host times from a manifest to the profile, and profiles from before they were recorded."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cb_trace.bundle import (
    MANIFEST,
    HostSpanRecord,
    HostTourRecord,
    HostWindowRecord,
    Manifest,
    open_bundle,
)
from cb_trace.bundle_frames import bundle_frames
from cb_trace.columns import polars_schema
from cb_trace.conduct import ingest
from cb_trace.errors import CbTraceError
from cb_trace.store import open_profile
from cb_trace.whatif import Wish, what_if
from tests.bundles import write_net_bundle

SPANS = [
    HostSpanRecord(path=None, calls=1, ns=[7_000] * 5, dropped=2),
    HostSpanRecord(path="", calls=1, ns=[20_000, 21_000, 20_000, 22_000], dropped=2),
    HostSpanRecord(path="fc", calls=3, ns=[11_000] * 3, dropped=2),
]
HOST_SPAN = "SELECT module_id, calls, ns, samples, dropped FROM host_span ORDER BY ALL NULLS FIRST"


def manifest_of(folder: Path, spans: list[HostSpanRecord]) -> Manifest:
    return open_bundle(write_net_bundle(folder / "net", host_spans=spans)).manifest


def rows(profile: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


def test_host_times_read_back_as_written(tmp_path: Path) -> None:
    assert manifest_of(tmp_path, SPANS).host_spans == SPANS


def test_a_bundle_from_before_has_none(tmp_path: Path) -> None:
    bundle = write_net_bundle(tmp_path / "net")
    document = json.loads((bundle / MANIFEST).read_text())
    del document["host_spans"], document["host_tours"], document["host_window"]
    (bundle / MANIFEST).write_text(json.dumps(document))
    frames = bundle_frames(open_bundle(bundle).manifest)
    for table in ("host_span", "host_window", "host_tour"):
        frame = getattr(frames, table)
        assert frame.height == 0
        assert dict(frame.schema) == polars_schema(table)


def test_the_frame_has_medians_with_bounds(tmp_path: Path) -> None:
    frame = bundle_frames(manifest_of(tmp_path, SPANS)).host_span
    assert frame.select("module_id", "calls", "ns", "samples", "dropped").rows() == [
        (None, 1, 7_000, 5, 2),
        (0, 1, 20_500, 4, 2),
        (1, 3, 11_000, 3, 2),
    ]
    assert frame.select("low_ns", "high_ns").rows() == [
        (7_000, 7_000), (20_000, 22_000), (11_000, 11_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "gone"}, "contradicts itself: 'gone'"),
        ({"path": "fc"}, "two host times of one module"),
        ({"ns": []}, "no samples"),
        ({"calls": 2**70}, "contradicts itself"),
    ],
)
def test_what_contradicts_itself(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    wrong = HostSpanRecord(**{**asdict(SPANS[1]), **change})
    with pytest.raises(CbTraceError, match=words):
        bundle_frames(manifest_of(tmp_path, [SPANS[0], wrong, SPANS[2]]))


@pytest.mark.parametrize("wrong", [{"ns": [1.5]}, {"calls": "3"}, {"path": 7}, {"calls": None}])
def test_what_has_the_wrong_type(tmp_path: Path, wrong: dict[str, Any]) -> None:
    bundle = write_net_bundle(tmp_path / "net", host_spans=SPANS)
    document = json.loads((bundle / MANIFEST).read_text())
    document["host_spans"][0] |= wrong
    (bundle / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(CbTraceError, match=f"malformed.*{next(iter(wrong))} has the wrong type"):
        open_bundle(bundle)


def test_host_times_in_a_profile(tmp_path: Path) -> None:
    manifest_of(tmp_path, SPANS)
    profile = ingest(tmp_path / "net", tmp_path / "net.duckdb").profile
    assert rows(profile, HOST_SPAN) == [
        (None, 1, 7_000, 5, 2), (0, 1, 20_500, 4, 2), (1, 3, 11_000, 3, 2),
    ]  # fmt: skip


def test_host_times_in_company_are_a_table_of_their_own(tmp_path: Path) -> None:
    tours = [HostTourRecord(path="fc", calls=2, ns=[9_000, 8_000, 10_000], dropped=1)]
    bundle = write_net_bundle(tmp_path / "net", host_tours=tours, host_spans=SPANS)
    assert open_bundle(bundle).manifest.host_tours == tours
    profile = ingest(bundle, tmp_path / "net.duckdb").profile
    sql = "SELECT module_id, calls, ns, low_ns, high_ns, samples, dropped FROM host_tour"
    assert rows(profile, sql) == [(1, 2, 9_000, 8_000, 10_000, 3, 1)]
    assert len(rows(profile, HOST_SPAN)) == len(SPANS)
    twice = open_bundle(write_net_bundle(tmp_path / "twice", host_tours=tours * 2)).manifest
    with pytest.raises(CbTraceError, match="two host times of one module"):
        bundle_frames(twice)


def test_a_profile_from_before_is_read_all_the_same(tmp_path: Path) -> None:
    write_net_bundle(tmp_path / "net")
    profile = ingest(tmp_path / "net", tmp_path / "net.duckdb").profile
    wishes = [Wish("remove", "fc")]
    now, compared = what_if(profile, wishes), rows(profile, "SELECT * FROM compare")
    assert rows(profile, HOST_SPAN) == []
    with duckdb.connect(profile) as connection:
        for table in ("host_span", "host_window", "host_tour", "parameter"):
            connection.execute(f"DROP TABLE {table}")
    assert what_if(profile, wishes) == now
    assert rows(profile, "SELECT * FROM compare") == compared


WINDOW = HostWindowRecord(
    host_ns=[20_000, 30_000, 21_000], closing_ns=[9_000, 8_000, 7_000],
    window_ns=[28_000, 90_000, 32_000], empty_ns=5_000,
)  # fmt: skip


def test_the_windows_of_host_times_read_back_and_have_medians(tmp_path: Path) -> None:
    bundle = write_net_bundle(tmp_path / "net", host_spans=SPANS, host_window=WINDOW)
    manifest = open_bundle(bundle).manifest
    assert manifest.host_window == WINDOW
    (row,) = bundle_frames(manifest).host_window.drop("run_id").rows(named=True)
    # 8, 60 and 11 µs after the host: in a step of 21 µs the device is through after 32.
    assert row == {
        "host_ns": 21_000, "closing_ns": 8_000, "window_ns": 32_000, "empty_ns": 5_000,
        "samples": 3,
    }  # fmt: skip


@pytest.mark.parametrize("places", [[], [1, 2]])
def test_windows_of_other_steps_are_refused(tmp_path: Path, places: list[int]) -> None:
    window = replace(WINDOW, host_ns=places, closing_ns=places, window_ns=[])
    bundle = write_net_bundle(tmp_path / "net", host_window=window)
    with pytest.raises(CbTraceError, match="contradicts itself"):
        bundle_frames(open_bundle(bundle).manifest)


@pytest.mark.parametrize("name", ["host_ns", "closing_ns", "window_ns", "empty_ns"])
def test_windows_of_negative_length_are_refused(tmp_path: Path, name: str) -> None:
    wrong: Any = -1 if name == "empty_ns" else [-1, 1, 1]
    bundle = write_net_bundle(tmp_path / "net", host_window=replace(WINDOW, **{name: wrong}))
    with pytest.raises(CbTraceError, match="contradicts itself"):
        bundle_frames(open_bundle(bundle).manifest)
