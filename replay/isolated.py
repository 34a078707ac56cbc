"""One captured call, run alone: its state reproduced, its output checked, its time taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from cb_trace.bundle import Condition
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.gradients import BackwardCall
from cb_trace.replay.graph import capture_graph, capturing_stream, one_line
from cb_trace.replay.guard import preserved
from cb_trace.replay.hooks import Call, output_signature
from cb_trace.replay.inputs import plan_inputs
from cb_trace.replay.methods import FORWARD
from cb_trace.replay.module_state import ModuleState
from cb_trace.replay.series import Series
from cb_trace.replay.tensors import UncopyableError
from cb_trace.replay.timing import (
    Run,
    Timed,
    calls_per_sample,
    settle,
    synchronize,
    time_block,
)

WARMUP_SECONDS = 0.03
WARMUP_CALLS = 3
LONG_SECONDS = 0.5  # a call that has warmed up for this long is warm
LEAST_SECONDS = 0.02  # of a block, if its samples take so long: nothing is gained by fewer
HOLD_FACTOR = 2  # times as long as the host takes: by that it may be slowed
LAUNCH_RUNS = 3
# Times as long as a window has to be: one that opens on an empty queue waits for the first launch,
# 15 to 30 µs of a host that has rested, which is no time of the device's.
LONGER = 3
NO_GRADIENTS = "no gradient reached its output"
RECOMPUTES = "it runs forwards again: alone, recomputed work cannot be told from the backward"
OVERRUN = 2  # how far a slow call may exceed its share of the time to reach its samples


Kind = tuple[Literal["forward", "backward"], Condition]


class SkippedError(Exception):
    """A call that cannot be replayed; the message is the reason to store."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How long to sample in one block: see :func:`cb_trace.replay.timing.time_block`."""

    min_samples: int
    min_seconds: float
    noise_ratio: float
    seconds: float  # the share of the time budget


class IsolatedCall:
    """A call in its own state. ``restores`` says that every run needs its inputs put back.

    Where the call has a ``compiled`` form, that runs in every condition but ``eager``.
    """

    def __init__(self, call: Call, device: torch.device, flush: CacheFlush) -> None:
        self._call, self._device, self._flush = call, device, flush
        if call.inputs is None:
            raise SkippedError("no inputs were captured")
        self._thawed = call.inputs.thaw(own=call.mutates)
        self._module, self._casts = call.module, call.casts
        self._eager, self._compiled = eager_form(call), call.compiled
        self._state: ModuleState | None = None
        self._hold_ns = 0  # what keeps the device waiting before a sweep
        self.restores = False

    def run(self) -> object:
        """One call of the module, its output dropped.

        Where the call in context cast its weights, autocast's cache is emptied first, or every
        run but the first would find them cast. It costs well below a microsecond.
        """
        if self._casts:
            torch.clear_autocast_cache()
        return (self._compiled or self._eager)(*self._thawed.args, **self._thawed.kwargs)

    def run_eager(self) -> object:
        """:meth:`run` without the compiler."""
        if self._casts:
            torch.clear_autocast_cache()
        return self._eager(*self._thawed.args, **self._thawed.kwargs)

    def backward(self, condition: Condition) -> BackwardCall:
        """The call's backward, after a forward of its own: it can run again and again.

        :raises SkippedError: there are no gradients to run it with, or it raises.
        """
        gradients = self._call.gradients
        if gradients is None or gradients.reason is not None:
            raise SkippedError(gradients.reason if gradients else NO_GRADIENTS)
        self.prepare()
        try:
            output = self.runner(condition)()
            made = BackwardCall(output, gradients.copies, self._tensors(), self._module)
            if made.empty:
                raise SkippedError(NO_GRADIENTS)
            with modules_called() as called:
                made.run()
            synchronize(self._device)
            if called:
                raise SkippedError(RECOMPUTES)
        except SkippedError:
            raise
        except Exception as error:
            raise SkippedError(one_line(error)) from error
        return made

    def _tensors(self) -> list[torch.Tensor]:
        with torch.inference_mode(False), torch.no_grad():
            return plan_inputs(self._thawed.args, self._thawed.kwargs, set()).given

    def _backward(self, condition: Condition, sampling: Sampling, series: Series) -> Timed:
        """Bare samples of the backward, its forward outside the windows."""
        if condition == "graph":
            return self._backward_graph(sampling, series)
        run = self.backward(condition).run
        if condition == "cold":
            return self._cold(run, self.sweep, sampling, series)
        return self._hot(run, None, sampling, series)

    def _backward_graph(self, sampling: Sampling, series: Series) -> Timed:
        """The backward captured alone: it runs on the streams of its forward, so that runs on the
        capturing one, outside the graph, and the inputs, which are part of it, are made there.
        """
        with capturing_stream(self._device) as stream:
            self._thawed.restore()
            made = self.backward("graph")
        captured = capture_graph(made.run, self._device, fresh_casts=False, stream=stream)
        if captured.reason is not None:
            raise SkippedError(captured.reason)
        settle(captured.replay, self._device)
        return self._hot(captured.replay, None, sampling, series)

    def sweep(self) -> None:
        """Empty the cache and leave the inputs alone: a backward still needs what they hold."""
        self._flush(self._hold_ns)

    def runner(self, condition: Condition) -> Callable[[], object]:
        """What one call is in a condition."""
        return self.run_eager if condition == "eager" else self.run

    def prepare(self) -> None:
        """What has to happen before a run, outside any window."""
        if self.restores:
            self._restore()
            synchronize(self._device)

    def flush(self) -> None:
        """:meth:`prepare`, then empty the cache. The flush is left queued on the device."""
        self.prepare()
        self._flush(self._hold_ns)

    def check(self) -> None:
        """Run once, and compare with the call in context.

        :raises SkippedError: it raises, or its output has another structure, type or size.
        """
        self._state = ModuleState(self._module)
        before = self._contents()
        if self._call.rng is not None:
            self._call.rng.put()
        try:
            output = output_signature(self.run())
            synchronize(self._device)
        except Exception as error:
            raise SkippedError(one_line(error)) from error
        if output != self._call.output:
            raise SkippedError("output differs in structure or size from the one in context")
        self.restores = (
            self._state.changed()
            or before != self._contents()
            or (self._call.mutates and self._thawed.mutated())
        )
        self._call.restores = self.restores
        if self.restores:
            self._restore()

    def measure(self, kind: Kind, sampling: Sampling, series: Series) -> Timed:
        """A block of bare samples of one phase and condition, to be added to ``series``.

        :raises SkippedError: there can be none.
        """
        phase, condition = kind
        if phase == "backward":
            return self._backward(condition, sampling, series)
        prepare = self.prepare if self.restores else None
        if condition in ("hot", "eager"):
            return self._hot(self.runner(condition), prepare, sampling, series)
        if condition == "cold":
            return self._cold(self.run, self.flush, sampling, series)
        if self.restores:
            raise SkippedError("cannot be captured: its inputs are restored before every call")
        captured = capture_graph(self.run, self._device, fresh_casts=self._casts)
        if captured.reason is not None:
            raise SkippedError(captured.reason)
        settle(captured.replay, self._device)
        return self._hot(captured.replay, None, sampling, series)

    def _hot(self, run: Run, prepare: Run | None, sampling: Sampling, series: Series) -> Timed:
        long = 0.0 if series.blocks else min(WARMUP_SECONDS, sampling.seconds)
        single = self._warm_up(run, prepare, long)
        if not series.calls_per_sample:
            many = LONGER if self._device.type == "cuda" else 1
            series.calls_per_sample = 1 if prepare else calls_per_sample(run, self._device, many)
        calls = series.calls_per_sample
        return self._block(run, prepare, sampling, series, single * calls)

    def _cold(self, run: Run, flush: Run, sampling: Sampling, series: Series) -> Timed:
        """The device alone: it waits, before it sweeps, for as long as the host takes to launch.

        A sweep hides the launches of a kernel or two; those of a block would be timed as its
        kernels are, and the host with them.
        """
        self._hold_ns = HOLD_FACTOR * self._launch_ns(run, flush)
        begin = time.perf_counter()
        flush()
        run()
        synchronize(self._device)
        series.calls_per_sample = 1
        seconds = time.perf_counter() - begin
        return self._block(run, flush, sampling, series, seconds, queued=True)

    def _launch_ns(self, run: Run, flush: Run) -> int:
        """How long the host is in a run: the shortest of a few; no matter on a CPU."""
        if self._device.type != "cuda":
            return 0
        times = []
        for _ in range(LAUNCH_RUNS):
            flush()
            synchronize(self._device)
            begin = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - begin)
            synchronize(self._device)
        return min(times)

    def _block(
        self,
        run: Run,
        before: Run | None,
        sampling: Sampling,
        series: Series,
        sample_seconds: float,
        *,
        queued: bool = False,
    ) -> Timed:
        return time_block(
            run,
            self._device,
            calls=series.calls_per_sample,
            min_samples=sampling.min_samples,
            min_seconds=min(sampling.min_seconds, sampling.seconds / 2),
            max_seconds=_limit(sampling, sample_seconds),
            noise_ratio=sampling.noise_ratio,
            before=before,
            queued=queued,
            prior=series.samples(),
            floor=1 if series.blocks else 2,
            rest=True,
        )

    def _warm_up(self, run: Run, prepare: Run | None, seconds: float) -> float:
        """Seconds of one run, after enough of them; one is, where it was warm in an earlier turn.

        No longer than a block's share of the time: small shares are of many small modules.
        """
        begin, done = time.perf_counter(), 0
        while True:
            if prepare is not None:
                prepare()
            run()
            synchronize(self._device)
            done += 1
            elapsed = time.perf_counter() - begin
            warm = not seconds or (done >= WARMUP_CALLS and elapsed >= seconds)
            if warm or elapsed >= LONG_SECONDS:
                return elapsed / done

    def _restore(self) -> None:
        self._thawed.restore()
        if self._state is not None:
            self._state.put()

    def _contents(self) -> object:
        """What the arguments consist of now, to see whether a run exchanged some of it."""
        try:
            with torch.inference_mode(False), torch.no_grad():
                plan = plan_inputs(self._thawed.args, self._thawed.kwargs, set())
        except UncopyableError:
            return None
        # The tensors with it: one that was let go could leave its id to another.
        return plan.signature, plan.identities(), _Kept(plan.given)


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """Keeps tensors alive; compares equal to any other, as identities are compared beside it."""

    tensors: list[torch.Tensor]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept)

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def isolated(call: Call, device: torch.device, flush: CacheFlush) -> Iterator[IsolatedCall]:
    """The call ready to run in the state it had; afterwards everything is as before.

    :raises SkippedError: it cannot be replayed.
    """
    if call.reason is not None:
        raise SkippedError(call.reason)
    if len(call.training) != sum(1 for _ in call.module.modules()):
        raise SkippedError("it holds other modules than when its call was seen")
    with preserved(call.module, device), call.state.entered(device):
        if call.held is not None:
            call.held.put()
        for inner, training in zip(call.module.modules(), call.training, strict=True):
            inner.training = training
        try:
            ready = IsolatedCall(call, device, flush)
        except torch.OutOfMemoryError as error:
            raise SkippedError(one_line(error)) from error
        ready.check()
        yield ready


@contextmanager
def modules_called() -> Iterator[list[str]]:
    """Classes of the modules whose forward runs in the block."""
    called: list[str] = []

    def note(module: nn.Module, _: object) -> None:
        called.append(type(module).__name__)

    handle = register_module_forward_pre_hook(note)
    try:
        yield called
    finally:
        handle.remove()


def eager_form(call: Call) -> Callable[..., object]:
    """The module as it is called, or the method that was."""
    if call.method == FORWARD:
        return call.module
    method: Callable[..., object] = getattr(call.module, call.method)
    return method


def _limit(sampling: Sampling, sample_seconds: float) -> float:
    needed = sampling.min_samples * sample_seconds * 1.5
    return max(sampling.seconds, min(needed, max(OVERRUN * sampling.seconds, LEAST_SECONDS)))
