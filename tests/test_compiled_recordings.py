"""Fused kernels of the recordings that ship, against a second reading in plain Python.

From the zip alone: JSON, dictionaries and fractions. The rule is that of ``attribution.fusion``,
written once more; the pairing here is stricter, a run must call exactly what was generated.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, Ingested
from tests.test_conduct import rows

RECORDINGS = sorted(p for p in SAMPLES.glob("*_compile.zip"))
FLOPS_A_BYTE = 50  # above it a kernel's parts weigh their FLOPs
VIEWS = {"view", "permute", "reshape", "expand", "select", "squeeze", "unsqueeze", "slice", "split",
         "alias", "as_strided", "t", "transpose", "detach"}  # fmt: skip
Json = dict[str, Any]
Shares = dict[tuple[str | None, str], Fraction]


def documents(bundle: Path) -> tuple[Json, list[Json]]:
    """The manifest, and the slices of the trace of the steps."""
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        trace = json.loads(gzip.decompress(archive.read("context.json.gz")))
    return manifest, [e for e in trace["traceEvents"] if e.get("ph") == "X"]


def base(name: str) -> str:
    """``addmm`` of ``extern_kernels.addmm``, ``torch.ops.aten.addmm.default``, ``aten::addmm``."""
    name = name.removeprefix("torch.ops.").replace("::", ".")
    return re.sub(r"^(extern_kernels|aten)\.(\w+).*$", r"\2", name)


def moved(node: Json) -> int:
    view = base(node["target"]) in VIEWS or "getitem" in node["target"]
    return 0 if view else int(node["bytes"])


def shares(nodes: list[Json]) -> Shares:
    """Parts by bytes moved; by FLOPs where there are many a byte."""
    flops, size = sum(n["flops"] for n in nodes), sum(map(moved, nodes))
    weigh = [n["flops"] if flops > FLOPS_A_BYTE * size else moved(n) for n in nodes]
    weigh = weigh if any(weigh) else [1] * len(nodes)
    known = {n["path"] for n, w in zip(nodes, weigh, strict=True) if w} - {None}
    found: Shares = {}
    for node, weight in zip(nodes, weigh, strict=True):
        path = node["path"]
        if path is None and len(known) == 1:
            path = next(iter(known))
        if weight:
            key = (path, node["phase"])
            found[key] = found.get(key, Fraction(0)) + Fraction(weight, sum(weigh))
    return found


def of_graph(graph: Json) -> list[tuple[str, Shares]]:
    """What each generated call is called, and its parts; a node counts where it comes first."""
    calls = sorted(graph["kernels"], key=lambda kernel: kernel["handle"])
    own: dict[int, Json] = {}
    for number, call in enumerate(calls):
        if base(call["name"]) != call["name"]:  # of a library: its own node
            taken = {node["name"] for node in own.values()}
            own[number] = next(
                n for n in call["nodes"]
                if base(n["target"]) == base(call["name"]) and n["name"] not in taken
            )  # fmt: skip
    seen = {node["name"] for node in own.values()}
    found = []
    for number, call in enumerate(calls):
        new = [n for n in call["nodes"] if n["name"] not in seen]
        nodes = [own[number]] if number in own else new if any(map(moved, new)) else call["nodes"]
        if number not in own:
            seen |= {n["name"] for n in new}
        found.append((base(call["name"]), shares(nodes)))
    return found


def device_work(events: list[Json]) -> dict[int, list[Json]]:
    """Kernels, copies and memsets by correlation id."""
    found: dict[int, list[Json]] = {}
    for event in events:
        if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}:
            found.setdefault(event["args"]["correlation"], []).append(event)
    return found


def runs(events: list[Json], key: str) -> Iterator[list[tuple[Json, list[int]]]]:
    """Each run of a graph: its outermost operators in order, with the correlation ids in them."""
    launches = [e for e in events if e.get("cat") in {"cuda_runtime", "cuda_driver"}]
    for run in events:
        if (
            run["name"] != f"## Call CompiledFxGraph {key} ##"
            or run["cat"] == "gpu_user_annotation"
        ):
            continue
        inside = sorted(
            (e for e in events if e.get("cat") == "cpu_op" and within(e, run) and e is not run),
            key=lambda e: (e["ts"], -e["dur"]),
        )  # fmt: skip
        outer: list[tuple[Json, list[int]]] = []
        for event in inside:
            if not outer or event["ts"] >= outer[-1][0]["ts"] + outer[-1][0]["dur"]:
                outer.append((event, []))
        starts = [event["ts"] for event, _ in outer]
        for launch in launches:
            at = bisect_right(starts, launch["ts"]) - 1
            if within(launch, run) and at >= 0 and within(launch, outer[at][0]):
                outer[at][1].append(launch["args"]["correlation"])
        yield outer


def within(inner: Json, outer: Json) -> bool:
    ends = outer["ts"] + outer["dur"]
    return bool(inner["tid"] == outer["tid"] and outer["ts"] <= inner["ts"] < ends)


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda path: path.stem)
def recording(request: pytest.FixtureRequest, ingested: Ingested) -> tuple[Path, Path]:
    """A bundle and the profile made from it."""
    return request.param, ingested(request.param)


def test_every_kernel_of_compiled_code_has_the_shares_of_its_nodes(
    recording: tuple[Path, Path],
) -> None:
    bundle, profile = recording
    found: dict[int, dict[tuple[str | None, str], float]] = {}
    for correlation, path, phase, method, share in rows(
        profile,
        "SELECT kernel.correlation, module.path, part.phase, part.method, part.share "
        "FROM kernel_module AS part JOIN kernel USING (kernel_id) "
        "JOIN trace USING (trace_id) LEFT JOIN module USING (module_id) "
        "WHERE trace.role = 'context' AND part.method IN ('inductor', 'none') "
        "AND kernel.step IS NOT NULL",
    ):
        assert method == "inductor"
        found.setdefault(correlation, {})[path, phase] = share
    manifest, events = documents(bundle)
    work = device_work(events)
    checked = 0
    for graph in manifest["graphs"]:
        wanted = of_graph(graph)
        names = {name for name, _ in wanted}
        for run in runs(events, graph["key"]):
            units = [(base(e["name"]), ids) for e, ids in run if base(e["name"]) in names]
            assert [name for name, _ in units] == [name for name, _ in wanted]
            for (_, parts), (_, ids) in zip(wanted, units, strict=True):
                for correlation in ids:
                    if correlation in work:
                        assert found.pop(correlation) == pytest.approx(
                            {key: float(share) for key, share in parts.items()}, abs=1e-12
                        )
                        checked += 1
    assert found == {}
    assert checked > 100


def test_library_calls_are_of_one_module_and_fused_shares_sum_to_one(
    recording: tuple[Path, Path],
) -> None:
    bundle, profile = recording
    unequal = rows(
        profile,
        "SELECT kernel_id FROM kernel_module GROUP BY kernel_id "
        "HAVING sum(share) <> 1 OR sum(ns) <> (SELECT dur_ns FROM kernel "
        "WHERE kernel.kernel_id = kernel_module.kernel_id)",
    )
    assert unequal == []
    split = rows(profile, "SELECT DISTINCT name FROM fused_kernel WHERE phase <> 'optimizer'")
    assert split
    assert all(name.startswith("triton_") for (name,) in split)
    library = {
        path for (path,) in rows(
            profile,
            "SELECT DISTINCT module.path FROM kernel_module AS part JOIN kernel USING (kernel_id) "
            "JOIN module USING (module_id) WHERE part.method = 'inductor' "
            "AND NOT starts_with(kernel.name, 'triton_') AND kernel.kind = 'kernel'",
        )
    }  # fmt: skip
    graphs = documents(bundle)[0]["graphs"]
    external = [k for g in graphs for k in g["kernels"] if not k["name"].startswith("triton_")]
    own = {
        n["path"] for k in external for n in k["nodes"] if base(n["target"]) == base(k["name"])
    }  # fmt: skip
    assert library == own


def test_coverage_leaves_nothing_out_phase_by_phase(recording: tuple[Path, Path]) -> None:
    _, profile = recording
    covered, there = (
        "SELECT phase, sum(ns) FROM coverage WHERE role = 'context' AND status <> 'noted' "
        "GROUP BY phase ORDER BY phase",
        "SELECT phase, sum(ns) FROM kernel_module JOIN kernel USING (kernel_id) "
        "JOIN trace USING (trace_id) WHERE role = 'context' GROUP BY phase ORDER BY phase",
    )
    assert rows(profile, covered) == rows(profile, there)
    whole = rows(profile, "SELECT sum(dur_ns) FROM kernel JOIN trace USING (trace_id) "
                 "WHERE role = 'context'")  # fmt: skip
    assert sum(ns for _, ns in rows(profile, covered)) == whole[0][0]
    unclear = "SELECT * FROM coverage WHERE (reason IS NULL) = (status = 'unattributed')"
    assert rows(profile, f"{unclear} AND role = 'context' AND status <> 'noted'") == []
    sure = rows(
        profile, "SELECT DISTINCT method, confidence FROM coverage WHERE role = 'context' "
        "AND method IN ('inductor', 'autograd') AND phase <> 'optimizer' ORDER BY ALL",
    )  # fmt: skip
    assert ("inductor", "matched") in sure
    assert ("inductor", "split") in sure
    lost = rows(
        profile,
        "SELECT coalesce(sum(share), 0) FROM coverage WHERE role = 'context' AND method = 'none'",
    )
    assert lost[0][0] < 0.01


def test_verdicts_call_the_step_compiled(recording: tuple[Path, Path]) -> None:
    _, profile = recording
    steps = {
        (way, name)
        for way, text in rows(profile, "SELECT deployment, verdict FROM compare")
        for name in re.findall(r"costs \S+ µs in the (.*?) ?step", text)
    }
    assert steps == {("eager", "compiled"), ("graph", "compiled, CUDA-graphed")}
