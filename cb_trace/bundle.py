"""The bundle: what the recording half writes and the reading half reads.

A folder, or a zip of one, with ``manifest.json`` at its root and the Kineto traces beside it.
Standard library only: this file is imported on machines that have torch and nothing else, and on
machines that have no torch.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from cb_trace.accounts import CeilingRecord, CostRecord, MemoryRecord
from cb_trace.decode import build
from cb_trace.errors import CbTraceError
from cb_trace.files import (
    MANIFEST,
    file_sha256,
    is_bundle,
    located_path,
    readable,
    stored_path,
)
from cb_trace.notes import Note
from cb_trace.parts import whole

# Of this interface, what stands in files of its own.
__all__ = [
    "MANIFEST", "Note", "file_sha256", "is_bundle", "located_path", "readable", "stored_path",
]  # fmt: skip

BUNDLE_FORMAT = "cb-trace bundle"
BUNDLE_VERSION = 1

Phase = Literal["forward", "backward", "recompute", "optimizer", "step"]
Mode = Literal["eager", "compile", "cudagraph", "compile+cudagraph"]
Role = Literal["context", "sequence", "graph", "isolated", "foreign", "capture"]
Deployment = Literal["eager", "graph"]
# In compile modes the first three are of the module compiled alone, `eager` is hot without that.
Condition = Literal["hot", "cold", "graph", "eager"]
# The second is the graph of a step on several streams, with all of it on one.
SampleKind = Literal["bare", "bare_one_stream", "bare_after", "profiled", "sequence"]
ONE_STREAM: SampleKind = "bare_one_stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """How and where a recording was made. Carries no path and no environment of the machine."""

    run_id: str
    created_at: str  # ISO 8601, UTC
    workload: str  # provider name, or module:function, or the name given to cb_trace.record
    provider: str | None  # what `cb-trace replay` can build it from again; None for a live model
    settings: dict[str, str | int | float | bool]
    mode: Mode
    phases: list[Phase]
    dtype: str  # fp32, or the autocast dtype
    seed: int
    device_type: Literal["cuda", "cpu"]
    device_name: str
    tool_version: str
    torch_version: str
    python_version: str
    cuda_version: str | None = None
    driver_version: str | None = None
    sm_clock_mhz: int | None = None  # under load, before the first profile
    l2_bytes: int | None = None
    cpu_threads: int | None = None
    # What a replay needs beside these; bundles that have neither were recorded as if without.
    wrap: list[str] = field(default_factory=list)  # methods that count as a call of their module
    autocast: str | None = None  # fp32: none; None: unknown, so what ``dtype`` says


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRecord:
    """One module of the tree; ``path`` is canonical (wrappers removed), the root is ``""``."""

    path: str
    class_name: str
    parent: str | None  # path of the parent; None for the root
    depth: int
    ordinal: int  # position in named_modules() order
    parameters: int  # inclusive of children, shared parameters once
    parameter_bytes: int
    buffer_bytes: int
    signature: str  # class and configuration, for deduplication
    aliases: list[str] = field(default_factory=list)  # further paths of one shared module


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One Kineto file of the bundle; ``file`` is relative to the bundle's root."""

    file: str
    role: Role
    sha256: str
    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBlock:
    """Samples taken in one go, and the device's clock right after the last of them.

    Blocks of everything that is timed bare take turns, so that a slow drift meets all alike.
    """

    turn: int
    samples: int  # of the list they belong to, in order
    dropped: int = 0  # left out of it, as the device was throttled or the host slowed
    sm_clock_mhz: int | None = None  # None: unknown
    temperature_c: int | None = None
    limits: list[str] = field(default_factory=list)  # what held the clock down


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples:
    """Step timings of one kind; ``bare`` is wall time with no profiler attached."""

    kind: SampleKind
    deployment: Deployment
    ns: list[int]
    blocks: list[SampleBlock] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRecord:
    """One module replayed alone on one of its captured inputs, in one phase and condition.

    ``samples_ns`` are bare wall per call (N calls back to back between one synchronised pair,
    less the empty pair, over N). The profiled kernels are in the traces of role ``isolated``
    under ranges named by :func:`replay_range`. A shared measurement points at the one that
    holds the samples by ``measured_id`` and has no samples of its own.
    """

    replay_id: int
    path: str
    phase: Phase
    condition: Condition
    call_index: int  # the captured call, counted from 0 in call order within a step
    calls: int  # calls a step that this measurement stands for
    measured_id: int  # equals replay_id where measured here
    samples_ns: list[int] = field(default_factory=list)
    calls_per_sample: int = 0
    profiled_calls: int = 0
    skipped: str | None = None  # the reason; then no samples and no kernels
    blocks: list[SampleBlock] = field(default_factory=list)
    unlike: str | None = None  # why it was not left to share the measurement of its likes


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockoutRecord:
    """The bare step with and without one module, timed in turn; a pair a place of both lists.

    The module is visited more than once, with time and other measurements in between.
    """

    path: str
    phase: Phase  # of the work that is missing: forward, or step where the step also trains
    deployment: Deployment
    base_ns: list[int] = field(default_factory=list)
    knocked_ns: list[int] = field(default_factory=list)
    dropped: int = 0  # pairs left out of them, as the host was slowed
    visits: list[int] = field(default_factory=list)  # pairs of each, in order; empty: one visit
    # As graphs: pairs of each couple of captures, in order; empty: one couple a visit.
    captures: list[int] = field(default_factory=list)
    skipped: str | None = None  # the reason; then no samples


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupRecord:
    """The bare step as it is and with one module run on a part of its batch, timed in turn.

    The forward alone: a pair a place of both lists.
    """

    path: str
    factor: int  # the module worked on one factor-th of its batch
    deployment: Deployment
    base_ns: list[int] = field(default_factory=list)
    faster_ns: list[int] = field(default_factory=list)
    dropped: int = 0  # pairs left out of them, as the host was slowed
    captures: list[int] = field(default_factory=list)  # as of a knock-out
    skipped: str | None = None  # the reason; then no samples


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpanRecord:
    """Host time a bare eager step of one module's own forward, calls of others in it left out."""

    path: str | None  # None: the step outside every module's forward
    calls: int  # a step
    ns: list[int]  # one a sample; a place of all records is one step
    dropped: int = 0  # steps left out, as the host was slowed


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWindowRecord:
    """The windows that the steps with clocks in them were timed in, as bare ones are.

    A place of the lists is the step of that place in every :class:`HostSpanRecord`.
    """

    host_ns: list[int]  # from the step's start to its return, what the clocks took included
    closing_ns: list[int]  # from there until the host was through with closing the window
    window_ns: list[int]  # on the device's timer, nothing taken off
    empty_ns: int  # what is taken off every window of a bare step


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTourRecord:
    """Host time of one module in company: the innermost ones called alone, in the step's order.

    Nothing else of the step runs: the one before it leaves the processor's caches as it does there.
    """

    path: str
    calls: int  # a step, all of them in the tour
    ns: list[int]  # of all its calls, one a tour; a place of all records is one tour
    dropped: int = 0  # tours left out, as the host was slowed


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRecord:
    """One parameter and the module that owns it: what optimizer kernels are split by."""

    name: str  # fully qualified, wrappers removed
    path: str  # of the owning module
    numel: int
    bytes: int
    trainable: bool
    shared_with: list[str] = field(default_factory=list)  # paths of further modules that hold it


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledNode:
    """One post-grad node of a compiled graph: the module it came from and the work it is."""

    name: str
    target: str  # the operator, aten.mul.Tensor
    path: str | None  # from nn_module_stack or fwd_nn_module_stack; None: neither, nor neighbours
    phase: Phase
    bytes: int  # of its tensor inputs and outputs
    flops: int  # 0 where no formula is known


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel call in the generated code of a compiled graph, in call order."""

    name: str  # triton_poi_fused_…, cpp_fused_…, extern_kernels.mm
    handle: int  # its place in call order, from 1 in each graph
    nodes: list[CompiledNode]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph:
    """One graph that Inductor compiled; ``key`` is the hash in `## Call CompiledFxGraph key ##`."""

    key: str
    phase: Phase  # forward or backward
    kernels: list[CompiledKernel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything measured that is not an event of a trace."""

    run: RunRecord
    modules: list[ModuleRecord]
    traces: list[TraceRecord]
    step_samples: list[StepSamples]
    replays: list[ReplayRecord] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    parameters: list[ParameterRecord] = field(default_factory=list)
    graphs: list[CompiledGraph] = field(default_factory=list)
    costs: list[CostRecord] = field(default_factory=list)
    memories: list[MemoryRecord] = field(default_factory=list)
    ceilings: list[CeilingRecord] = field(default_factory=list)
    knockouts: list[KnockoutRecord] = field(default_factory=list)
    speedups: list[SpeedupRecord] = field(default_factory=list)
    host_spans: list[HostSpanRecord] = field(default_factory=list)
    host_window: HostWindowRecord | None = None
    host_tours: list[HostTourRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. ``path`` is the folder or the zip."""

    path: Path
    manifest: Manifest

    def trace_file(self, record: TraceRecord) -> Path:
        """Path of a trace; it may lead through the zip, see :func:`readable`."""
        return self.path / record.file


_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")


# --- writing ----------------------------------------------------------------------------------


def write_bundle(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into a folder that already holds the traces it names."""
    document = {"format": BUNDLE_FORMAT, "version": BUNDLE_VERSION, **asdict(manifest)}
    part = folder / f".{MANIFEST}.part"
    part.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(folder / MANIFEST)


def pack_bundle(folder: Path, target: Path) -> None:
    """Zip a bundle folder to ``target``, by a temporary file and a rename."""
    with whole(target) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            stored = zipfile.ZIP_STORED if file.suffix == ".gz" else zipfile.ZIP_DEFLATED
            archive.write(file, file.relative_to(folder).as_posix(), stored)


# --- reading ----------------------------------------------------------------------------------


def open_bundle(path: Path) -> Bundle:
    """Read and check a bundle's manifest.

    :raises CbTraceError: no such path, no manifest, not ours, from a newer version, or malformed.
    """
    if not path.exists():
        raise CbTraceError(f"no such bundle: {path}", hint="check the path")
    if not is_bundle(path):
        raise CbTraceError(
            f"{path} is no cb-trace bundle: it has no {MANIFEST} at its root",
            hint="record one with 'cb-trace profile … -o bundle.zip'",
        )
    with readable(path / MANIFEST) as file:
        return Bundle(path, _parse_manifest(path, file.read_bytes()))


def _parse_manifest(path: Path, text: bytes) -> Manifest:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CbTraceError(f"{path}: {MANIFEST} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != BUNDLE_FORMAT:
        raise CbTraceError(f"{path}: {MANIFEST} is not a manifest of cb-trace")
    version = document.get("version")
    if not isinstance(version, int) or version > BUNDLE_VERSION:
        raise CbTraceError(
            f"{path} was written by a newer cb-trace (bundle version {version}; this one reads "
            f"{BUNDLE_VERSION})",
            hint="upgrade cb-trace",
        )
    try:
        manifest = build(Manifest, document)
        _check_members(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise CbTraceError(f"{path}: malformed {MANIFEST}: {error}") from error
    return manifest


def _check_members(manifest: Manifest) -> None:
    for record in manifest.traces:
        if not _MEMBER.fullmatch(record.file):
            raise ValueError(f"a trace's file name leads outside the bundle: {record.file!r}")
