"""CUDA graphs of a step or a module, or the reason why there is none."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

WARMUP_RUNS = 3


@dataclass(frozen=True, slots=True)
class GraphCapture:
    """A captured graph, or ``reason`` in one line where the callable cannot be captured."""

    graph: torch.cuda.CUDAGraph | None = None
    reason: str | None = None
    pool_bytes: int = 0  # memory that was taken for it

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        if self.graph is None:
            raise RuntimeError(f"no graph was captured: {self.reason}")
        self.graph.replay()


@contextmanager
def capturing_stream(device: torch.device) -> Iterator[Any]:
    """A stream to capture on later, current in the block; what ran before is done by then."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream):
        yield stream
    torch.cuda.synchronize(device)


def capture_graph(
    run: Callable[[], object],
    device: torch.device,
    warmup: int = WARMUP_RUNS,
    *,
    fresh_casts: bool = True,
    stream: Any = None,
    pool: Any = None,
) -> GraphCapture:
    """Capture one run into a CUDA graph, after ``warmup`` runs on the capturing stream.

    That is a new one, or the ``stream`` given: a backward can be captured where its forward ran.
    The memory is a pool of its own, or the ``pool`` given, which other graphs may share.

    Autocast's cache of cast weights is emptied before the capture (unless ``fresh_casts`` is
    False) and after it: a weight cast before would be missing from the graph, and one cast inside
    lives in the graph's own memory, which a later eager call must not read. No output is kept
    alive: its memory belongs to the graph.
    """
    if device.type != "cuda":
        return GraphCapture(reason="no CUDA device")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*CUDA Graph is empty")
            return _capture(run, device, warmup, fresh_casts, stream, pool)
    except UserWarning:
        return GraphCapture(reason="cannot be captured: it gives the device nothing to do")
    except Exception as error:
        _recover(device)
        return GraphCapture(reason=f"cannot be captured: {one_line(error)}")
    finally:
        torch.clear_autocast_cache()


def capture_step(
    step: Callable[[], object],
    device: torch.device,
    *,
    stream: Any = None,
    pool: Any = None,
    again: bool = False,
) -> GraphCapture:
    """:func:`capture_graph` of a whole step, which may train.

    What accumulates a parameter's gradient runs on the stream it was first used on, and lives as
    long as any graph that leads to it. One that an earlier step has left behind in a cycle of
    references would run outside the capture and break it, so cycles are cleared first.

    :param again: the step was just captured on the ``stream``: it is warm there.
    """
    gc.collect()
    return capture_graph(step, device, 1 if again else WARMUP_RUNS, stream=stream, pool=pool)


def one_line(error: BaseException) -> str:
    """The first cause of an exception as ``Type: first line``.

    A capture that breaks raises once where it broke and again where it is closed; only the first
    says what the step did.
    """
    while error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].strip()}"[:200] if text else type(error).__name__


def _capture(  # noqa: PLR0917 - the parts of one capture, named where it is asked for
    run: Callable[[], object],
    device: torch.device,
    warmup: int,
    fresh_casts: bool,
    stream: Any,
    pool: Any,
) -> GraphCapture:
    with torch.cuda.device(device):
        stream = stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(warmup):
                run()
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.synchronize(device)
        if fresh_casts:
            torch.clear_autocast_cache()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.empty_cache()  # entering a capture does so; here, lest it hide what is taken
        held = torch.cuda.memory_reserved(device)
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            run()
        torch.cuda.synchronize(device)
        return GraphCapture(graph, pool_bytes=torch.cuda.memory_reserved(device) - held)


def _recover(device: torch.device) -> None:
    """Clear what a broken capture leaves behind, so that the next measurement can run.

    The error is one thing, the random generator another: it was told that a capture begins and
    never that it ended, and refuses every draw from then on ("Offset increment outside graph
    capture"; seen with torch 2.11). A copy of its state does not remember the capture.
    """
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        torch.cuda.synchronize(device)
    index = device.index if device.index is not None else torch.cuda.current_device()
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())
