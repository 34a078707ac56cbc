"""The samples of one measurement, taken block by block, each with the clock after it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cb_trace.bundle import SampleBlock
from cb_trace.replay.clock import Reading, sound
from cb_trace.replay.host import SLOWED
from cb_trace.replay.timing import Timed, noise


@dataclass(frozen=True, slots=True)
class Block:
    """Samples taken in one go."""

    turn: int
    ns: tuple[int, ...]
    reading: Reading = field(default_factory=Reading)
    dropped: int = 0  # samples left out, as the host was slowed meanwhile


def block_of(turn: int, timed: Timed, reading: Reading) -> Block:
    """A block as it was timed; a host that was slowed throughout is among its limits."""
    if timed.slowed:
        reading = replace(reading, limits=(*reading.limits, SLOWED))
    return Block(turn, tuple(timed.ns), reading, timed.dropped)


@dataclass(slots=True)
class Series:
    """One measurement as it grows; ``skipped`` says why there will be no more of it."""

    blocks: list[Block] = field(default_factory=list)
    calls_per_sample: int = 0
    skipped: str | None = None

    def samples(self) -> list[int]:
        """Those that count, in the order taken."""
        return [ns for block, counts in self._judged() if counts for ns in block.ns]

    def median_ns(self) -> int:
        """Median of those that count; 0 where there is none."""
        samples = self.samples()
        return round(statistics.median(samples)) if samples else 0

    def noise(self) -> float:
        """Relative noise of the median of those that count."""
        samples = self.samples()
        return noise(samples) if samples else float("inf")

    def dropped(self) -> int:
        """How many do not count."""
        return sum(_dropped(block, counts) for block, counts in self._judged())

    def records(self) -> list[SampleBlock]:
        """The blocks for the manifest."""
        return [
            SampleBlock(
                turn=block.turn,
                samples=len(block.ns) if counts else 0,
                dropped=_dropped(block, counts),
                sm_clock_mhz=block.reading.sm_clock_mhz,
                temperature_c=block.reading.temperature_c,
                limits=list(block.reading.limits),
            )
            for block, counts in self._judged()
        ]

    def _judged(self) -> list[tuple[Block, bool]]:
        counts = sound([block.reading for block in self.blocks])
        return list(zip(self.blocks, counts, strict=True))


def _dropped(block: Block, counts: bool) -> int:
    return block.dropped + (0 if counts else len(block.ns))


def clock_notes(series: Sequence[Series]) -> tuple[str, int]:
    """In words what the clock did over all blocks, and how many samples were dropped for it."""
    readings = [block.reading for one in series for block in one.blocks]
    dropped = sum(one.dropped() for one in series)
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    degrees = [r.temperature_c for r in readings if r.temperature_c is not None]
    words = [f"SM clock {_span(clocks)} MHz" if clocks else "SM clock unknown"]
    words.append(f"{_span(degrees)} °C" if degrees else "temperature unknown")
    words.append(f"after each of {len(readings)} blocks of samples")
    limits = sorted({limit for reading in readings for limit in reading.limits})
    words += [f"{limit} after {sum(limit in r.limits for r in readings)}" for limit in limits]
    if dropped:
        words.append(f"{dropped} samples dropped")
    return ", ".join(words), dropped


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
