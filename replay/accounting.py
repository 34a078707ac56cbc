"""One pass of the step that counts: operators by module call, what they touch, what is held.

Never while anything is timed, and uncompiled. Hooks tell which calls are open; autograd's sequence
numbers tell which call made a backward node: the nodes that a call makes are numbered from its
begin to its end. What a backward makes (a reentrant checkpoint runs the forward again there, and
then a backward of its own) is numbered by that thread, so it is looked up by the backward it is
of. (One forward thread.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.flop_counter import flop_registry

from cb_trace.accounts import WorkPhase
from cb_trace.replay.formulas import count, operator_name
from cb_trace.replay.inputs import tensors_of
from cb_trace.replay.methods import StepThread, hooked
from cb_trace.replay.onlooker import Onlooker
from cb_trace.replay.storages import CudaMeter, Meter, Storage, Storages, TensorMeter
from cb_trace.replay.traffic import Border, Traffic, traffic, view_bytes
from cb_trace.replay.work import Work, work_dtype

OUTSIDE = -1  # the index of what ran outside every call

OpCall = tuple[Any, Any, dict[str, Any]]  # the operator and its arguments


@dataclass(slots=True, eq=False)
class Frame:
    """One call of a module in one phase, or (path ``""``, no call) what ran outside every call."""

    path: str
    phase: WorkPhase
    index: int
    module: nn.Module | None = None
    chain: tuple[Frame, ...] = ()  # itself and the calls around it, each path once
    first_node: int = 0
    base: int = 0  # bytes in use when it began
    peak: int = 0  # bytes above that
    output_bytes: int = 0
    work: Work = field(default_factory=Work)
    border: Border = field(default_factory=Border)
    saved: dict[Storage, int] = field(default_factory=dict)
    twins: dict[WorkPhase, Frame] = field(default_factory=dict)  # the same call, other phases


@dataclass(slots=True)
class _Made:
    """What calls have made outside any backward, or in one."""

    nodes: dict[int, Frame] = field(default_factory=dict)  # → the innermost call that made it
    calls: dict[str, list[Frame]] = field(default_factory=dict)  # that none has run again yet


class Accounting:
    """Counts while a step runs inside :meth:`counting`; ``frames`` hold the results.

    ``failures`` are operators that could not be examined: counting never breaks the step.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], device: torch.device, meter: CudaMeter | None = None
    ) -> None:
        self.frames: list[Frame] = []
        self.failures: dict[str, int] = {}
        self.storages = Storages(device)
        own = CudaMeter(device) if device.type == "cuda" else TensorMeter(self.storages)
        self.meter: Meter = meter or own
        self._modules, self._device = modules, device
        self._own: set[Storage] = set()
        self._counts: dict[tuple[str, WorkPhase], int] = {}
        self._stack: list[Frame] = []
        self._made = _Made()
        self._made_in: dict[int, _Made] = {}  # in a backward that still runs
        self._parameters: dict[int, str] = {}
        self._latest: dict[str, Frame] = {}
        self._outside: dict[WorkPhase, Frame] = {}
        self._optimizing = False
        self.looking = False  # at a tensor of the step's: the operators are ours

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count for as long as the block lasts."""
        self._know_own()
        with ExitStack() as stack:
            for path, module in self._modules.items():
                for handle in self._hook(path, module):
                    stack.callback(handle.remove)
            for register, flag in (
                (register_optimizer_step_pre_hook, True),
                (register_optimizer_step_post_hook, False),
            ):
                stack.callback(register(self._optimizer_hook(flag)).remove)
            stack.callback(self._close_all)
            stack.enter_context(_uncompiled())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._save, _same))
            stack.enter_context(_Watch(self))
            self.meter.take()
            yield

    def _know_own(self) -> None:
        """Parameters and buffers, which nobody saves: they are there anyway."""
        for path, module in self._modules.items():
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._parameters.setdefault(id(parameter), path)
            for tensor in (*module.parameters(), *module.buffers()):
                storage = self.storages.of(tensor)
                if storage is not None:
                    self._own.add(storage)

    # --- calls --------------------------------------------------------------------------------

    def _hook(self, path: str, module: nn.Module) -> list[Any]:
        thread = StepThread()

        def begin(*_: Any) -> None:
            if thread.holds():
                self._begin(path, module)

        def end(_module: nn.Module, _args: Any, output: Any) -> None:
            if thread.holds():
                self._end(module, output)

        return hooked(module, begin, end)

    def _begin(self, path: str, module: nn.Module) -> None:
        around = self._stack[-1].chain if self._stack else ()
        self._settle(around)
        again = torch._C._current_graph_task_id() != -1  # inside a backward: recomputed
        first = self._recomputed(path) if again else None
        if first is not None and not around:
            outer = (frame for frame in first.chain if frame.path != path)
            around = tuple(self._twin(frame, "recompute") for frame in outer)
        frame = self._frame(path, "recompute" if again else "forward", module)
        if first is not None:
            frame.twins = first.twins
        inside_itself = any(outer.path == path for outer in around)
        frame.chain = around if inside_itself else (*around, frame)
        frame.first_node = torch._C._autograd._get_sequence_nr()
        self._stack.append(frame)

    def _end(self, module: nn.Module, output: Any) -> None:
        if not any(frame.module is module for frame in self._stack):
            return
        while self._stack:  # calls that raised, and whose caller went on, end here as well
            frame = self._stack.pop()
            self._settle(frame.chain)
            self._finish(frame)
            if frame.module is module:
                frame.output_bytes = sum({id(t): view_bytes(t) for t in _dense(output)}.values())
                return

    def _finish(self, frame: Frame) -> None:
        frame.border.close()
        made = self._made
        if frame.phase == "forward":
            self._latest[frame.path] = frame
        else:
            made = self._made_in.setdefault(torch._C._current_graph_task_id(), _Made())
        made.calls.setdefault(frame.path, []).append(frame)
        for node in range(frame.first_node, torch._C._autograd._get_sequence_nr()):
            made.nodes.setdefault(node, frame)

    def _recomputed(self, path: str) -> Frame | None:
        """The call that is run again: the one of the node at work, else, as a backward goes, the
        last first.
        """
        made, node = self._made_now(), torch._C._current_autograd_node()
        around = made.nodes.get(node._sequence_nr()) if node is not None else None
        for frame in around.chain if around else ():
            if frame.path == path:
                return frame
        calls = made.calls.get(path)
        return calls.pop() if calls else self._latest.get(path)

    def _frame(self, path: str, phase: WorkPhase, module: nn.Module | None = None) -> Frame:
        index = self._counts.get((path, phase), 0)
        self._counts[path, phase] = index + 1
        frame = Frame(path, phase, index, module, base=self.meter.now())
        self.frames.append(frame)
        return frame

    def _close_all(self) -> None:
        """What still runs has ended, if by an error; a backward ends with the pass."""
        self._stack.clear()
        for frame in self.frames:
            frame.border.close()

    # --- operators ----------------------------------------------------------------------------

    def seen(self, frames: tuple[Frame, ...], call: OpCall, out: Any) -> None:
        """Count an operator that has run, for every call that it is part of."""
        func, args, kwargs = call
        try:
            touched = traffic(func, args, kwargs, out, self.storages)
            counted = count(func, args, kwargs, out)
            dtype = work_dtype(func, args, self._device)
            for frame in frames:
                frame.work.add(func, counted, dtype, touched.asked)
                frame.border.add(touched)
            _escape(touched, frames)
        except Exception:  # our mistake or an odd tensor, never the model's error
            self.failures[operator_name(func)] = self.failures.get(operator_name(func), 0) + 1
        self._settle(frames)

    def frames_now(self) -> tuple[Frame, ...]:
        """The calls that an operator running now is part of."""
        if self._stack:
            return self._stack[-1].chain
        if torch._C._current_graph_task_id() != -1:
            return self._backward_frames() or (self._outside_of("backward"),)
        self._made_in.clear()
        return (self._outside_of("optimizer" if self._optimizing else "forward"),)

    def _backward_frames(self) -> tuple[Frame, ...]:
        """Those of the call whose forward made the node at work, or that owns its parameter."""
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return ()
        made_in = self._made_now().nodes.get(node._sequence_nr())
        if made_in is None and hasattr(node, "variable"):  # it accumulates a gradient
            made_in = self._latest.get(self._parameters.get(id(node.variable), ""))
        return tuple(self._twin(f, "backward") for f in made_in.chain) if made_in else ()

    def _made_now(self) -> _Made:
        """What made the nodes of the backward at work: for one inside another, what ran in the one
        around it. Backwards are numbered as they begin.
        """
        now = torch._C._current_graph_task_id()
        for over in [task for task in self._made_in if task > now]:
            del self._made_in[over]
        around = max((task for task in self._made_in if task < now), default=None)
        return self._made if around is None else self._made_in[around]

    def _twin(self, frame: Frame, phase: WorkPhase) -> Frame:
        if phase not in frame.twins:
            self._settle(())
            frame.twins[phase] = self._frame(frame.path, phase)
            frame.twins[phase].twins = frame.twins
        return frame.twins[phase]

    def _outside_of(self, phase: WorkPhase) -> Frame:
        if phase not in self._outside:
            self._outside[phase] = Frame("", phase, OUTSIDE, base=self.meter.now())
            self.frames.append(self._outside[phase])
        return self._outside[phase]

    def _optimizer_hook(self, begins: bool) -> Any:
        def hook(*_: Any) -> None:
            self._optimizing = begins

        return hook

    # --- memory -------------------------------------------------------------------------------

    def _settle(self, frames: tuple[Frame, ...]) -> None:
        """Give the highest reading since the last one to the calls that it was taken in."""
        top = self.meter.take()
        for frame in frames:
            frame.peak = max(frame.peak, top - frame.base)

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = self.storages.of(tensor)
        if storage is not None and storage not in self._own and self._stack:
            for frame in self._stack[-1].chain:
                frame.saved[storage] = storage.nbytes
        self.looking = True
        try:
            # A node that saves its own output would hold itself: with the gradient's accumulators
            # alive for good, no later step could be captured into a CUDA graph.
            return tensor.detach()
        finally:
            self.looking = False


class _Watch(Onlooker):
    """Sees every operator below autograd, composite ones taken apart as torch's counter does."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Operators of code that the model has compiled count too."""
        return False

    def __init__(self, accounting: Accounting) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._accounting = accounting

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(t.__torch_dispatch__ != torch.Tensor.__torch_dispatch__ for t in types):
            # A tensor subclass: the operators that it is made of come by, without it.
            return NotImplemented
        if self._accounting.looking:
            return func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            return self._program(func, args, kwargs)
        if func._overloadpacket not in flop_registry:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        frames = self._accounting.frames_now()
        out = func(*args, **kwargs)
        self._accounting.seen(frames, (func, args, kwargs), out)
        return out

    def _program(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operator that is a program of its own: nobody looks inside."""
        frames = self._accounting.frames_now()
        out = func(*args, **kwargs)
        if func in flop_registry:
            self._accounting.seen(frames, (func, args, kwargs), out)
            return out
        for frame in frames:
            frame.work.miss(str(func))
        return out


def _escape(touched: Traffic, frames: tuple[Frame, ...]) -> None:
    """Remember what a backward made and another call reads: it had to be written."""
    for touch in touched.reads:
        for frame in touch.storage.readers_to_tell:
            if frame not in frames:
                frame.border.kept.add(touch.storage)
    for storage in touched.made:
        storage.readers_to_tell = tuple(f for f in frames if f.phase == "backward")


def _dense(output: Any) -> list[torch.Tensor]:
    return [t for t in tensors_of(output) if t.layout == torch.strided and not t.is_nested]


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run compiled modules as they were written; without the compiler loaded there are none."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
