"""The bare step: its wall time with no profiler attached, a block of samples at a time.

A captured step keeps a speed for as long as the capture lives (:mod:`cb_trace.replay.couples`), so
a step that can be captured anew is timed in several captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import median

import torch

from cb_trace.bundle import Deployment, Note, SampleKind, StepSamples
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.step import Step
from cb_trace.replay.clock import Clock
from cb_trace.replay.schedule import TURNS
from cb_trace.replay.series import Series, block_of
from cb_trace.replay.timing import SETTLED_SECONDS, calls_per_sample, settle, time_block

CAPTURES = 2  # of a block, where the step is captured anew
BLOCKS = TURNS + 1  # before each turn of the modules alone, and after the last
UNSTEADY_RATIO = 0.05
UNSTEADY_BLOCKS_RATIO = 0.2  # blocks are short; a host that changes its speed does so by more


class BareSteps:
    """Times a step in each of its deployments, block by block."""

    def __init__(
        self,
        device: torch.device,
        options: RecordOptions,
        clock: Clock,
        progress: Callable[[str], None],
    ) -> None:
        self._device, self._options, self._clock = device, options, clock
        self._progress = progress
        self._steps: dict[tuple[SampleKind, Deployment], Step] = {}
        self._series: dict[tuple[SampleKind, Deployment], Series] = {}
        self._again: dict[tuple[SampleKind, Deployment], Callable[[], Step | None]] = {}

    def add(
        self,
        deployment: Deployment,
        run: Step,
        kind: SampleKind = "bare",
        again: Callable[[], Step | None] | None = None,
    ) -> None:
        """Time this as well from now on.

        :param again: makes the same anew, elsewhere in memory; None where it has no room.
        """
        self._steps[kind, deployment], self._series[kind, deployment] = run, Series()
        if again is not None:
            self._again[kind, deployment] = again

    def block(self, turn: int) -> None:
        """A block of samples of every deployment."""
        for key, series in self._series.items():
            kind, deployment = key
            how = "" if kind == "bare" else " on one stream"
            self._progress(f"bare steps, {deployment}{how}")
            again = self._again.get(key)
            parts = CAPTURES if again else 1
            for _ in range(parts):
                if again is not None and series.blocks:
                    self._steps[key] = again() or self._steps[key]
                self._block(self._steps[key], deployment, series, turn, parts)

    def shortest_ns(self) -> int:
        """The median step of the fastest deployment."""
        bare = (s.median_ns() for (kind, _), s in self._series.items() if kind == "bare")
        return min(bare, default=0)

    def samples(self) -> list[StepSamples]:
        """All of them, for the manifest."""
        return [_samples(*key, series) for key, series in self._series.items()]

    def once_more(self, deployment: Deployment, run: Step) -> StepSamples:
        """A block after everything else: a check that is mixed into nothing."""
        self._progress(f"bare after steps, {deployment}")
        series = Series()
        self._block(run, deployment, series, 0, 1)
        return _samples("bare_after", deployment, series)

    def _block(
        self, run: Step, deployment: Deployment, series: Series, turn: int, parts: int
    ) -> None:
        if not series.calls_per_sample:
            # A graph can be as short as a stumble of the host: then many a window.
            many = deployment == "graph"
            series.calls_per_sample = calls_per_sample(run, self._device) if many else 1
        # What ran since the last block has left other caches and another clock.
        settle(run, self._device, SETTLED_SECONDS if deployment == "graph" else 0.0)
        timed = time_block(
            run,
            self._device,
            min_samples=-(-self._options.bare_samples // (BLOCKS * parts)),
            min_seconds=self._options.bare_seconds / BLOCKS / parts,
            calls=series.calls_per_sample,
        )
        series.blocks.append(block_of(turn, timed, self._clock.read()))


def _samples(kind: SampleKind, deployment: Deployment, series: Series) -> StepSamples:
    return StepSamples(
        kind=kind, deployment=deployment, ns=series.samples(), blocks=series.records()
    )


def unsteady(samples: Sequence[StepSamples]) -> list[Note]:
    """Notes where the step ran at other speeds: from block to block, or after the profile."""
    bare = [s for s in samples if s.kind == "bare"]
    found = [*_from_block_to_block(bare), *_after_the_profile(bare, samples)]
    return [Note(reason="unsteady step", detail=detail) for detail in found]


def _from_block_to_block(bare: Sequence[StepSamples]) -> Iterator[str]:
    for one in bare:
        ends = list(accumulate(block.samples for block in one.blocks))
        blocks = [one.ns[a:b] for a, b in pairwise([0, *ends]) if b > a]
        medians = [median(block) for block in blocks]
        if medians and max(medians) > (1 + UNSTEADY_BLOCKS_RATIO) * min(medians):
            low, high = min(medians) / 1e3, max(medians) / 1e3
            yield f"blocks of bare steps, {one.deployment}, from {low:.0f} to {high:.0f} µs"


def _after_the_profile(
    bare: Sequence[StepSamples], samples: Sequence[StepSamples]
) -> Iterator[str]:
    for after in (s for s in samples if s.kind == "bare_after"):
        before = next(s for s in bare if s.deployment == after.deployment)
        then, now = median(before.ns), median(after.ns)
        if abs(now - then) > UNSTEADY_RATIO * then:
            yield f"bare step {then / 1e3:.0f} µs before the profile, {now / 1e3:.0f} µs after it"
