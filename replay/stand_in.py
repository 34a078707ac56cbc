"""A module whose forward is replaced by the output it had: what knock-out takes out of the step.

The output of every call in one step is copied once, strides and alignment included, and given out
again call by call. Where autograd records the step, the stand-in also gives back the gradients
that the call gave to its inputs, so that the backward of everything before it still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from cb_trace.replay.guard import RngState
from cb_trace.replay.inputs import InputPlan, ThawedInputs, freeze, plan_inputs, tensors_of
from cb_trace.replay.methods import stand_ins
from cb_trace.replay.module_state import ModuleState
from cb_trace.replay.tensors import UncopyableError

Forward = Callable[..., Any]


class UnfitError(Exception):
    """A module whose output cannot be replaced; the message is the reason to store."""


@dataclass(slots=True, eq=False)
class _Call:
    """One recorded call: its output taken apart, and the gradients it gave to its inputs."""

    leaves: list[Any]
    structure: pytree.TreeSpec
    places: list[int]  # of the tensors among the leaves
    tensors: ThawedInputs
    differentiable: list[int]  # of those, which autograd reaches
    gradients: list[torch.Tensor | None] = field(default_factory=list)  # one a differentiable input

    def constant(self) -> Any:
        """The output, where one object can be given out again and again; else None."""
        if self.differentiable:
            return None
        output = self.output(())
        plain = (output,) if isinstance(output, torch.Tensor) else output
        fixed = type(plain) is tuple and all(type(part) is torch.Tensor for part in plain)
        return output if fixed else None

    def output(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The output once more, tied to the inputs where autograd records."""
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, self.tensors.args, strict=True):
            leaves[place] = tensor
        if self.differentiable and torch.is_grad_enabled():
            anchor = torch.zeros((), requires_grad=True)
            tied = _Stand.apply(self, anchor, *inputs)  # type: ignore[no-untyped-call]
            for number, tensor in zip(self.differentiable, tied, strict=True):
                leaves[self.places[number]] = tensor
        return pytree.tree_unflatten(leaves, self.structure)


class StandIn:
    """Records a module's outputs in one step, and then stands in for its forward.

    What stands in is as short as can be: in a step that waits for the host, its time counts.

    :raises UnfitError: from :meth:`record`, where the output cannot be replaced.
    """

    works = False  # whether the module's own code still runs

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._calls: list[_Call] = []
        self._constants: list[Any] = []  # the outputs that can be given out as they are
        self._kept: list[Any] = []  # what a compiler is not to leave out, a call a place
        self._next = 0
        self._installed, self._own = False, None
        self._usual: Any = None  # its forward as found when something is installed
        self._reason: str | None = None
        self.draws = False  # it takes random numbers

    def record(self, step: Callable[[], object]) -> None:
        """Run the step once, keeping what every call of the module gives."""
        forward: Forward = self._module.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            return self._watched(forward, args, kwargs)

        with stand_ins({"": self._module}, ("forward",), lambda *_: watched):
            step()
        if self._reason is None and not self._calls:
            self._reason = "never called in the step"
        if self._reason is not None:
            self._calls.clear()
            raise UnfitError(self._reason)
        self._constants = [call.constant() for call in self._calls]

    @property
    def fixed(self) -> bool:
        """Whether all it gives out are constants, as a compiler takes them."""
        return all(constant is not None for constant in self._constants)

    def install(self, *, compiled: bool = False) -> None:
        """Let the module give its recorded outputs from now on, until :meth:`remove`.

        ``compiled`` is for a step under torch.compile: a compiler leaves out what nobody reads,
        so the module's inputs are kept, and all that leads to them runs as before.
        """
        if not self._installed:
            self._own = vars(self._module).get("forward")
            self._usual = self._module.forward
            self._installed = True
        self._next = 0
        self._kept = [None] * len(self._constants)
        vars(self._module)["forward"] = self._given_and_kept if compiled else self._given

    def install_beside(self) -> None:
        """Let the module work as ever and give its recorded outputs, until :meth:`remove`."""
        self.install()
        work: Forward = self._usual

        def given(*args: Any, **kwargs: Any) -> Any:
            work(*args, **kwargs)
            return StandIn._given(self, *args, **kwargs)

        vars(self._module)["forward"] = given

    def remove(self) -> None:
        """Give the module its forward back."""
        if self._installed:
            _put(self._module, self._own)
            self._installed = False
            self._kept.clear()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The module gives its recorded outputs for as long as the block lasts."""
        self.install()
        try:
            yield
        finally:
            self.remove()

    def _given(self, *args: Any, **kwargs: Any) -> Any:
        number = self._next
        self._next = number + 1 if number + 1 < len(self._constants) else 0
        constant = self._constants[number]
        if constant is not None:
            return constant
        return self._calls[number].output(_differentiable(args, kwargs))

    def _given_and_kept(self, *args: Any, **kwargs: Any) -> Any:
        """Traced by the compiler: one graph, without a break."""
        number = self._next
        self._next = number + 1 if number + 1 < len(self._constants) else 0
        self._kept[number] = (args, kwargs)
        return self._constants[number]

    def at_start(self) -> bool:
        """Whether the steps that ran called the module as often as the recorded one."""
        return self._next == 0

    def written(self) -> bool:
        """Whether a later operator wrote into a recorded output."""
        return any(call.tensors.mutated() for call in self._calls)

    # --- recording ----------------------------------------------------------------------------

    def _watched(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._reason is not None:
            return forward(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():
            before, state, rng = _Inputs(args, kwargs), ModuleState(self._module), RngState.now()
        gradients: list[torch.Tensor | None] = []
        if torch.is_grad_enabled():
            reached = [tensor for tensor in tensors_of((args, kwargs)) if tensor.requires_grad]
            if len(reached) != len(_differentiable(args, kwargs)):
                self._reason = "autograd reaches inputs of it that lie in a dataclass"
            args, kwargs = _tapped(args, kwargs, gradients)
        output = forward(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():
            self._reason = (
                self._reason or before.reason or _effect(before, state, output, self._module)
            )
            self.draws = self.draws or not rng.same(RngState.now())
            self._reason = self._reason or self._unfit(forward, args, kwargs, output)
            if self._reason is None:
                self._keep(output, gradients)
        return output

    def _unfit(
        self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> str | None:
        """A reason of a kind of stand-in's own; outputs can always be given once more."""
        return None

    def _keep(self, output: Any, gradients: list[torch.Tensor | None]) -> None:
        leaves, structure = pytree.tree_flatten(output)
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if not places:
            self._reason = "its output holds no tensor"
        if len(places) != len(tensors_of(output)):
            self._reason = "its output holds tensors in a dataclass"
        if self._reason is not None:
            return
        try:
            plan = _plan([leaves[n] for n in places])
            thawed = freeze(plan).thaw(own=True)
        except (UncopyableError, torch.OutOfMemoryError) as error:
            self._reason = f"its output cannot be copied: {error}"
            return
        reached = [n for n, place in enumerate(places) if leaves[place].requires_grad]
        thawed.args = tuple(tensor.detach() for tensor in thawed.args)
        for place in places:
            leaves[place] = None  # the step's own tensors are not kept alive
        self._calls.append(_Call(leaves, structure, places, thawed, reached, gradients))


def _put(module: nn.Module, forward: Forward | None) -> None:
    """A forward of the module's own, or None: its class's."""
    if forward is None:
        vars(module).pop("forward", None)
    else:
        vars(module)["forward"] = forward


class _Inputs:
    """A call's input tensors with a copy of their bytes, and the storages they lie in."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.reason: str | None = None
        self.storages: set[int] = set()
        tensors = tensors_of((args, kwargs))
        try:
            self._plan = _plan(tensors)
            self._copy = freeze(self._plan)
        except (UncopyableError, torch.OutOfMemoryError) as error:
            self.reason = f"its inputs cannot be watched: {error}"
            return
        self.storages = _storages(self._plan)

    def written(self) -> bool:
        return not self._copy.matches(self._plan)


def _effect(before: _Inputs, state: ModuleState, output: Any, module: nn.Module) -> str | None:
    """What a call does besides giving an output of its own."""
    if before.written():
        return "it writes to its inputs"
    if state.changed() or state.changed_parameters():
        return "it changes its own state"
    held = [*module.parameters(), *module.buffers()]
    try:
        given = _storages(_plan(tensors_of(output)))
        own = _storages(_plan(held))
    except UncopyableError as error:
        return f"its output cannot be copied: {error}"
    if given & before.storages:
        return "its output shares memory with its inputs"
    if given & own:
        return "its output shares memory with its parameters or buffers"
    return None


def _plan(tensors: Sequence[torch.Tensor]) -> InputPlan:
    return plan_inputs(tuple(tensors), {}, set())


def _storages(plan: InputPlan) -> set[int]:
    """Storages with something in them, by identity."""
    found = (spec.storage for spec in plan.tensors.storages)
    return {storage._cdata for storage in found if storage.nbytes()}


# --- autograd ---------------------------------------------------------------------------------


def _differentiable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    if not torch.is_grad_enabled():
        return []
    leaves = pytree.tree_leaves((args, kwargs))
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]


def _tapped(
    args: tuple[Any, ...], kwargs: dict[str, Any], gradients: list[torch.Tensor | None]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs, those that require grad led through an identity that keeps their gradient."""

    def tap(leaf: Any) -> Any:
        if not (isinstance(leaf, torch.Tensor) and leaf.requires_grad):
            return leaf
        gradients.append(None)
        return _Tap.apply(gradients, len(gradients) - 1, leaf)  # type: ignore[no-untyped-call]

    tapped: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(tap, (args, kwargs))
    return tapped


class _Tap(torch.autograd.Function):
    """The identity; its backward keeps the gradient that one call gave to one input."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Any], place: int, tensor: torch.Tensor) -> torch.Tensor:
        ctx.gradients, ctx.place = gradients, place
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.gradients[ctx.place] = grads[0].detach().clone()
        return None, None, grads[0]


class _Stand(torch.autograd.Function):
    """Recorded outputs forward, recorded gradients backward."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call, ctx.count = call, len(inputs)
        return tuple(call.tensors.args[number].detach() for number in call.differentiable)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gradients = ctx.call.gradients
        return None, None, *(gradients[n] for n in range(ctx.count - 1))
