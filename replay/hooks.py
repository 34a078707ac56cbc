"""Live inputs of module calls, taken by hooks while the step runs once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from cb_trace.replay.gradients import OutputGradients, Room
from cb_trace.replay.graph import one_line
from cb_trace.replay.guard import CallState, RngState
from cb_trace.replay.inputs import (
    FrozenInputs,
    InputPlan,
    freeze,
    leaf_signature,
    leaves_of,
    plan_inputs,
)
from cb_trace.replay.methods import (
    FORWARD,
    Method,
    StepThread,
    hooked,
    in_backward,
    stand_ins,
)
from cb_trace.replay.module_state import ModuleState
from cb_trace.replay.onlooker import Onlooker
from cb_trace.replay.tensors import UncopyableError

COLLECTIVE_OPS = ("c10d::", "_c10d_functional", "c10d_functional", "_dtensor::", "symm_mem::")
COLLECTIVES = "runs collectives"
SHARDED = "its parameters are sharded, and gathered around its call in the step"

CallKey = tuple[str, Hashable]


@dataclass(slots=True, eq=False)
class Call:
    """A module call that stands for all calls of the module with the same inputs and state."""

    path: str
    module: nn.Module
    index: int  # of the first such call within the step
    signature: Hashable
    state: CallState
    training: tuple[bool, ...]
    method: str = FORWARD
    calls: int = 1
    nbytes: int = 0
    inputs: FrozenInputs | None = None
    rng: RngState | None = None
    held: ModuleState | None = None  # its own state before the call, where the call changes it
    mutates: bool = False  # the call wrote to its inputs
    restores: bool = False  # alone, inputs or state are put back before every run, as was tried
    casts: bool = False  # the call cast weights for autocast, rather than finding them cast
    output: Hashable = None
    gradients: OutputGradients | None = None  # of the output, in a step with grad
    backward: bool = False  # the step's backward reached its output
    reason: str | None = None  # why it cannot be replayed
    compiled: Callable[..., object] | None = None  # its compiled form, once there is one
    places: list[int] = field(default_factory=list)  # of all such calls within the step

    @property
    def key(self) -> CallKey:
        return self.path, self.signature

    def release(self) -> None:
        """Let go of what was copied."""
        self.inputs = self.held = self.rng = self.gradients = None

    def take_over(self, other: Call) -> None:
        """Become the same call as seen in a later pass."""
        self.inputs, self.held, self.rng = other.inputs, other.held, other.rng
        self.mutates, self.casts, self.output = other.mutates, other.casts, other.output
        self.gradients, self.reason = other.gradients, other.reason


# Decides about a new call: where to copy its inputs to (None: where they are), or not to copy.
Admit = Callable[[Call, InputPlan], "Place | None"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where copies go; ``device`` None leaves each on its own."""

    device: torch.device | None = None


@dataclass(slots=True)
class _Open:
    """A call that has begun and not ended."""

    module: nn.Module
    call: Call | None = None  # None where nothing is kept of it
    before: ModuleState | None = None
    plan: InputPlan | None = None
    given: tuple[Any, Any] | None = None
    collective: bool = False
    casts: bool = False
    error: BaseException | None = None  # that was being handled when it began


class Recorder:
    """Hooks on every module that count calls and copy the inputs of those that ``admit`` takes.

    Calls on other threads are not the step's, those inside the backward are forwards that are
    recomputed, those inside a call of the same module are part of it: none counts. ``wrap`` names
    methods that count beside ``forward``; ``sharded`` holds the ids of modules that cannot be
    called outside the step.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        device: torch.device,
        admit: Admit,
        room: Room,
        *,
        wrap: Sequence[str] = (),
        sharded: frozenset[int] = frozenset(),
    ) -> None:
        self.calls: dict[CallKey, Call] = {}
        self.order: list[Call] = []  # the call that each of the step's stands for, as they begin
        self._modules, self._device, self._wrap = modules, device, wrap
        self._admit, self._room, self._sharded = admit, room, sharded
        self._thread: StepThread | None = None  # None: not recording
        self._keep = {id(p) for module in modules.values() for p in module.parameters()}
        self._count = dict.fromkeys(modules, 0)
        self._stack: list[_Open] = []
        self._watch = _Watch(self._stack)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Hooks are there for as long as the block lasts, and gone after it."""
        handles = []
        self._thread = StepThread()
        try:
            for path, module in self._modules.items():
                handles += self._hook(path, module)
            with stand_ins(self._modules, self._wrap, self._around), self._watch:
                yield
        finally:
            for handle in handles:
                handle.remove()
            self._stack.clear()
            self._thread = None

    def _counts(self) -> bool:
        return self._thread is not None and self._thread.holds() and not in_backward()

    def _hook(self, path: str, module: nn.Module) -> list[Any]:
        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._begin(path, module, FORWARD, args, kwargs)

        def after(module: nn.Module, _args: Any, output: Any) -> None:
            self._end(module, output)

        return hooked(module, before, after)

    def _around(self, path: str, module: nn.Module, name: str, method: Method) -> Method:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._begin(path, module, name, args, kwargs)
            output = None
            try:
                output = method(*args, **kwargs)
            finally:
                self._end(module, output)
            return output

        return call

    def _begin(self, path: str, module: nn.Module, method: str, args: Any, kwargs: Any) -> None:
        if self._counts():
            with self._watch.paused():
                self._open(path, module, method, args, kwargs)

    def _open(self, path: str, module: nn.Module, method: str, args: Any, kwargs: Any) -> None:
        open_call = _Open(module, error=sys.exc_info()[1])
        self._stack.append(open_call)
        index = self._count[path]
        self._count[path] += 1
        if any(outer.module is module for outer in self._stack[:-1]):
            return  # a call of itself, or of its forward by a named method: part of the outer one
        state = CallState.now(self._device)
        training = tuple(inner.training for inner in module.modules())
        plan, reason = self._plan(module, args, kwargs)
        held = ModuleState(module, values=False).sizes()
        signature = (method, plan.signature if plan else reason, state.key, training, held)
        known = self.calls.get((path, signature))
        if known is not None:
            known.calls += 1
            known.places.append(index)
            self.order.append(known)
            return
        call = Call(path, module, index, signature, state, training, method, reason=reason)
        call.places.append(index)
        self.calls[call.key] = open_call.call = call
        self.order.append(call)
        if plan is not None:
            call.nbytes = sum(plan.tensors.bytes_by_device().values())
            self._take(open_call, call, plan, (args, kwargs))

    def _plan(
        self, module: nn.Module, args: Any, kwargs: Any
    ) -> tuple[InputPlan | None, str | None]:
        if id(module) in self._sharded:
            return None, SHARDED
        try:
            with torch.inference_mode(False), torch.no_grad():
                return plan_inputs(args, kwargs, self._keep), None
        except UncopyableError as error:
            return None, f"inputs cannot be copied: {error}"

    def _take(self, open_call: _Open, call: Call, plan: InputPlan, given: Any) -> None:
        place = self._admit(call, plan)
        if place is None:
            return
        call.rng = RngState.now()
        try:
            call.inputs = freeze(plan, place.device)
        except torch.OutOfMemoryError as error:
            call.reason = f"inputs cannot be copied: {one_line(error)}"
            return
        with torch.inference_mode(False), torch.no_grad():
            open_call.before = ModuleState(call.module)
        open_call.plan, open_call.given = plan, given

    def _end(self, module: nn.Module, output: Any) -> None:
        if self._counts():
            with self._watch.paused():
                self._close(module, output)

    def _close(self, module: nn.Module, output: Any) -> None:
        done = self._stack.pop()
        while done.module is not module:  # left open by Ctrl-C
            done = self._stack.pop()
        call, error = done.call, sys.exc_info()[1]
        if call is None:
            return
        if error is not None and error is not done.error:
            call.reason = call.reason or f"raises in the step: {type(error).__name__}"
            call.release()
            return
        call.output = output_signature(output)
        call.casts = done.casts
        if torch.is_grad_enabled():
            call.gradients = OutputGradients(keep=call.inputs is not None)
            call.gradients.watch(output, self._room)
        if done.collective:
            call.reason = COLLECTIVES
            call.release()
        if done.before is None or call.reason:
            return
        with torch.inference_mode(False), torch.no_grad():
            self._compare(call, done, done.before)

    @staticmethod
    def _compare(call: Call, done: _Open, before: ModuleState) -> None:
        """See by bits what the call wrote to: kernels of extensions count no versions."""
        if call.inputs is not None and done.plan is not None:
            call.mutates = not call.inputs.matches(done.plan)
        if before.changed_parameters():
            call.reason = "writes to its parameters"
            call.release()
        elif before.changed():
            call.held = before


class _Watch(Onlooker):
    """Sees the operators of all open calls: collectives, and weights cast by autocast."""

    def __init__(self, stack: Sequence[_Open]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stack = stack
        self._off = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Our own operators are not the model's."""
        self._off = True
        try:
            yield
        finally:
            self._off = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self._off:
            self._note(func, args)
        return func(*args, **(kwargs or {}))

    def _note(self, func: Any, args: Any) -> None:
        if func is torch.ops.aten._to_copy.default:
            weight = args[0]
            if isinstance(weight, torch.Tensor) and weight.is_leaf and weight.requires_grad:
                for open_call in self._stack:
                    open_call.casts = True
        elif func.name().startswith(COLLECTIVE_OPS):
            for open_call in self._stack:
                open_call.collective = True


def output_signature(output: Any) -> Hashable:
    """Structure of an output with type, dtype and sizes of its tensors; jagged sizes as such."""
    spec = pytree.tree_structure(output)
    return str(spec), tuple(leaf_signature(leaf) for leaf in leaves_of(output))
