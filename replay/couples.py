"""A step as it is and a changed one as CUDA graphs, captured not once but in many couples.

Captures of one step keep a speed each for as long as they live, by where their nodes and their
memory lie: twelve of a DLRM of 47 kernels took 264 to 275 µs on an H200, while windows of any one
of them were 1 µs apart, and one freed and captured again in the same place took the same within
1 µs. A difference of two captures is therefore off by several µs, however long it is timed. So each
pair is timed on a couple of captures of its own. The two of a couple share a memory pool, and with
it most of the addresses: twelve in one pool lay within 4 µs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from cb_trace.replay.graph import GraphCapture, capture_step
from cb_trace.replay.pairs import Side
from cb_trace.replay.timing import Run, calls_per_sample, window_ns

COUPLES = 12  # a visit; memory and time may allow fewer
MEMORY_RATIO = 0.1  # of the free memory, for the captures of one visit
# Windows of a bare step are long beside an empty one, which is taken off, and beside the launch of
# the first graph in it. Those of a pair open on a busy device, which hides both.
SHORTER = 3
ROUNDS = 2  # of pairs, each couple one: where there is time for more, windows are longer
LONGER = 6  # times, at the most
# Of a window: it is not to begin with what another graph left in the caches, nor to wait for the
# host, which launches what is in the window meanwhile.
REPLAYS_BEFORE = 2


@dataclass(frozen=True, slots=True)
class _Base:
    """One capture of the step as it is, and the memory pool that a changed one shares with it."""

    capture: GraphCapture
    pool: Any


class Couples:
    """Captures of the step as it is; :meth:`changed` makes couples of them.

    :param whole: the step as it is.
    :param least: so many captures, where memory allows.
    :param seconds: for pairs of windows, one a couple: more captures only as far as they reach.
    """

    def __init__(self, whole: Side, device: torch.device, least: int, seconds: float) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.small = False  # one takes no more than a part of the memory: it may be kept
        self._bases = [self._base(whole)]
        first = self._bases[0]
        if self.reason is not None:
            return
        wanted = min(COUPLES, max(least, _pairs_in(seconds, first.capture.replay, device)))
        most = room(first.capture, device)
        self.small = most > 0
        for _ in range(min(wanted, most) - 1):
            base = self._base(whole, again=True)
            if base.capture.reason is None:
                self._bases.append(base)

    @property
    def reason(self) -> str | None:
        """Why the step as it is cannot be captured."""
        return self._bases[0].capture.reason

    def changed(self, changed: Side, beside: Side | None) -> list[tuple[Side, Side]] | str:
        """A couple a place: the step as it is, and changed; or why the latter cannot be captured.

        :param beside: taken for the step as it is, if there is one. In both of a couple others then
            read recorded outputs, which a step has to fetch from memory where it would find fresh
            ones in the cache: a ReLU of 1.7 µs taken out of a DLRM made the step 7 µs longer.
        """
        found: list[tuple[Side, Side]] = []
        for number, base in enumerate(self._bases):
            again = number > 0
            whole = base.capture if beside is None else self._capture(beside, base.pool, again)
            capture = self._capture(changed, base.pool, again)
            reason = capture.reason or whole.reason
            if reason is None:
                found.append((_side(whole), _side(capture)))
            elif not found:
                return reason
        return found

    def _base(self, whole: Side, *, again: bool = False) -> _Base:
        pool = torch.cuda.graph_pool_handle()
        return _Base(self._capture(whole, pool, again), pool)

    def _capture(self, side: Side, pool: Any, again: bool) -> GraphCapture:
        if side.ready is not None:
            side.ready()
        return capture_step(side.run, self._device, stream=self._stream, pool=pool, again=again)


def _side(capture: GraphCapture) -> Side:
    def before() -> None:
        for _ in range(REPLAYS_BEFORE):
            capture.replay()

    return Side(capture.replay, before)


def calls_per_window(run: Run, device: torch.device, couples: int, seconds: float) -> int:
    """How many runs back to back make one window of a pair.

    Kernels of two streams meet otherwise in every run (a DLRM of 260 µs varied by 13 on an H200),
    so that more runs tell more, and a window costs the host as long as a few of them.

    :param seconds: for pairs of so many ``couples``.
    """
    calls = _least_calls(run, device)
    times = _pairs_in(seconds, run, device, calls) // (ROUNDS * couples)
    return calls * min(max(1, times), LONGER)


def _least_calls(run: Run, device: torch.device) -> int:
    return -(-calls_per_sample(run, device) // SHORTER)


def _pairs_in(seconds: float, run: Run, device: torch.device, calls: int | None = None) -> int:
    """How many pairs of windows of so many runs, the least there are, take so long."""
    calls = calls or _least_calls(run, device)
    pair_ns = 2 * (calls + REPLAYS_BEFORE) * window_ns(run, device, calls)
    return int(seconds * 1e9 / max(1, pair_ns))


def room(first: GraphCapture, device: torch.device) -> int:
    """How many captures of as much memory as the first fit into the free memory's part."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * MEMORY_RATIO) // max(1, first.pool_bytes)


@contextmanager
def young_garbage() -> Iterator[None]:
    """Let collections in the block look at what is made in it only.

    Every capture begins with one (:func:`cb_trace.replay.graph.capture_step`): over all objects
    of a process with torch that is 0.1 s, 25 times as long as the capture.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
