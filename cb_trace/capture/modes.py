"""The step as a mode runs it: as it is, or with the model compiled."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from cb_trace.bundle import CompiledGraph, Note
from cb_trace.capture.compiled import Compilations, CompiledModel, fresh_compiler, settle
from cb_trace.capture.given import Given
from cb_trace.capture.options import RecordOptions, device_of
from cb_trace.capture.owners import Owners
from cb_trace.capture.profiled import profile_steps
from cb_trace.capture.provenance import Provenance
from cb_trace.capture.ranges import ModuleRanges
from cb_trace.capture.step import Step, raising
from cb_trace.capture.tree import ModuleTree
from cb_trace.parts import scratch_folder
from cb_trace.replay.timing import synchronize

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_CALL = "## Call CompiledFxGraph"  # its name holds a hash of the compiler's settings
_GRAPH = re.compile(r"^graph_\d+_")  # and this counts the graphs of the process
_SHOWN = 5
CHANGED, COMPILED_AGAIN = "instrumentation changed the kernels", "compiled again, other kernels"


@dataclass(slots=True)
class Deployed:
    """A step that is ready to be measured; not yet captured into a graph."""

    step: Step
    tree: ModuleTree
    model: CompiledModel | None = None
    provenance: Provenance | None = None
    compilations: Compilations | None = None

    @property
    def sees_modules(self) -> bool:
        """Whether hooks can stand on every module."""
        return self.model is None

    def watching(self) -> AbstractContextManager[None]:
        """Hear of what is compiled in the block; what is compiled outside stays unknown."""
        return nullcontext() if self.provenance is None else self.provenance.collecting()

    def off(self) -> AbstractContextManager[None]:
        """Run the model eagerly for a while."""
        return nullcontext() if self.model is None else self.model.off()

    def ranged(self, wrap: Sequence[str]) -> ModuleRanges:
        """Ranges of every module; of a compiled model the root's alone, around its call."""
        if self.model is None:
            return ModuleRanges(self.tree.modules, wrap)
        return self.model.ranges()

    def graphs(self) -> list[CompiledGraph]:
        """What was compiled."""
        return self.provenance.graphs() if self.provenance else []

    def notes(self) -> list[Note]:
        """What a reader must know about the compilation."""
        provenance = self.provenance
        if provenance is None:
            return []
        notes = self.compilations.notes() if self.compilations else []
        missing = provenance.missing or (None if self.graphs() else "nothing was compiled")
        if missing:
            notes.append(Note(reason="compile provenance unavailable", detail=missing))
        if provenance.lost_nodes:
            detail = "nodes that generated kernels name and their graphs do not hold"
            lost = Note(reason="compile provenance incomplete", detail=detail)
            notes.append(lost)
        return notes


@contextmanager
def deployed(
    given: Given, name: str, step: Step, tree: ModuleTree, options: RecordOptions
) -> Iterator[Deployed]:
    """The step as the mode has it, warmed up; everything is as before afterwards."""
    device = device_of(options.device)
    with mode_of(given, step, tree, options) as how:
        if options.compiled:
            with how.watching(), raising(name):
                how.compilations = settle(step)
            synchronize(device)
        yield how


@contextmanager
def mode_of(
    given: Given, step: Step, tree: ModuleTree, options: RecordOptions
) -> Iterator[Deployed]:
    """The model runs as the mode has it while the block lasts; compiled in an empty compiler."""
    if not options.compiled:
        yield Deployed(step, tree)
        return
    model = CompiledModel(given.model, options.compile, given.form)
    with fresh_compiler(device_of(options.device)), model.installed():
        yield Deployed(step, tree, model, Provenance(Owners(tree)), Compilations())


def same_kernels(
    given: Given, step: Step, tree: ModuleTree, options: RecordOptions, seen: Path
) -> list[Note]:
    """Run the step once more with nobody looking; a note where its kernels are not those of
    ``seen``, a trace of the recorded steps, or of one.

    Where two such runs differ from each other, it is not our looking that changes them. Nor need
    it be where the step is compiled: Inductor pads products where its own timing finds that faster
    (``fx_passes/pad_mm.py``), so another compilation of the same program may come out otherwise.
    """
    with mode_of(given, step, tree, options):
        if options.compiled:
            settle(step)
        plain = _kernels_of(step, options)
        reason = COMPILED_AGAIN if options.compiled else CHANGED
        notes = other_kernels(plain, kernel_names(seen), reason)
        if notes and other_kernels(plain, _kernels_of(step, options)):
            detail = "two runs of the same steps with nothing attached differ from each other"
            return [Note(reason="kernels vary", detail=detail)]
    return notes


def _kernels_of(step: Step, options: RecordOptions) -> Counter[str]:
    with scratch_folder() as folder:
        target = folder / "plain.json.gz"
        count = 1 if options.graphed else options.steps
        profile_steps(step, device_of(options.device), steps=count, target=target)
        return kernel_names(target)


def other_kernels(plain: Counter[str], recorded: Counter[str], reason: str = CHANGED) -> list[Note]:
    """A note where two multisets of kernels differ."""
    differ = sorted(((plain - recorded) + (recorded - plain)).items())
    if not differ:
        return []
    words = [f"{name}: {recorded[name]} recorded, {plain[name]} plain" for name, _ in differ]
    more = f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    detail = "; ".join(words[:_SHOWN]) + more
    count = sum(number for _, number in differ)
    if reason == COMPILED_AGAIN:
        detail = f"the compiler may have chosen by timings of its own: {detail}"
    return [Note(reason=reason, detail=detail, count=count)]


def kernel_names(trace: Path) -> Counter[str]:
    """How often each kernel ran in a trace; on the CPU, each operator."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    on_device = Counter(e["name"] for e in events if e.get("cat") in DEVICE_WORK)
    if on_device:
        return on_device
    names = (e["name"] for e in events if e.get("cat") == "cpu_op")
    return Counter(_GRAPH.sub("", name) for name in names if not name.startswith(_CALL))
