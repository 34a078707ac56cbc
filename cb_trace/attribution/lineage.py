"""From backward operators to module calls, by way of the forward operators that made them.

A forward operator may itself run inside the backward: a node that is differentiated again
(``create_graph``) was made there, and so was one of a function that checkpointing repeated. Such a
node belongs where the node around that operator belongs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cb_trace.arrays import distinct
from cb_trace.attribution.autograd import Backward
from cb_trace.attribution.calls import Calls
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, column, innermost, lookup


@dataclass(frozen=True, slots=True)
class Lineage:
    """One value a row of ``Backward.op``; calls are positions, or ``NOTHING`` outside all calls.

    ``made_in``: the call whose forward made the node; ``repeats``: the call whose own work is
    repeated in it, outside every call that is repeated with it. Both mean something only where
    ``known``.
    """

    made_in: Ints
    repeats: Ints
    known: Flags


def lineage(calls: Calls, around: Backward, leaf: Flags) -> Lineage:
    """Follow every node to the call that it comes from.

    :param leaf: nodes that accumulate the gradient of what is no parameter: of a step's input, and
        no module's; or inside another node, of the function repeated there (reentrant).
    """
    point = (around.forward_thread, around.forward_ns)
    direct = calls.around(*point)
    via, repeated = around.around(*point)
    in_node = innermost([(calls.frame, direct), (around.op, via)]) == 1
    linked, repeated = around.linked | leaf, repeated | leaf
    via = np.where(around.linked & in_node, via, NOTHING)
    via = np.where(leaf, lookup(around.node, around.nest.parent), via)
    above = _Above(calls, around)
    made_in, known = np.where(around.linked & ~in_node, direct, NOTHING), linked
    repeats = above.function(made_in)
    while True:  # a forward operator starts before its node, so this ends
        through = np.where(repeated, lookup(repeats, via), lookup(made_in, via))
        further = np.where(via == NOTHING, made_in, through)
        reached = np.where(via == NOTHING, linked, lookup(known, via, False))
        if np.array_equal(further, made_in) and np.array_equal(reached, known):
            return Lineage(made_in, repeats, known)
        made_in, known = further, reached
        repeats = above.function(made_in)


class _Above:
    """Which modules each node calls again, with no module between."""

    def __init__(self, calls: Calls, around: Backward) -> None:
        self._parent, self._module = calls.parent, column(calls.frame, "module_id")
        node, _ = around.around(column(calls.frame, "thread"), column(calls.frame, "start_ns"))
        outermost = (node != NOTHING) & (lookup(node, calls.parent) != node)
        self._modules = int(self._module.max(initial=0)) + 1
        self._called = distinct((node * self._modules + self._module)[outermost])
        self._nodes = distinct(node[outermost])

    def function(self, made_in: Ints) -> Ints:
        """The call that called what is checkpointed in each node.

        What made the node is in the checkpointed function: in a module that the function calls,
        which the node calls again, or in the function itself.
        """
        found = made_in.copy()
        nodes = self._nodes[made_in[self._nodes] != NOTHING]
        call = made_in[nodes]
        while (call != NOTHING).any():
            again = nodes * self._modules + lookup(self._module, call)
            hit = (call != NOTHING) & np.isin(again, self._called)
            found[nodes] = np.where(hit, lookup(self._parent, call), found[nodes])
            call = lookup(self._parent, call)
        return found
