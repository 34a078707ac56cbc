"""One captured call, run alone: its state reproduced, its output checked, its time taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from cb_trace.bundle import Condition
from cb_trace.replay.compiling import compiled_alone
from cb_trace.replay.flush import CacheFlush
from cb_trace.replay.gradients import BackwardCall
from cb_trace.replay.graph import capture_graph, one_line
from cb_trace.replay.guard import ModuleState, preserved
from cb_trace.replay.hooks import Call, output_signature
from cb_trace.replay.inputs import plan_inputs
from cb_trace.replay.methods import FORWARD
from cb_trace.replay.tensors import UncopyableError
from cb_trace.replay.timing import Run, calls_per_sample, synchronize, time_block

WARMUP_SECONDS = 0.03
WARMUP_CALLS = 3
NO_GRADIENTS = "no gradient reached its output"
OVERRUN = 2  # how far a slow call may exceed its share of the time to reach its samples


Kind = tuple[Literal["forward", "backward"], Condition]


class SkippedError(Exception):
    """A call that cannot be replayed; the message is the reason to store."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How long to sample: see :func:`cb_trace.replay.timing.time_block`."""

    min_samples: int
    min_seconds: float
    noise_ratio: float
    seconds: float  # the share of the time budget


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of one condition, or why there are none."""

    samples_ns: tuple[int, ...] = ()
    calls_per_sample: int = 0
    skipped: str | None = None


class IsolatedCall:
    """A call in its own state. ``restores`` says that every run needs its inputs put back.

    With ``compile`` (keyword arguments of ``torch.compile``) the module runs compiled in every
    condition but ``eager``.
    """

    def __init__(
        self,
        call: Call,
        device: torch.device,
        flush: CacheFlush,
        compile: dict[str, Any] | None = None,  # noqa: A002 - the function's own name
    ) -> None:
        self._call, self._device, self._flush = call, device, flush
        if call.inputs is None:
            raise SkippedError("no inputs were captured")
        self._thawed = call.inputs.thaw(own=call.mutates)
        self._module, self._casts = call.module, call.casts
        forward = call.method == FORWARD
        self._eager = call.module if forward else getattr(call.module, call.method)
        self._compiled = None if compile is None else compiled_alone(self._eager, compile)
        self._state: ModuleState | None = None
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
            made.run()
            synchronize(self._device)
        except SkippedError:
            raise
        except Exception as error:
            raise SkippedError(one_line(error)) from error
        return made

    def _tensors(self) -> list[torch.Tensor]:
        with torch.inference_mode(False), torch.no_grad():
            return plan_inputs(self._thawed.args, self._thawed.kwargs, set()).given

    def _backward(self, condition: Condition, sampling: Sampling) -> Measured:
        """Bare samples of the backward, its forward outside the windows."""
        try:
            run = self.backward(condition).run
        except SkippedError as error:
            return Measured(skipped=str(error))
        if condition == "cold":
            return self._cold(sampling, run, self.sweep)
        return self._hot(run, sampling, None)

    def sweep(self) -> None:
        """Empty the cache and leave the inputs alone: a backward still needs what they hold."""
        self._flush()

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
        self._flush()

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
        if self.restores:
            self._restore()

    def measure(self, kind: Kind, sampling: Sampling) -> Measured:
        """Bare samples of one phase and condition."""
        phase, condition = kind
        if phase == "backward":
            return self._backward(condition, sampling)
        prepare = self.prepare if self.restores else None
        if condition in ("hot", "eager"):
            return self._hot(self.runner(condition), sampling, prepare)
        if condition == "cold":
            return self._cold(sampling, self.run, self.flush)
        if self.restores:
            return Measured(skipped="cannot be captured: its inputs are restored before every call")
        captured = capture_graph(self.run, self._device, fresh_casts=self._casts)
        if captured.reason is not None:
            return Measured(skipped=captured.reason)
        return self._hot(captured.replay, sampling, None)

    def _hot(self, run: Run, sampling: Sampling, prepare: Run | None) -> Measured:
        single = self._warm_up(run, prepare)
        calls = 1 if prepare else calls_per_sample(run, self._device)
        samples = time_block(
            run,
            self._device,
            calls=calls,
            min_samples=sampling.min_samples,
            min_seconds=min(sampling.min_seconds, sampling.seconds / 2),
            max_seconds=_limit(sampling, single * calls),
            noise_ratio=sampling.noise_ratio,
            before=prepare,
        )
        return Measured(tuple(samples), calls)

    def _cold(self, sampling: Sampling, run: Run, flush: Run) -> Measured:
        begin = time.perf_counter()
        flush()
        run()
        synchronize(self._device)
        samples = time_block(
            run,
            self._device,
            min_samples=sampling.min_samples,
            min_seconds=min(sampling.min_seconds, sampling.seconds / 2),
            max_seconds=_limit(sampling, time.perf_counter() - begin),
            noise_ratio=sampling.noise_ratio,
            before=flush,
            queued=True,
        )
        return Measured(tuple(samples), 1)

    def _warm_up(self, run: Run, prepare: Run | None) -> float:
        """Seconds of one run, after enough of them."""
        begin, done = time.perf_counter(), 0
        while True:
            if prepare is not None:
                prepare()
            run()
            synchronize(self._device)
            done += 1
            elapsed = time.perf_counter() - begin
            if done >= WARMUP_CALLS and elapsed >= WARMUP_SECONDS:
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
        return plan.signature, plan.identities()


@contextmanager
def isolated(
    call: Call,
    device: torch.device,
    flush: CacheFlush,
    compile: dict[str, Any] | None = None,  # noqa: A002 - the function's own name
) -> Iterator[IsolatedCall]:
    """The call ready to run in the state it had; afterwards everything is as before.

    :raises SkippedError: it cannot be replayed.
    """
    if call.reason is not None:
        raise SkippedError(call.reason)
    with preserved(call.module, device), call.state.entered(device):
        if call.held is not None:
            call.held.put()
        for inner, training in zip(call.module.modules(), call.training, strict=True):
            inner.training = training
        try:
            ready = IsolatedCall(call, device, flush, compile)
        except torch.OutOfMemoryError as error:
            raise SkippedError(one_line(error)) from error
        ready.check()
        yield ready


def _limit(sampling: Sampling, sample_seconds: float) -> float:
    needed = sampling.min_samples * sample_seconds * 1.5
    return max(sampling.seconds, min(needed, OVERRUN * sampling.seconds))
