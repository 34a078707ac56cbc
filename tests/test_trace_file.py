"""What leaves the machine in a trace: events byte for byte, and a header of known keys."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from cb_trace.trace_file import clean_trace, export_trace

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 1}],
  "host_name": "secret-host", "env": {"TOKEN": "hunter2"},
  "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000001,
  "traceEvents": ["""
EVENTS = """
  {
    "ph": "X", "cat": "cpu_op", "name": "], \\"traceName\\": \\"odd\\"", "ts": 1.001, "dur": 2.000,
    "args": {
      "Input Dims": [[4, 8],
      [8]], "rest": [
      ]
    }
  }
  ]"""


def cleaned(folder: Path, text: str) -> dict[str, object]:
    raw, target = folder / "raw.json", folder / "context.json.gz"
    raw.write_text(text)
    clean_trace(raw, target)
    assert sorted(p.name for p in folder.iterdir()) == ["context.json.gz", "raw.json"]
    document: dict[str, object] = json.loads(gzip.decompress(target.read_bytes()))
    return document


@pytest.mark.parametrize(
    "tail",
    [
        ',"traceName": "/home/someone/raw.json" }',
        ',\n"distributedInfo": {"nodes": ["secret-host"]}, "traceName": "/tmp/raw.json"\n}\n',
        "}",
    ],
)
def test_header_and_tail_keep_known_keys_only(tmp_path: Path, tail: str) -> None:
    document = cleaned(tmp_path, HEAD + EVENTS + tail)
    events = document.pop("traceEvents")
    assert document == {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 1}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1790857026000000001,
        "traceName": "context.json.gz",
    }
    assert events == json.loads("[" + EVENTS)


def test_a_real_export_keeps_its_events_and_names_no_host(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(3) + 1
    export_trace(profiler, tmp_path / "a.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert {"aten::ones", "aten::add"} <= {event["name"] for event in document["traceEvents"]}
    assert {"schemaVersion", "baseTimeNanoseconds", "traceName"} <= document.keys()
    assert "host_name" not in document
    assert document["traceName"] == "a.json.gz"


def test_equal_traces_give_equal_files(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text(HEAD + EVENTS + "}")
    targets = [tmp_path / "one" / "a.json.gz", tmp_path / "two" / "a.json.gz"]
    for target in targets:
        target.parent.mkdir()
        clean_trace(raw, target)
    assert targets[0].read_bytes() == targets[1].read_bytes()


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": [', '{"traceEvents": [{"a": 1}'])
def test_no_kineto_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"traceEvents|no end"):
        cleaned(tmp_path, text)


def test_a_kernels_file_keeps_its_name_only(tmp_path: Path) -> None:
    inner = '"args": {"kernel_file": "/home/someone/cache/ab/cabc.py", "kernel_hash": "x/y"}'
    event = f'\n{{"ph": "X", "name": "triton_poi", "ts": 1, "dur": 1, {inner}}}\n]'
    document = cleaned(tmp_path, HEAD + event + "}")
    events = document["traceEvents"]
    assert isinstance(events, list)
    assert events[0]["args"] == {"kernel_file": "cabc.py", "kernel_hash": "x/y"}
