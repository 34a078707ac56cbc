"""Methods ``graph_node`` and ``graph_order``: a CUDA graph's kernels by the run it captured.

A replayed graph is one launch; nothing on the host tells its kernels apart (traces.md row 28). The
run that was captured has the same kernels, launched one by one inside the modules. They are paired
by graph node id where both have one, else in order, stream by stream, each by its name, and by its
grid and block where both files have them. Only what is certain counts (:mod:`align`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cb_trace.attribution.align import Alignment, align
from cb_trace.attribution.events import Attributed, TraceEvents
from cb_trace.attribution.evidence import Reference
from cb_trace.attribution.nesting import NOTHING, Ints, column
from cb_trace.columns import polars_schema

NO_MATCH = "graph, no match"
BEGIN, END = "StreamBeginCapture", "StreamEndCapture"
Streams = list[Ints]  # rows of a frame, in order, one array a stream


def reference(events: TraceEvents, attributed: Attributed) -> Reference:
    """A run to pair a graph's kernels with: the last step that ran any, else the whole trace.

    The first steps may hold what a graph does not: the set-up of libraries.
    """
    last = events.kernel["step"].max()
    ran = events.kernel.filter(pl.lit(last is None) | (pl.col("step") == pl.lit(last)))
    return Reference(ran, attributed.kernel_module)


def captured(events: TraceEvents) -> TraceEvents:
    """The trace of a capture, in which work is launched and does not run: launches as kernels.

    A launch counts where it says what it launches (HIP does) and nothing came of it; where the file
    holds the calls that begin and end a capture, between these. ``graph_id`` numbers the captures.
    Ids of kernels are those of their launches.
    """
    ran = events.kernel.select("launch_id").drop_nulls()
    launch = events.launch.drop_nulls("kernel_name").join(ran, on="launch_id", how="anti")
    begin = _starts(events.launch, BEGIN)
    number = np.searchsorted(begin, column(launch, "start_ns"), side="right")
    ended = np.searchsorted(_starts(events.launch, END), column(launch, "start_ns"), side="right")
    kernel = launch.with_columns(
        pl.Series("graph_id", number, dtype=pl.Int64), pl.Series("ended", ended, dtype=pl.Int64)
    ).filter((pl.col("graph_id") > pl.col("ended")) | (len(begin) == 0))
    columns = {name: pl.lit(None, kind) for name, kind in polars_schema("kernel").items()}
    columns |= {name: pl.col(name) for name in columns if name in kernel.columns}
    columns |= {
        "kernel_id": pl.col("launch_id"), "name": pl.col("kernel_name"), "kind": pl.lit("kernel"),
        "dur_ns": pl.lit(0, pl.Int64()),
    }  # fmt: skip
    return replace(events, kernel=kernel.select(**columns))


def _starts(launch: pl.DataFrame, call: str) -> Ints:
    return column(launch.filter(pl.col("name").str.ends_with(call)).sort("start_ns"), "start_ns")


def paired(kernels: pl.DataFrame, source: Reference) -> pl.DataFrame:
    """The reference's kernel of each kernel of a graph: ``kernel_id, from_id, called, method``.

    Kernels without a partner are left out. ``called``: the partner's module call is certain, not
    only its module.

    :param kernels: rows of table ``kernel``; the launches of one step are taken together.
    """
    left, right = _tokens(kernels, source.kernel)
    parts = [_by_node(left, right)]
    for called, labels in ((True, _LABELS), (False, _LABELS[1:])):
        label = _labels(right, source.kernel_module, labels)
        at = left.select("kernel_id", at=pl.Series(_by_order(left, right, label)))
        found = at.filter(pl.col("at") != NOTHING)
        parts.append(
            found.select(
                "kernel_id", from_id=right["kernel_id"].gather(found["at"]), called=pl.lit(called),
                method=pl.lit("graph_order"),
            )
        )  # fmt: skip
        if found.height == left.height:
            break
    return pl.concat(parts).unique("kernel_id", keep="first", maintain_order=True)


def paired_on_streams(kernels: pl.DataFrame, source: Reference) -> pl.DataFrame:
    """As :func:`paired`, where several streams ran.

    A graph's branches may run on other streams than what was captured, so that no stream is like
    one of the reference. What has no node id goes by order: alike kernels of the reference that
    are all on one of its streams follow one another in every run, wherever that is. What
    :func:`paired` has by order comes last: it may be another kernel that stands for the same.
    """
    left, right = _tokens(kernels, source.kernel)
    on_one = right.filter(pl.col("stream").n_unique().over("token") == 1)
    of_run = left.with_columns(
        turn=pl.int_range(pl.len()).over("step", "token"), many=pl.len().over("step", "token")
    )
    partner = on_one.select(
        "token", from_id="kernel_id", turn=pl.int_range(pl.len()).over("token"),
        many=pl.len().over("token"),
    )  # fmt: skip
    in_turn = of_run.join(partner, on=["token", "turn", "many"]).select(
        "kernel_id", "from_id", called=pl.lit(value=True), method=pl.lit("graph_order")
    )
    known = paired(kernels, source)
    every = pl.concat([known.filter(method="graph_node"), in_turn, known])
    return every.unique("kernel_id", keep="first", maintain_order=True)


def _by_node(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Partners by graph node id; the token must fit as well."""
    once = right.drop_nulls("graph_node_id").filter(~pl.col("graph_node_id").is_duplicated())
    partner = once.select("graph_node_id", "token", from_id="kernel_id")
    found = left.drop_nulls("graph_node_id").join(partner, on=["graph_node_id", "token"])
    return found.select(
        "kernel_id", "from_id", called=pl.lit(value=True), method=pl.lit("graph_node")
    )


def _tokens(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number both sides' kernels by name, grid and block (``token``), each in order of start.

    A name that lacks a grid somewhere goes by itself: copies, and graphs of HIP (section 6).
    """
    columns = [
        "kernel_id", "name", "grid", "block", "stream", "start_ns", "step", "launch_id", "graph_id",
        "graph_node_id",
    ]  # fmt: skip
    sides = [left.select(columns), right.select(columns)]
    both = pl.concat([side.with_columns(side=pl.lit(n)) for n, side in enumerate(sides)])
    sized = pl.all_horizontal(pl.col("grid", "block").is_not_null()).all().over("name")
    both = both.with_columns(pl.when(sized).then(pl.col(n)).alias(n) for n in ("grid", "block"))
    token = pl.struct("name", "grid", "block").rank("dense").cast(pl.Int64)
    both = both.with_columns(token=token).sort("start_ns", "kernel_id")
    return both.filter(pl.col("side") == 0), both.filter(pl.col("side") == 1)


_LABELS = ["call_id", "module_id", "phase", "share", "reason"]


def _labels(right: pl.DataFrame, kernel_module: pl.DataFrame, what: list[str]) -> Ints:
    """A number for each kernel of the reference: equal where their rows are, in ``what``."""
    row = pl.concat_str(pl.col(what).cast(pl.String).fill_null(""), separator=" ")
    whole = kernel_module.group_by("kernel_id").agg(row.str.join(";").alias("what"))
    named = whole.select("kernel_id", label=pl.col("what").rank("dense").cast(pl.Int64))
    found = right.select("kernel_id").join(named, on="kernel_id", how="left", maintain_order="left")
    return column(found, "label")


def _by_order(left: pl.DataFrame, right: pl.DataFrame, label: Ints) -> Ints:
    """The row of ``right`` of each row of ``left``; launches that are alike are paired once."""
    token = column(right, "token")
    captures = list(_streams(right, "graph_id"))
    in_turn = list(_streams(right.with_columns(graph_id=pl.lit(0)), "graph_id"))
    at = np.full(left.height, NOTHING, np.int64)
    known: dict[tuple[bytes, ...], Streams] = {}
    together = pl.coalesce(pl.col("step").cast(pl.Int64), -1 - pl.col("launch_id"))
    for streams in _streams(left.with_columns(together=together), "together"):
        seen = [column(left, "token")[rows] for rows in streams]
        alike = tuple(tokens.tobytes() for tokens in seen)
        if alike not in known:
            nothing = _Pairing([np.full(len(rows), NOTHING, np.int64) for rows in streams], 0)
            one = [_pair(seen, option, token, label) for option in captures] or [nothing]
            every = [_pair(seen, option, token, label) for option in in_turn if len(one) > 1]
            longer = every and every[0].length > max(p.length for p in one)
            known[alike] = _best(every if longer else one, label)
        for rows, partner in zip(streams, known[alike], strict=True):
            at[rows] = partner
    return at


def _streams(frame: pl.DataFrame, by: str) -> Iterator[Streams]:
    """The rows of each group, apart by stream, the longest stream first."""
    rows = frame.select(by, "stream", row=pl.int_range(pl.len(), dtype=pl.Int64))
    for _, group in rows.group_by(by, maintain_order=True):
        streams = group.group_by("stream", maintain_order=True).agg("row")["row"]
        yield sorted((np.asarray(s.to_numpy(), np.int64) for s in streams), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Partners (rows of the reference) of each stream's kernels; ``length``: how much fits."""

    partners: Streams
    length: int


def _pair(seen: Iterable[Ints], streams: Streams, token: Ints, label: Ints) -> _Pairing:
    """Give each stream of a graph the stream of the reference that it fits best.

    Stream numbers differ between a capture and its replay, and a graph may run a branch elsewhere:
    the longest goes first, and the next take what is left. Two that fit alike are told apart only
    by what their kernels stand for.
    """
    free = np.ones(len(token), np.bool_)
    partners, length = [], 0
    for tokens in seen:
        left = [rows[free[rows]] for rows in streams]
        found = [align(tokens, token[rows], label[rows]) for rows in left]
        candidates = [_partners(rows, each) for rows, each in zip(left, found, strict=True)]
        best = _Pairing([np.full(len(tokens), NOTHING, np.int64)], 0)
        if candidates:
            each = [_Pairing([c], f.length) for c, f in zip(candidates, found, strict=True)]
            best = _Pairing(_best(each, label), max(f.length for f in found))
        mine = best.partners[0]
        free[mine[mine != NOTHING]] = False
        partners.append(mine)
        length += best.length
    return _Pairing(partners, length)


def _partners(rows: Ints, found: Alignment) -> Ints:
    return np.append(rows, NOTHING)[found.match]


def _best(pairings: list[_Pairing], label: Ints) -> Streams:
    """The partners that fit best; of several that fit alike, the first, where all say the same."""
    length = max(pairing.length for pairing in pairings)
    best = [pairing.partners for pairing in pairings if pairing.length == length]
    said = [[np.append(label, NOTHING)[rows] for rows in partners] for partners in best]
    return [
        np.where(np.all([s[at] == said[0][at] for s in said], axis=0), rows, NOTHING)
        for at, rows in enumerate(best[0])
    ]
