"""Knock-out: what the bare step loses without a module, measured.

The module's forward gives the output it had before (:mod:`cb_trace.replay.stand_in`), and the step
without it is timed against the step as it is, in turn (A B A B), so that drift of clocks and host
meets both alike. On CUDA the same is done with both steps captured as CUDA graphs. All of it is
bare: it must come before the first profiler.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils import _pytree as pytree

from cb_trace.bundle import Deployment, KnockoutRecord, Phase, ReplayRecord
from cb_trace.errors import CbTraceError
from cb_trace.replay.graph import GraphCapture, capture_step, one_line
from cb_trace.replay.guard import RngState
from cb_trace.replay.hooks import COLLECTIVES, output_signature
from cb_trace.replay.pairs import Side, time_pairs
from cb_trace.replay.stand_in import StandIn, UnfitError
from cb_trace.replay.timing import synchronize

WARMUP_STEPS = 2
_TOP = re.compile(r"top(?::([1-9][0-9]*))?")

Step = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockoutOptions:
    """Which modules are knocked out, and how long that may take."""

    top: int = 0  # the costliest by time alone × calls
    paths: tuple[str, ...] = ()  # these as well
    budget_seconds: float = 60.0  # for all of them together
    min_pairs: int = 10


def parse_knockout(text: str) -> KnockoutOptions:
    """Read ``top:20``, ``top``, or module paths with commas between.

    :raises CbTraceError: there is nothing in it.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise CbTraceError("--knockout names no module", hint="--knockout=top:20, or paths")
    counts = [found for part in parts if (found := _TOP.fullmatch(part))]
    top = sum(int(found[1] or 20) for found in counts)
    return KnockoutOptions(top=top, paths=tuple(p for p in parts if not _TOP.fullmatch(p)))


def check_paths(options: KnockoutOptions, known: Mapping[str, nn.Module]) -> None:
    """:raises CbTraceError: a path that the model does not have."""
    for path in options.paths:
        if path not in known:
            raise CbTraceError(f"the model has no module {path!r} to knock out")


def chosen_modules(
    options: KnockoutOptions, replays: Sequence[ReplayRecord], known: Mapping[str, nn.Module]
) -> list[str]:
    """Paths of the modules to knock out: the named ones, then the costliest alone.

    The root is the step itself and is never among the costliest.

    :raises CbTraceError: a path that the model does not have.
    """
    check_paths(options, known)
    alone: Counter[str] = Counter()
    medians = {r.replay_id: sorted(r.samples_ns)[len(r.samples_ns) // 2] for r in _hot(replays)}
    for record in replays:
        if record.path and record.measured_id in medians:
            alone[record.path] += medians[record.measured_id] * record.calls
    top = [path for path, _ in alone.most_common() if path not in options.paths]
    return [*dict.fromkeys(options.paths), *top[: options.top]]


def _hot(replays: Sequence[ReplayRecord]) -> list[ReplayRecord]:
    return [record for record in replays if record.condition == "hot" and record.samples_ns]


class Knockout:
    """Knocks modules out of a step one by one; ``records`` has a row a module and deployment.

    The modules are as before afterwards. The step itself may change what a step changes.
    """

    def __init__(  # noqa: PLR0917 - the parts of one measurement, named at every call
        self,
        modules: Mapping[str, nn.Module],
        step: Step,
        device: torch.device,
        phase: Phase,
        options: KnockoutOptions,
        progress: Callable[[str], None],
    ) -> None:
        self.records: list[KnockoutRecord] = []
        self._modules, self._step, self._device = modules, step, device
        self._phase, self._options, self._progress = phase, options, progress

    def run(self, paths: Sequence[str], *, graph: bool, known: Mapping[str, str]) -> None:
        """Measure the modules of ``paths``, each deployment with an equal part of the time.

        :param graph: measure the step as a CUDA graph as well, if it can be captured.
        :param known: why modules cannot be taken out, where that is known already.
        """
        self._reference = _Reference(self._step, self._device)
        base = capture_step(self._step, self._device) if graph else GraphCapture(reason="")
        self._base = base if base.reason is None else None
        self._begin = time.monotonic()
        for number, path in enumerate(paths):
            self._progress(f"knock-out {number + 1}/{len(paths)} {path or 'the root'}")
            try:
                if path in known:
                    raise UnfitError(known[path])
                self._one(path, self._share(len(paths) - number))
            except UnfitError as error:
                for deployment in self._deployments():
                    self._keep(path, deployment, skipped=str(error))

    def _deployments(self) -> list[Deployment]:
        return ["eager", "graph"] if self._base is not None else ["eager"]

    def _share(self, modules_left: int) -> float:
        """Seconds for one deployment of the next module."""
        left = self._options.budget_seconds - (time.monotonic() - self._begin)
        if left <= 0:
            raise UnfitError(f"time budget of {self._options.budget_seconds:g} s spent")
        return left / modules_left / len(self._deployments())

    def _one(self, path: str, seconds: float) -> None:
        stand_in = StandIn(self._modules[path])
        try:
            self._reference.seed()
            stand_in.record(self._step)
            synchronize(self._device)
        except UnfitError:
            raise
        except Exception as error:
            raise UnfitError(f"cannot be recorded: {one_line(error)}") from error

        self._check(stand_in)
        try:
            base, knocked = Side(self._step, stand_in.remove), Side(self._step, stand_in.install)
            self._keep(path, "eager", self._pairs(base, knocked, seconds))
            if self._base is not None:
                self._graph(path, stand_in, seconds)
        finally:
            stand_in.remove()

    def _check(self, stand_in: StandIn) -> None:
        """Run the step without the module: it must do the same with the rest."""
        try:
            with stand_in.installed():
                for number in range(WARMUP_STEPS):
                    self._reference.seed()
                    output = self._step()
                    if number == 0:
                        self._reference.compare(output, values=not stand_in.draws)
                    del output
                synchronize(self._device)
        except UnfitError:
            raise
        except Exception as error:
            raise UnfitError(f"the step fails without it: {one_line(error)}") from error
        if not stand_in.at_start():
            raise UnfitError("the step calls it another number of times without it")
        if stand_in.written():
            raise UnfitError("a later operator writes into its output")

    def _graph(self, path: str, stand_in: StandIn, seconds: float) -> None:
        assert self._base is not None
        with stand_in.installed():
            captured = capture_step(self._step, self._device)
        if captured.reason is not None:
            self._keep(path, "graph", skipped=captured.reason)
            return
        pairs = self._pairs(Side(self._base.replay), Side(captured.replay), seconds)
        self._keep(path, "graph", pairs)

    def _pairs(self, base: Side, knocked: Side, seconds: float) -> tuple[list[int], list[int]]:
        least = self._options.min_pairs
        return time_pairs(base, knocked, self._device, min_pairs=least, max_seconds=seconds)

    def _keep(
        self,
        path: str,
        deployment: Deployment,
        pairs: tuple[list[int], list[int]] = ([], []),
        skipped: str | None = None,
    ) -> None:
        record = KnockoutRecord(
            path=path,
            phase=self._phase,
            deployment=deployment,
            base_ns=pairs[0],
            knocked_ns=pairs[1],
            skipped=skipped,
        )
        self.records.append(record)


def knock_out(  # noqa: PLR0917 - the parts of one measurement, named at every call
    modules: Mapping[str, nn.Module],
    step: Step,
    device: torch.device,
    phase: Phase,
    options: KnockoutOptions,
    replays: Sequence[ReplayRecord],
    *,
    graph: bool,
    progress: Callable[[str], None],
) -> list[KnockoutRecord]:
    """Knock out the modules that the options choose; Ctrl-C keeps what was measured.

    :param graph: measure the step as a CUDA graph as well, if it can be captured.
    :raises CbTraceError: a path that the model does not have.
    """
    paths = chosen_modules(options, replays, modules)
    known = {r.path: COLLECTIVES for r in replays if r.skipped == COLLECTIVES}
    knockout = Knockout(modules, step, device, phase, options, progress)
    try:
        knockout.run(paths, graph=graph and device.type == "cuda", known=known)
    except KeyboardInterrupt:
        progress("knock-out stopped")
    return knockout.records


class _Reference:
    """What the step gives as it is; its values only where two runs agree on them."""

    def __init__(self, step: Step, device: torch.device) -> None:
        self._rng = RngState.now()
        first, second = self._given(step, device), self._given(step, device)
        self._signature, self._values = first
        self._steady = _alike(self._values, second[1])

    def _given(self, step: Step, device: torch.device) -> tuple[object, list[torch.Tensor]]:
        self.seed()
        output = step()
        synchronize(device)
        return output_signature(output), _values(output)

    def seed(self) -> None:
        """Random numbers as they were in the step that is compared with."""
        self._rng.put()

    def compare(self, output: object, *, values: bool) -> None:
        """:raises UnfitError: the step without the module gives something else."""
        if output_signature(output) != self._signature:
            raise UnfitError("the step gives another output without it")
        if values and self._steady and not _alike(self._values, _values(output)):
            raise UnfitError("it has effects besides its output: the step gives other values")


def _values(output: object) -> list[torch.Tensor]:
    found = (leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor))
    return [tensor.detach().clone() for tensor in found]


def _alike(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Equal up to what another order of additions changes."""
    return len(one) == len(other) and all(
        torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-3, equal_nan=True)
        if a.is_floating_point()
        else torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )
