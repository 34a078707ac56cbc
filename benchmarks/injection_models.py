"""The models of the injection suite: each in two versions that differ in one thing.

Everything is bound by the device (kernels of more than 100 µs on an H200, alone and compiled too:
calling a compiled module takes the host some 90 µs), so that host time neither hides what was
injected nor adds to it. And by its memory, not by its arithmetic: large matmuls run into the power
limit and differ by up to a fifth from one minute to the next (the same kernel took 337 and 409 µs).
On a CPU the same models are built small, to run the code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache as remembered
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cb_trace.bundle import Mode
from cb_trace.providers.workload import Setting, Workload
from cb_trace.replay.inputs import ThawedInputs

SPIN_NS = 1_000_000
INJECTED = "injected"  # the version that is not the baseline


@dataclass(frozen=True, slots=True)
class Version:
    """One side of a pair: a workload, and how it is recorded."""

    model: nn.Module
    args: tuple[Any, ...]
    mode: Mode = "eager"
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    settings: dict[str, Setting] = field(default_factory=dict)

    def workload(self, name: str) -> Workload:
        """What the recorder takes."""
        return Workload(name, self.model.eval(), self.args, settings=self.settings)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is built: on a GPU as large as the injection needs, elsewhere small."""

    device: torch.device

    @property
    def large(self) -> bool:
        """Whether there is a GPU to fill."""
        return self.device.type == "cuda"

    def pick(self, large: int, small: int) -> int:
        """A size for here."""
        return large if self.large else small

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Random data: zeros would draw less power and run faster."""
        return torch.randn(*shape, device=self.device, dtype=dtype)


# --- a copy on a second stream beside a module ----------------------------------------------------


class Stream(nn.Module):
    """Copies its input by a kernel of one small block a multiprocessor.

    So two of them run beside each other in whichever order they start, each alone leaves some of
    the memory's bandwidth unused, and both together want more than there is. A memcpy would not do:
    the driver copies 1 GiB in 505 µs in a stream, in 869 µs in a CUDA graph though nothing runs
    beside (H200): the sequence run would not be what the step ran.
    """

    def forward(self, source: Tensor) -> Tensor:
        if not source.is_cuda:
            return source.clone()
        from benchmarks.injection_kernel import copied

        return copied(source)


class Beside(nn.Module):
    """``copy`` and ``work`` in this order on one stream, or ``copy`` on a second one beside it."""

    def __init__(self, place: Place, *, beside: bool) -> None:
        super().__init__()
        self.source: Tensor
        self.register_buffer("source", place.randn(place.pick(2**28, 2**12)))
        self.copy, self.work, self.last = Stream(), Stream(), Stream()
        self.stream: torch.cuda.Stream | None = None
        if beside and place.large:
            self.stream = torch.cuda.Stream(place.device)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.stream is None:
            aside = self.copy(self.source)
            return self.last(self.work(x)), aside
        here = torch.cuda.current_stream(x.device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            aside = self.copy(self.source)
        out = self.work(x)
        here.wait_stream(self.stream)
        return self.last(out), aside


def copy(place: Place, version: str) -> Version:
    """A copy of 1 GiB before one of 768 MiB; injected, beside it on a second stream."""
    x = place.randn(place.pick(3 * 2**26, 2**10))
    return Version(Beside(place, beside=version == INJECTED), (x,))


WIDTH = 128  # of matmuls that take as long as reading and writing


def linear(place: Place) -> nn.Linear:
    """One GEMM and nothing else."""
    return nn.Linear(WIDTH, WIDTH, bias=False, device=place.device, dtype=torch.bfloat16)


def batch(place: Place) -> Tensor:
    """What such GEMMs are for: 1 GiB."""
    return place.randn(place.pick(2**22, 16), WIDTH, dtype=torch.bfloat16)


# --- the host at work between two modules, the device out of work ---------------------------------


class Spin(nn.Module):
    """Waits until the device has run dry, without a call that synchronises, then spins."""

    def __init__(self, ns: int) -> None:
        super().__init__()
        self.ns = ns

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda and not torch.cuda.is_current_stream_capturing():
            stream = torch.cuda.current_stream(x.device)
            while not stream.query():
                pass
        end = time.perf_counter_ns() + self.ns
        while time.perf_counter_ns() < end:
            pass
        return x


def spin(place: Place, version: str) -> Version:
    """Two GEMMs; between them, injected, the host spins for 1 ms."""
    between = Spin(SPIN_NS if version == INJECTED else 0)
    names = ("first", "spin", "second")
    parts = (linear(place), between, linear(place))
    return Version(named(names, parts), (batch(place),))


def named(names: tuple[str, ...], parts: tuple[nn.Module, ...]) -> nn.Sequential:
    """Modules in a row."""
    made = nn.Sequential()
    for name, part in zip(names, parts, strict=True):
        made.add_module(name, part)
    return made


# --- a table below the size of the cache ----------------------------------------------------------


class Sweep(nn.Module):
    """Reads more than any cache holds."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.much: Tensor
        self.register_buffer("much", place.randn(place.pick(2**27, 2**12)))

    def forward(self) -> Tensor:
        return self.much.sum()


class Lookup(nn.Module):
    """A table, and then a sweep: in the step the table is always cold."""

    def __init__(self, place: Place, rows: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(rows, 32, mode="sum", device=place.device)
        self.sweep = Sweep(place)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.table(ids), self.sweep()


def cache(place: Place, version: str) -> Version:
    """Few long bags: lookups one after another, whose time is latency, not bandwidth.

    They read 192 MiB of distinct rows; injected, a table of 16 MiB, each row twelve times: one in
    twelve lookups is a row's first, and waits for memory where the cache is cold. (By bandwidth a
    table that fits the cache could not differ by more than 10 µs.)
    """
    held = place.pick(2**17, 2**6)
    lookups = 12 * held
    rows = held if version == INJECTED else lookups
    ids = torch.randperm(lookups, device=place.device).remainder(rows).int()
    return Version(Lookup(place, rows), (ids.view(place.pick(256, 16), -1),))


# --- a pointwise chain compiled -------------------------------------------------------------------


def chain(place: Place, version: str) -> Version:
    """Three pointwise modules over 1 GiB; injected, compiled into one kernel."""
    model = named(("gelu", "silu", "tanh"), (nn.GELU(), nn.SiLU(), nn.Tanh()))
    x = place.randn(place.pick(2**28, 2**12))
    return Version(model, (x,), "compile" if version == INJECTED else "eager")


# --- the replay's input made another than it was --------------------------------------------------


@contextmanager
def unaligned_replays() -> Iterator[None]:
    """Inputs of replays begin one element past where they were; those of the step do not."""
    build = ThawedInputs._build

    def moved(self: ThawedInputs) -> None:
        build(self)
        self.args, self.kwargs = pytree.tree_map(_one_further, (self.args, self.kwargs))

    ThawedInputs._build = moved  # type: ignore[method-assign]
    try:
        yield
    finally:
        ThawedInputs._build = build  # type: ignore[method-assign]


def _one_further(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    room = leaf.new_empty(leaf.numel() + 1)
    return room[1:].view(leaf.shape).copy_(leaf)


def unaligned(place: Place, version: str) -> Version:
    """A GEMM whose replay, injected, gets an input that is not aligned."""
    around = unaligned_replays if version == INJECTED else nullcontext
    return Version(named(("gemm",), (linear(place),)), (batch(place),), around=around)


# --- GEMV against elementwise in a compiled region ------------------------------------------------


class Head(nn.Module):
    """``outputs`` dot products a row: as a matrix product, or elementwise, which can be fused."""

    def __init__(
        self, place: Place, outputs: int, dtype: torch.dtype, *, elementwise: bool
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(place.randn(outputs, 128, dtype=dtype))
        self.elementwise = elementwise

    def forward(self, x: Tensor) -> Tensor:
        if self.elementwise:
            return (x.unsqueeze(1) * self.weight).sum(-1)
        return x @ self.weight.t()


HEADS = (
    (1, torch.float32), (1, torch.bfloat16), (2, torch.bfloat16), (4, torch.bfloat16),
    (8, torch.bfloat16),
)  # fmt: skip


def gemv(place: Place, version: str) -> Version:
    """A head behind a pointwise module, compiled: a GEMV; injected, elementwise and fused.

    Which head is slower alone and faster in the whole depends on the machine: the first of
    :data:`HEADS` that is so here is taken.
    """
    outputs, dtype = next((head for head in HEADS if flips(place, *head)), HEADS[0])
    settings: dict[str, Setting] = {"outputs": outputs, "dtype": str(dtype)}
    model = headed(place, outputs, dtype, elementwise=version == INJECTED)
    return Version(model, (rows(place, dtype),), "compile", settings=settings)


def headed(place: Place, outputs: int, dtype: torch.dtype, *, elementwise: bool) -> nn.Sequential:
    """The pointwise module and the head."""
    head = Head(place, outputs, dtype, elementwise=elementwise)
    return named(("act", "head"), (nn.SiLU(), head))


def rows(place: Place, dtype: torch.dtype) -> Tensor:
    """What the head is for: many rows."""
    return place.randn(place.pick(2**22, 2**8), 128, dtype=dtype)


@remembered
def flips(place: Place, outputs: int, dtype: torch.dtype) -> bool:
    """Whether the elementwise head is slower alone, compiled, and the whole faster with it."""
    if not place.large:
        return True
    x, alone, whole = rows(place, dtype), [], []
    for elementwise in (False, True):
        model = headed(place, outputs, dtype, elementwise=elementwise)
        alone.append(_milliseconds(model.head, x))
        whole.append(_milliseconds(model, x))
    print(f"heads {outputs} {dtype}: alone {alone}, whole {whole} ms", flush=True)
    return alone[1] > 1.03 * alone[0] and whole[1] < 0.97 * whole[0]


def _milliseconds(module: Any, x: Tensor) -> float:
    """The shortest of some compiled runs, as the device sees it."""
    torch._dynamo.reset()
    compiled: Any = torch.compile(module)
    found: list[float] = []
    event: Any = partial(torch.cuda.Event, enable_timing=True)
    sleep: Any = torch.cuda._sleep
    with torch.no_grad():
        for _ in range(30):
            begin, end = event(), event()
            sleep(1_000_000)  # so that the launch is hidden
            begin.record()
            compiled(x)
            end.record()
            end.synchronize()
            found.append(float(begin.elapsed_time(end)))
    return round(min(found), 4)


# --- nothing --------------------------------------------------------------------------------------


def nothing(place: Place, version: str) -> Version:
    """The same twice: GEMMs with pointwise modules between."""
    parts = (linear(place), nn.GELU(), linear(place))
    model = named(("up", "act", "down"), parts)
    return Version(model, (batch(place),), settings={"version": version})


INJECTIONS: dict[str, Callable[[Place, str], Version]] = {
    "nothing": nothing,
    "copy": copy,
    "spin": spin,
    "cache": cache,
    "fusion": chain,
    "kernel_choice": unaligned,
    "gemv": gemv,
}
