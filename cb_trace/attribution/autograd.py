"""Method ``autograd``: backward work to the forward operator that made its node.

Every operator recorded while gradients are on carries its thread's sequence number; a backward
operator carries the number of the forward operator that made its node and the profiler's own number
of the thread that ran it (torch.md section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from cb_trace.attribution.events import step_of
from cb_trace.attribution.nesting import NOTHING, Flags, Ints, Nest, column, lookup, nearest, nest

EVALUATION = "autograd::engine::evaluate_function"  # around each node that the engine runs
ACCUMULATION = "AccumulateGrad"  # the node that adds up a parameter's gradient
COMPUTES = r"^\w+::\w+$"  # an operator of a library; autograd's own names go deeper
MAKES = r"::(empty|zeros|ones|full|new_)"  # tensors of nothing: these never have a number
AGREEMENT = 0.9  # of the numbers that tell threads apart, to take a thread for a profiler number


@dataclass(frozen=True, slots=True)
class Backward:
    """The operators that autograd left a mark on; positions are rows of ``op``.

    ``node`` is the closest backward operator from each outwards, ``forward`` the operator that made
    the node: its thread, start and end, where one was found (``linked``). ``differentiable``: the
    node ran with gradients on, to be differentiated again (``create_graph``).
    """

    op: pl.DataFrame
    nest: Nest
    node: Ints
    linked: Flags
    differentiable: Flags
    forward_thread: Ints
    forward_ns: Ints
    forward_end_ns: Ints

    def around(self, thread: Ints, at_ns: Ints) -> tuple[Ints, Flags]:
        """The innermost backward operator around each point; whether it repeats a forward there.

        Inside it a forward operator runs then, which is not the node's own work.
        """
        mark = self.nest.locate(thread, at_ns)
        node = lookup(self.node, mark)
        return node, (node != NOTHING) & (mark != node) & ~lookup(self.differentiable, node, False)


def backward(op: pl.DataFrame, step: pl.DataFrame) -> Backward:
    """Find the backward operators of a trace and link them."""
    marked = op.select(
        "thread", "start_ns", "dur_ns", number="sequence_number",
        of_thread=pl.col("forward_thread").fill_null(0),
        evaluation=pl.col("name").str.starts_with(EVALUATION),
        accumulation=pl.col("name").str.ends_with(ACCUMULATION),
    ).filter((pl.col("number") >= 0) | pl.col("evaluation"))  # fmt: skip
    linkable = (pl.col("of_thread") > 0) & (pl.col("number") >= 0)
    marked = marked.with_columns(
        linkable.fill_null(False).alias("backward"),
        at=pl.int_range(pl.len(), dtype=pl.Int64),
        window=pl.Series(step_of(step, column(marked, "start_ns"))),
    )
    nested = nest(marked)
    node = nearest(nested.parent, (marked["backward"] | marked["evaluation"]).to_numpy())
    link = _links(marked)
    return Backward(
        op=marked,
        nest=nested,
        node=node,
        differentiable=_differentiable(op, marked, nested, node),
        linked=link["forward_ns"].is_not_null().to_numpy(),
        forward_thread=column(link, "thread"),
        forward_ns=column(link, "forward_ns"),
        forward_end_ns=column(link, "forward_end_ns"),
    )


def _differentiable(op: pl.DataFrame, marked: pl.DataFrame, nested: Nest, node: Ints) -> Flags:
    """Which nodes ran with gradients on.

    Operators have numbers in them then, as those of a forward repeated there have. The node's own
    tell: with gradients off, none of them has one.
    """
    found = np.zeros(marked.height, np.bool_)
    numbered = ((marked["of_thread"] == 0) & (marked["number"] >= 0)).fill_null(value=False)
    found[node[numbered.to_numpy() & (node != NOTHING)]] = True
    if found.any():
        own = op.filter(
            (pl.col("sequence_number") >= 0).fill_null(value=False).not_()
            & pl.col("name").str.contains(COMPUTES) & ~pl.col("name").str.contains(MAKES)
        )  # fmt: skip
        mark = nested.locate(column(own, "thread"), column(own, "start_ns"))
        found[mark[(mark != NOTHING) & (lookup(node, mark) == mark)]] = False
    return found


def _links(marked: pl.DataFrame) -> pl.DataFrame:
    """Thread, start and end of each marked operator's forward operator, null where there is none.

    Among the forward operators of one number the latest-starting one made the node: the counter
    moves only when a node is made, so wrappers share it (PyTorch's own rule, M9). Only earlier ones
    count, and only of the same step, so that a cut trace cannot link across steps.
    """
    forward = marked.filter((pl.col("of_thread") == 0) & (pl.col("number") >= 0))
    made = forward.select(
        "thread", "number", "window", "start_ns", forward_ns="start_ns",
        forward_end_ns=pl.col("start_ns") + pl.col("dur_ns"),
    )  # fmt: skip
    nodes = marked.filter("backward").join(_threads(marked, forward), on="of_thread", how="left")
    linked = (
        nodes.select("at", "number", "window", "start_ns", thread="maker")
        .sort("start_ns")
        .join_asof(
            made.sort("start_ns"), on="start_ns", by=["thread", "number", "window"],
            strategy="backward", allow_exact_matches=False, check_sortedness=False,
        )
    )  # fmt: skip
    return marked.select("at").join(
        linked.select("at", "thread", "forward_ns", "forward_end_ns"),
        on="at", how="left", maintain_order="left",
    )  # fmt: skip


def _threads(marked: pl.DataFrame, forward: pl.DataFrame) -> pl.DataFrame:
    """The thread (``maker``) behind each of the profiler's own thread numbers (``of_thread``).

    The trace does not say. Numbers that occur on one thread only tell: each thread counts for
    itself. Where they disagree the thread is ambiguous and left out: no link, no guess.
    """
    pairs = forward.select("number", "thread").unique()
    telling = pairs.filter(pl.len().over("number") == 1)
    votes = (
        marked.filter("backward")
        .select("of_thread", "number")
        .unique()
        .join(telling, on="number")
        .group_by("of_thread", "thread")
        .len("votes")
    )
    share = pl.col("votes") / pl.col("votes").sum().over("of_thread")
    return votes.filter(share > AGREEMENT).select("of_thread", maker="thread")


def recomputed(calls: pl.DataFrame, around: Backward) -> Flags:
    """Which calls run inside a backward operator.

    Hooks and frames fire again when checkpointing repeats a forward (torch.md section 5).
    """
    thread, start = column(calls, "thread"), column(calls, "start_ns")
    node, _ = around.around(thread, start)
    return np.asarray(node != NOTHING)
