"""Foreign traces with the trace in which their CUDA graphs were captured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cb_trace.conduct import ingest
from cb_trace.errors import CbTraceError
from tests.bundles import write_net_bundle
from tests.kineto import Event, event, kernel, launch, module_slice, op, write_trace
from tests.test_conduct import rows

GRAPH = [
    module_slice("Sampler_0", 500, 50, 1, None),
    launch(510, 1, 1), kernel("argmax", 900, 10, 1),
    launch(100, 5, 2) | {"name": "hipGraphLaunch"},
    kernel("gemm", 200, 30, 2), kernel("norm", 240, 20, 2), kernel("new", 270, 5, 2),
]  # fmt: skip
MODULES = """
    SELECT kernel.name, module.path, part.method, part.reason
    FROM kernel_module AS part JOIN kernel USING (kernel_id) JOIN trace USING (trace_id)
    LEFT JOIN module USING (module_id) WHERE trace.role = 'foreign' ORDER BY kernel.start_ns
"""


def hip(name: str, at: float, correlation: int) -> Event:
    made = launch(at, 1, correlation, kernel=name, grid=[4, 1, 1], block=[64, 1, 1])
    return made | {"name": "hipLaunchKernel"}


CAPTURE = [
    module_slice("Net_0", 0, 500, 1, None), module_slice("Linear_0", 100, 50, 2, 1),
    hip("warm up", 5, 1), kernel("warm up", 8, 5, 1),
    event("cuda_runtime", "hipStreamBeginCapture", 50, 1),
    hip("gemm", 110, 2), hip("norm", 210, 3),
    event("cuda_runtime", "hipStreamEndCapture", 300, 1),
]  # fmt: skip


def test_a_graph_has_the_modules_of_its_capture(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "decode.json", GRAPH)
    capture = write_trace(tmp_path / "capture.json", CAPTURE)
    profile = ingest(source, tmp_path / "p.duckdb", capture=capture).profile
    assert rows(profile, MODULES) == [
        ("gemm", "Net_0.Linear_0", "graph_order", None),
        ("norm", "Net_0", "graph_order", None),
        ("new", None, "none", "graph, no match"),
        ("argmax", "Sampler_0", "python", None),
    ]
    assert rows(profile, "SELECT path, calls, kernels FROM compare ORDER BY path") == [
        ("", 0.0, 3.0), ("Net_0", 1.0, 2.0), ("Net_0.Linear_0", 1.0, 1.0), ("Sampler_0", 1.0, 1.0),
    ]  # fmt: skip
    assert rows(profile, "SELECT trace_id, role FROM trace ORDER BY ALL") == [
        (0, "foreign"), (1, "capture"),
    ]  # fmt: skip
    assert rows(profile, "SELECT count(DISTINCT run_id) FROM module") == [(1,)]


def test_a_run_without_the_graph_serves_as_well(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "decode.json", GRAPH)
    eager = [
        module_slice("Net_0", 0, 500, 1, None), module_slice("Linear_0", 100, 50, 2, 1),
        launch(110, 1, 1), kernel("gemm", 200, 30, 1), launch(210, 1, 2), kernel("norm", 240, 9, 2),
    ]  # fmt: skip
    capture = write_trace(tmp_path / "eager.json", eager)
    profile = ingest(source, tmp_path / "p.duckdb", capture=capture).profile
    assert rows(profile, MODULES)[:2] == [
        ("gemm", "Net_0.Linear_0", "graph_order", None), ("norm", "Net_0", "graph_order", None),
    ]  # fmt: skip


def test_a_capture_that_names_no_kernel_is_refused(tmp_path: Path) -> None:
    source = write_trace(tmp_path / "decode.json", GRAPH)
    capture = write_trace(
        tmp_path / "cuda.json", [module_slice("N_0", 0, 9, 1, None), launch(1, 1, 2)]
    )
    with pytest.raises(CbTraceError, match="does not say which kernels were captured"):
        ingest(source, tmp_path / "p.duckdb", capture=capture)
    assert not (tmp_path / "p.duckdb").exists()


def test_a_capture_goes_with_one_trace(tmp_path: Path) -> None:
    bundle = write_net_bundle(tmp_path / "net")
    for source in (bundle, tmp_path):
        with pytest.raises(CbTraceError, match="no single trace"):
            ingest(source, tmp_path / "p.duckdb", capture=bundle / "context.json.gz")


def test_a_real_decode_graph_and_its_capture(shared_traces: Path, tmp_path: Path) -> None:
    """Of 9,778,614 ns, the README's sum; each kernel's launch and name were compared by hand."""
    folder = shared_traces / "public"
    profile = ingest(
        folder / "mi300_sglang_decode_graph.json.gz",
        tmp_path / "p.duckdb",
        capture=folder / "mi300_sglang_decode_capture.json.gz",
    ).profile
    found = rows(
        profile,
        "SELECT method, reason, sum(events)::INT, sum(ns)::BIGINT FROM coverage "
        "WHERE role = 'foreign' AND status <> 'noted' GROUP BY ALL ORDER BY ALL",
    )
    assert [row[:3] for row in found] == [
        ("graph_order", None, 544), ("none", "outside any module", 13), ("python", None, 1),
    ]  # fmt: skip
    assert sum(row[3] for row in found) == 9_778_614
    assert found[0][3] > 0.98 * 9_778_614


def test_row_39_ranks_are_never_joined_by_external_id(tmp_path: Path) -> None:
    """Each rank counts its ids anew, or not at all: the same ones mean other operators."""
    for rank, (name, other) in enumerate([("mm", "add"), ("add", "mm")]):
        events = [
            op(f"aten::{name}", 0, 20, **{"External id": 7}), launch(5, 1, 3),
            kernel(f"{name}_{rank}", 9, 5, 3, **{"External id": 7}),
            op(f"aten::{other}", 40, 20, **{"External id": 8 + 3 * rank}),
        ]  # fmt: skip
        write_trace(tmp_path / f"rank{rank}.json", events, distributedInfo={"rank": rank})
    profile = ingest(tmp_path, tmp_path / "p.duckdb").profile
    query = """
        SELECT trace.rank, kernel.name, op.name, op.trace_id = kernel.trace_id
        FROM kernel JOIN op USING (op_id) JOIN trace ON trace.trace_id = kernel.trace_id
        ORDER BY ALL
    """
    assert rows(profile, query) == [
        (0, "mm_0", "aten::mm", True), (1, "add_1", "aten::add", True),
    ]  # fmt: skip


@pytest.mark.parametrize("option", ["source", "capture"])
def test_a_pipe_is_refused_not_waited_for(tmp_path: Path, option: str) -> None:
    source, pipe = write_trace(tmp_path / "decode.json", GRAPH), tmp_path / "pipe.json"
    os.mkfifo(pipe)
    given = (pipe, None) if option == "source" else (source, pipe)
    with pytest.raises(CbTraceError, match=r"pipe\.json is a pipe or a device"):
        ingest(given[0], tmp_path / "p.duckdb", capture=given[1])
    with pytest.raises(CbTraceError, match="no such file"):
        ingest(source, tmp_path / "p.duckdb", capture=tmp_path / "none.json")
    with pytest.raises(CbTraceError, match="is no single trace"):
        ingest(source, tmp_path / "p.duckdb", capture=tmp_path)
    assert not (tmp_path / "p.duckdb").exists()
