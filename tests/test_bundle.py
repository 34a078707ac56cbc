"""The bundle: names inside traces, the manifest, and paths that lead through a zip."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cb_trace.bundle import (
    BUNDLE_VERSION,
    MANIFEST,
    Manifest,
    ModuleRecord,
    Note,
    ReplayRecord,
    RunRecord,
    StepSamples,
    TraceRecord,
    file_sha256,
    is_bundle,
    located_path,
    open_bundle,
    pack_bundle,
    readable,
    stored_path,
    write_bundle,
)
from cb_trace.errors import CbTraceError
from cb_trace.range_names import (
    gradient_range,
    parameter_of_range,
    path_of_range,
    range_name,
    replay_range,
)

RUN = RunRecord(
    run_id="r1", created_at="2026-11-29T12:00:00+00:00", workload="toy", provider=None,
    settings={"batch": 4, "bias": True, "scale": 0.5, "kind": "a"}, mode="eager",
    phases=["forward"], dtype="fp32", seed=7, device_type="cpu", device_name="a CPU",
    tool_version="0", torch_version="2", python_version="3",
)  # fmt: skip
ROOT = ModuleRecord(
    path="", class_name="Toy", parent=None, depth=0, ordinal=0, parameters=3, parameter_bytes=12,
    buffer_bytes=0, signature="Toy",
)  # fmt: skip
MANIFEST_RECORD = Manifest(
    run=RUN,
    modules=[ROOT],
    traces=[TraceRecord(file="context.json", role="context", sha256="00")],
    step_samples=[StepSamples(kind="bare", deployment="eager", ns=[5, 6])],
    replays=[
        ReplayRecord(
            replay_id=0, path="", phase="forward", condition="hot", call_index=0, calls=1,
            measured_id=0, samples_ns=[9], calls_per_sample=3, profiled_calls=2,
        )
    ],
    notes=[Note(reason="odd", path="")],
)  # fmt: skip


def write(folder: Path, manifest: Manifest = MANIFEST_RECORD) -> Path:
    folder.mkdir()
    (folder / "context.json").write_text("[]")
    write_bundle(folder, manifest)
    return folder


def test_a_folder_and_its_zip_read_back_as_written(tmp_path: Path) -> None:
    folder = write(tmp_path / "b")
    pack_bundle(folder, tmp_path / "b.zip")
    for path in (folder, tmp_path / "b.zip"):
        bundle = open_bundle(path)
        assert bundle.manifest == MANIFEST_RECORD
        with readable(bundle.trace_file(bundle.manifest.traces[0])) as file:
            assert file.read_text() == "[]"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "b.zip"]


def test_ranges_of_the_root_and_of_a_plain_path() -> None:
    assert range_name("") == "cb:<root>"
    assert range_name("h.0.attn") == "cb:h.0.attn"
    assert range_name("<root>") == "cb:%3Croot%3E"
    assert replay_range(3, 1) == "cb_replay:3:1"
    assert path_of_range("aten::mm") is None


@given(st.text())
def test_a_range_carries_any_path_in_printable_ascii(path: str) -> None:
    try:
        name = range_name(path)
    except UnicodeEncodeError:  # lone surrogates cannot be an attribute name in UTF-8
        return
    assert path_of_range(name) == path
    assert parameter_of_range(gradient_range(path)) == path
    assert parameter_of_range(name) is None
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set("\\\"'")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not a manifest of cb-trace"),
        ({"version": BUNDLE_VERSION + 1}, "newer cb-trace"),
        ({"version": "1"}, "newer cb-trace"),
        ({"run": None}, "RunRecord must be an object"),
        ({"modules": [{"path": ""}]}, "ModuleRecord has no class_name"),
        ({"traces": [{"file": "../x.json", "role": "context", "sha256": ""}]}, "outside"),
        ({"traces": [{"file": "/x.json", "role": "context", "sha256": ""}]}, "outside"),
        ({"traces": [{"file": "x", "role": "spy", "sha256": ""}]}, "role has the wrong type"),
        ({"step_samples": [{"kind": "bare", "deployment": "eager", "ns": [1.5]}]}, "wrong type"),
        ({"step_samples": [{"kind": "bare", "deployment": "eager", "ns": [True]}]}, "wrong type"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    folder = write(tmp_path / "b")
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**document, **change}))
    with pytest.raises(CbTraceError, match=words) as caught:
        open_bundle(folder)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_unknown_keys_are_not_carried(tmp_path: Path) -> None:
    folder = write(tmp_path / "b")
    document = json.loads((folder / MANIFEST).read_text())
    document["environ"] = {"SECRET": "x"}
    document["run"]["host"] = "machine"
    (folder / MANIFEST).write_text(json.dumps(document))
    assert open_bundle(folder).manifest == MANIFEST_RECORD


def test_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match="no such bundle"):
        open_bundle(tmp_path / "absent.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CbTraceError, match=r"no manifest\.json"):
        open_bundle(tmp_path / "empty")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / MANIFEST).write_text("{")
    with pytest.raises(CbTraceError, match="not JSON"):
        open_bundle(tmp_path / "torn")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.json", "[]")
    assert not is_bundle(tmp_path / "other.zip")


def test_a_missing_or_damaged_member_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "b")
    pack_bundle(folder, tmp_path / "b.zip")
    with (
        pytest.raises(CbTraceError, match=r"holds no gone\.json"),
        readable(tmp_path / "b.zip" / "gone.json"),
    ):
        pass
    data = bytearray((tmp_path / "b.zip").read_bytes())
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        start = archive.getinfo("context.json").header_offset + 30 + len("context.json")
    data[start] ^= 0xFF
    (tmp_path / "b.zip").write_bytes(data)
    with (
        pytest.raises(CbTraceError, match=r"damaged at context\.json"),
        readable(tmp_path / "b.zip" / "context.json"),
    ):
        pass


def test_a_refused_write_leaves_no_part(tmp_path: Path) -> None:
    folder = write(tmp_path / "b")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_bundle(
            folder, replace(MANIFEST_RECORD, run=replace(RUN, settings={"x": float("nan")}))
        )
    assert open_bundle(folder).manifest == MANIFEST_RECORD


def test_profiles_name_files_relative_to_themselves(tmp_path: Path) -> None:
    profile = tmp_path / "p" / "x.duckdb"
    profile.parent.mkdir()
    trace = tmp_path / "p" / "x.zip" / "context.json.gz"
    assert stored_path(trace, profile) == "x.zip/context.json.gz"
    assert located_path("x.zip/context.json.gz", profile) == trace.resolve()
    assert stored_path(tmp_path / "t.json", profile) == "../t.json"
    assert located_path("../t.json", profile) == (tmp_path / "t.json").resolve()


def test_sha256_is_the_files(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert file_sha256(tmp_path / "f").startswith("ba7816bf8f01cfea")
