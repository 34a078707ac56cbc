"""Recordings that ship, as the frames that attribution takes."""

from __future__ import annotations

import gzip
import json
import zipfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import polars as pl

from cb_trace.attribution import Evidence, TraceEvents, attribute, reference
from cb_trace.bundle import open_bundle
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import check, tree
from tests.conftest import SAMPLES

EAGER, COMPILED, GRAPH = "nanogpt_train", "nanogpt_train_compile", "nanogpt_train_cudagraph"
Rows = dict[int, list[tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class Recording:
    """The steps of a bundle, what was captured for them, and what its manifest knows."""

    events: TraceEvents
    captured: TraceEvents | None
    module: pl.DataFrame
    evidence: Evidence

    def rows(self) -> Rows:
        """Path, phase and ns, or the reason, of the rows of each kernel."""
        evidence = self.evidence
        if self.captured is not None:
            run = attribute(self.captured, self.module, evidence=evidence)
            evidence = replace(evidence, reference=reference(self.captured, run))
        found = attribute(self.events, self.module, evidence=evidence)
        check(self.events, found)
        paths = self.module.select("module_id", "path")
        rows: Rows = {}
        for kernel_id, *row in (
            found.kernel_module.join(paths, on="module_id", how="left", maintain_order="left")
            .select("kernel_id", "path", "phase", "ns", "reason")
            .iter_rows()
        ):
            rows.setdefault(kernel_id, []).append(tuple(row))
        return rows


@cache
def recording(name: str) -> Recording:
    bundle = open_bundle(SAMPLES / f"{name}.zip")
    manifest = bundle.manifest
    files = {t.role: t.file for t in manifest.traces}
    graphs = manifest.graphs if "compile" in manifest.run.mode else None
    return Recording(
        trace(bundle.path, files["context"]),
        trace(bundle.path, files["capture"]) if "capture" in files else None,
        tree(*(m.path for m in manifest.modules)),
        Evidence(parameters=manifest.parameters, graphs=graphs),
    )


def trace(bundle: Path, member: str) -> TraceEvents:
    with zipfile.ZipFile(bundle) as archive:
        document = json.loads(gzip.decompress(archive.read(member)))
    return events_of([e for e in document["traceEvents"] if e.get("ph") == "X"])
