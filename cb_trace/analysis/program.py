"""One profiled step as a program that can be run again: host work, launches, kernels, waits.

The host is one line of time: an instant belongs to a thread that runs operators beside the step's
own (autograd's, say) where there is one, else to the step's own thread. Threads that truly work at
once are therefore taken one after another. Times are lengths in ns, relative to the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from cb_trace.analysis.device_order import Device, device_order
from cb_trace.analysis.host_line import LAUNCH, HostLine, host_line
from cb_trace.analysis.segments import T1, T4, T5, host_segments
from cb_trace.analysis.stats import FloatArray, IntArray

Owner = tuple[int | None, str]  # module_id, phase; exclusive
GENERATED = "inductor"  # how kernels of compiled code are given to modules
NOBODY: Owner = (None, "")  # work that no module can be given; always the first owner


@dataclass(frozen=True, slots=True)
class Loss:
    """What a kernel loses beside others: which those are, ns by each, and who loses it instead."""

    others: IntArray
    ns: FloatArray
    heirs: tuple[int, ...] = ()  # kernels of its stream; the first of them that is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the host does in order (items), and the kernels it starts.

    ``work_*``: stretches of host work, in order; the last item number + 1 stands for the work
    after all items. ``share_*``: which owner has which part of a kernel, kernels in order.
    ``needs``: the kernels of other streams that one waits for.
    """

    owners: tuple[Owner, ...]
    rest: int  # the owner of work that leads to nothing: the root, where there is one
    work_ns: IntArray
    work_item: IntArray
    work_owner: IntArray
    work_segment: IntArray  # row of ``segments``; -1 in none
    work_plain: npt.NDArray[np.bool_]  # outside every call and operator: nothing was recorded
    work_between: npt.NDArray[np.bool_]  # outside operators
    segments: pl.DataFrame  # the step's host time by operator: :func:`host_segments`
    kind: IntArray  # of each item
    kernel: IntArray  # that it launches or waits for; -1
    item_owner: IntArray
    kernel_ns: IntArray
    beside: FloatArray  # parts of it with none, one, two … other kernels running
    kernel_id: IntArray
    stream: IntArray  # counted from 0
    gap_ns: IntArray  # least time after the kernel before it
    latency_ns: IntArray  # from the end of its launch to its start on an empty stream
    needs: Mapping[int, tuple[int, ...]]
    share_kernel: IntArray
    share_owner: IntArray
    share: FloatArray
    # What a kernel takes for what ran before it, ns, and the kernels that may take that over.
    carried: Mapping[int, tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    lost: Mapping[int, Loss] = field(default_factory=dict)  # by kernel, which takes it on top
    # The window a step is timed in ends when the host has closed it, so long after its last work,
    # and the device is through; what an empty one takes is taken off. 0: no host, no window.
    closing_ns: int = 0
    empty_ns: int = 0

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return int(self.stream.max()) + 1 if self.stream.size else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvents:
    """The frames of one trace that programs are made of (columns of :mod:`cb_trace.columns`)."""

    kernel: pl.DataFrame
    kernel_module: pl.DataFrame
    module_call: pl.DataFrame
    launch: pl.DataFrame
    op: pl.DataFrame
    step: pl.DataFrame
    module: pl.DataFrame


def programs(events: StepEvents, limit: int = 5) -> list[Program]:
    """The program of every profiled step, or of ``limit`` of them, evenly chosen."""
    steps = events.step.sort("start_ns")
    chosen = np.unique(np.linspace(0, steps.height - 1, min(limit, steps.height)).round())
    shares = _shares(events.kernel_module)
    segments = host_segments(
        op=events.op,
        launch=events.launch,
        kernel=events.kernel,
        module_call=events.module_call,
        step=events.step,
    )
    return [
        _program(events, shares, segments, steps.row(int(number), named=True))
        for number in (chosen if steps.height else ())
    ]


def _shares(kernel_module: pl.DataFrame) -> pl.DataFrame:
    """``kernel_id, module_id, phase, share, generated``; a row a kernel, module and phase."""
    return (
        kernel_module.with_columns(pl.col("phase").fill_null(""))
        .group_by("kernel_id", "module_id", "phase")
        .agg(pl.col("share").sum(), generated=(pl.col("method") == GENERATED).any())
        .sort("kernel_id", "module_id", "phase")
    )


def _program(
    events: StepEvents, shares: pl.DataFrame, segments: pl.DataFrame, step: Mapping[str, int]
) -> Program:
    number = step["step"]
    segments = segments.filter(pl.col("step") == number)
    launches = events.launch.sort("start_ns", "launch_id")
    kernels = (
        events.kernel.filter(pl.col("step") == number)
        .filter(pl.col("kind") != "cpu")
        .with_columns(pl.col("dur_ns").fill_null(0), pl.col("stream").fill_null(-1))
        .join(
            launches.select(
                "launch_id", called_ns="start_ns", call_ns="dur_ns", call="name", caller="thread"
            ),
            on="launch_id",
            how="left",
        )
        .with_columns(
            pl.col("called_ns").fill_null(pl.col("start_ns")), pl.col("call_ns").fill_null(0)
        )
        .sort("called_ns", "start_ns", "kernel_id")
    )
    device = device_order(kernels, launches)
    owned = shares.join(kernels.select("kernel_id").with_row_index("place"), on="kernel_id").sort(
        "place", "module_id", "phase"
    )
    line = host_line(
        module_call=events.module_call, op=events.op, launches=launches, kernels=kernels,
        segments=segments, step=step,
    )  # fmt: skip
    rest = _rest(events.module)
    owners, place, of_share = _owners(line, owned, rest)
    return _assembled(
        owners=owners, line=line, place=place, device=device, owned=owned, of_share=of_share,
        rest=place[rest], segments=segments,
    )  # fmt: skip


def _owners(
    line: HostLine, owned: pl.DataFrame, rest: Owner
) -> tuple[tuple[Owner, ...], dict[Owner, int], IntArray]:
    parts = list(zip(owned["module_id"].to_list(), owned["phase"].to_list(), strict=True))
    parts = [NOBODY if module is None else (module, phase) for module, phase in parts]
    owners = tuple(dict.fromkeys([NOBODY, rest, *line.owners, *parts]))
    place = {owner: number for number, owner in enumerate(owners)}
    return owners, place, np.array([place[part] for part in parts], np.int64)


def _rest(module: pl.DataFrame) -> Owner:
    """Who has the work that leads to nothing: the root, where there is one."""
    roots = module.filter(pl.col("parent_id").is_null())["module_id"].to_list()
    return (roots[0], "forward") if len(roots) == 1 else NOBODY


def _assembled(
    *,
    owners: tuple[Owner, ...],
    line: HostLine,
    place: Mapping[Owner, int],
    device: Device,
    owned: pl.DataFrame,
    of_share: IntArray,
    rest: int,
    segments: pl.DataFrame,
) -> Program:
    share_kernel = owned["place"].to_numpy().astype(np.int64)
    # The last place stands for no kernel: number -1.
    first = np.append(_first_owner(share_kernel, of_share, device.kernel_id.size), rest)
    named = np.append(np.array([place[owner] for owner in line.owners], np.int64), -1)
    work = named[line.owner]
    # Work outside every call is that of the kernel it leads to, if operators do it.
    plain = (line.owner < 0) & (line.segment < 0)
    leads = np.where(plain, rest, first[np.append(line.leads, -1)[line.item]])
    work = np.where((work < 0) | _of_generated(line, segments, owned), leads, work)
    before = np.searchsorted(line.item, np.arange(line.kind.size), side="right") - 1
    item_owner = np.where(line.kernel >= 0, first[line.kernel], work[before])
    # The cold start of the step comes first, and goes with nothing less than the whole.
    cold = int(line.cold_ns > 0)
    return Program(
        owners=owners,
        rest=rest,
        work_ns=np.append([line.cold_ns] * cold, line.ns).astype(np.int64),
        work_item=np.append([0] * cold, line.item).astype(np.int64),
        work_owner=np.append([rest] * cold, work).astype(np.int64),
        work_segment=np.append([-1] * cold, line.segment).astype(np.int64),
        work_plain=np.append([False] * cold, (line.owner < 0) & (line.segment < 0)).astype(
            np.bool_
        ),
        work_between=np.append([True] * cold, _between(line, segments)).astype(np.bool_),
        segments=segments,
        kind=line.kind,
        kernel=line.kernel,
        item_owner=item_owner,
        kernel_ns=device.dur_ns,
        beside=device.beside,
        kernel_id=device.kernel_id,
        stream=device.stream,
        gap_ns=device.gap_ns,
        latency_ns=device.latency_ns,
        needs=device.needs,
        share_kernel=share_kernel,
        share_owner=of_share,
        share=owned["share"].to_numpy().astype(np.float64),
    )


def _of_generated(
    line: HostLine, segments: pl.DataFrame, owned: pl.DataFrame
) -> npt.NDArray[np.bool_]:
    """Which stretches launch a kernel of compiled code, or lead from one launch to the next.

    No call of a module stands around them but that of the compiled whole, and they go with the
    kernel. What comes before the first launch (guards, inputs) and after the last is the whole's.
    """
    launching = np.append(segments["kind"].is_in([T4, T5]).to_numpy(), False).astype(np.bool_)
    kernels = owned.filter("generated")["place"].unique().to_list()
    leads = np.append(line.leads, -1)[line.item]
    found: npt.NDArray[np.bool_] = launching[line.segment] & np.isin(leads, kernels)
    return found


def _between(line: HostLine, segments: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Which stretches of host work lie outside operators."""
    gap = np.append((segments["kind"] == T1).to_numpy(), True).astype(np.bool_)  # last: in none
    found: npt.NDArray[np.bool_] = gap[line.segment]
    return found


def _first_owner(share_kernel: IntArray, owner: IntArray, kernels: int) -> IntArray:
    """One owner a kernel: that of its first part; nobody where it has none."""
    first = np.zeros(kernels, np.int64)
    first[share_kernel[::-1]] = owner[::-1]
    return first


def without_host(program: Program) -> Program:
    """The same kernels started at once and all together, as a CUDA graph starts them.

    Every kernel comes 1 ns after the one before it on its stream, so that a scale of gaps is a gap
    in nanoseconds.
    """
    kernels = program.kernel_ns.size
    none: npt.NDArray[np.int64] = np.empty(0, np.int64)
    return Program(
        owners=program.owners,
        rest=program.rest,
        work_ns=none,
        work_item=none,
        work_owner=none,
        work_segment=none,
        work_plain=none.astype(np.bool_),
        work_between=none.astype(np.bool_),
        segments=program.segments,
        kind=np.full(kernels, LAUNCH, np.int64),
        kernel=np.arange(kernels),
        item_owner=np.zeros(kernels, np.int64),
        kernel_ns=program.kernel_ns,
        beside=program.beside,
        kernel_id=program.kernel_id,
        stream=program.stream,
        gap_ns=np.ones(kernels, np.int64),
        latency_ns=np.zeros(kernels, np.int64),
        needs=program.needs,
        share_kernel=program.share_kernel,
        share_owner=program.share_owner,
        share=program.share,
        carried=program.carried,
        lost=program.lost,
    )
