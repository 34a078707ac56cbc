"""What a module leaves to the others in the last-level cache when it is taken out of the step.

A step that brings more into the cache than fits finds little of it again in the next one: weights
come from memory, and kernels that read them are as slow as after a flush. Without one of its
modules the rest may fit. On an H200 a DLRM of some 52 MB a step lost 38 µs without its interaction,
whose kernels take 20: the four large matrix products behind it became 7 to 12 % faster.

Half of the cache counts as enough for all, all of it as enough for none, and a straight line
between the two: an A100, H100 or H200 has its L2 in two parts, and what is read through the far
part is kept in both (NVIDIA A100 whitepaper, "L2 cache"). Nothing in the line is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from cb_trace.analysis.device_alone import device_alone
from cb_trace.analysis.host_alone import run_inside
from cb_trace.analysis.program import Owner, Program
from cb_trace.analysis.stats import FloatArray
from cb_trace.analysis.touched import touched_parameters

FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Residency:
    """By module_id: what it brings into the cache in a step, and its device time alone, warm.

    ``tied`` are parameters that several modules read, each with how much of it a module does: they
    are beside ``brings_bytes``, as each is in the cache once.
    """

    cache_bytes: int
    brings_bytes: dict[int, int]
    output_bytes: dict[int, int]  # part of what it brings
    warm_ns: dict[int, float]
    tied: tuple[dict[int, int], ...] = ()
    # Of what modules allocate in all, what the step holds at most: memory that one lets go of
    # another gets, so that without the one it is brought all the same.
    held_ratio: float = 1.0
    made_bytes: dict[int, int] = field(default_factory=dict)  # part of what it brings

    def factors(self, program: Program, device: FloatArray) -> FloatArray:
        """How much shorter kernels are for what is gone, shape (owners, variants).

        1 throughout where there is work of another phase than the forward, since what a backward
        brings is not known.

        :param device: factors on the owners' kernels, of that shape; 0 is gone.
        """
        forward = all(phase in (FORWARD, "") for _, phase in program.owners)
        if not forward:
            return np.ones_like(device)
        everyone = np.ones((len(program.owners), 1), np.bool_)
        all_bytes = self._brought(program.owners, everyone)
        whole = self._found(all_bytes)
        left = self._brought(program.owners, device > 0) + self._given(program, device > 0)
        taken = self._of(program.owners, self.made_bytes) @ (device <= 0)
        found = self._found(left + (1 - self.held_ratio) * taken)
        more = np.where(whole < 1, (found - whole) / np.maximum(1 - whole, 1e-9), 0.0)
        return 1 - self._colder(program)[:, None] * np.maximum(more, 0.0)

    def _brought(self, owners: Sequence[Owner], there: npt.NDArray[np.bool_]) -> FloatArray:
        """Bytes of a step in which these owners are, one a variant."""
        found: FloatArray = self._of(owners, self.brings_bytes) @ there
        for readers in self.tied:
            found = found + (self._of(owners, readers)[:, None] * there).max(axis=0, initial=0.0)
        return found

    @staticmethod
    def _of(
        owners: Sequence[Owner], figures: Mapping[int, float], unknown: float = 0.0
    ) -> FloatArray:
        ids = [-1 if module is None else module for module, _ in owners]
        return np.array([float(figures.get(one, unknown)) for one in ids])

    def _given(self, program: Program, there: npt.NDArray[np.bool_]) -> FloatArray:
        """Outputs that others still read, one a variant: of what is gone, the last one."""
        last = np.full(len(program.owners), -1, np.int64)
        np.maximum.at(last, program.share_owner, program.share_kernel)
        gone = np.where(there, -1, last[:, None])
        outputs = self._of(program.owners, self.output_bytes)
        found: FloatArray = np.where((gone >= 0).any(axis=0), outputs[gone.argmax(axis=0)], 0.0)
        return found

    def _found(self, step_bytes: FloatArray) -> FloatArray:
        """Which part of what the step before brought is still there."""
        found: FloatArray = np.clip(2 - 2 * step_bytes / self.cache_bytes, 0.0, 1.0)
        return found

    def _colder(self, program: Program) -> FloatArray:
        """Which part of each owner's kernel time a warm cache would save."""
        parts = program.share * program.kernel_ns[program.share_kernel]
        took = np.bincount(program.share_owner, parts, len(program.owners))
        warm = self._of(program.owners, self.warm_ns, np.inf)
        saved: FloatArray = np.maximum(took - warm, 0.0)
        return np.divide(saved, took, out=np.zeros_like(saved), where=took > 0)


def residency(
    cache_bytes: int | None,
    replay: pl.DataFrame,
    module: pl.DataFrame,
    cost: pl.DataFrame,
    memory: pl.DataFrame,
    *,
    parameter: pl.DataFrame | None = None,
) -> Residency | None:
    """Read it off the recording; None where the cache or the bytes are not known.

    A module brings what it touches of its parameters, which is no more than it moves beside its
    output and what the modules inside touch of theirs, and what each of its calls allocates; of
    what a parent allocates the part of the calls inside is taken off. Parameters of a module that
    is never called are those of the nearest one above that is (``out_proj`` of
    ``nn.MultiheadAttention``).

    :param replay: of innermost modules, forward, in condition ``hot``, all calls of each: their
        device time is warm.
    """
    called = _called(cost, memory)
    if not cache_bytes or called is None:
        return None
    made = _made(called, module)
    touched = touched_parameters(called, module, parameter)
    brings = {
        one: size + touched.own.get(one, 0)
        for one, size in made.select("module_id", "made").iter_rows()
    }
    warm = device_alone(replay, replay).select("module_id", pl.col("ns").cast(float))
    return Residency(
        cache_bytes,
        brings,
        dict(made.select("module_id", "output_bytes").iter_rows()),
        dict(warm.iter_rows()),
        touched.tied,
        _held_ratio(made, module),
        dict(made.select("module_id", "made").iter_rows()),
    )


def _called(cost: pl.DataFrame, memory: pl.DataFrame) -> pl.DataFrame | None:
    """Of every module called, a step: ``module_id, calls`` and bytes; None where none are known."""
    counted = (
        _forward(cost)
        .filter(pl.col("call_index") >= 0)
        .group_by("module_id")
        .agg((pl.col("bytes_compulsory") * pl.col("calls")).sum(), pl.col("calls").sum())
    )
    held = (
        _forward(memory)
        .filter(pl.col("scope") == "context")
        .group_by("module_id")
        .agg(pl.col("peak_bytes", "output_bytes").max())
    )
    if not counted.height or not held.height:
        return None
    return (
        counted.join(held, on="module_id", how="left")
        .with_columns(pl.col("bytes_compulsory", "peak_bytes", "output_bytes").fill_null(0))
        .with_columns(pl.col("peak_bytes", "output_bytes") * pl.col("calls"))
    )


def _held_ratio(made: pl.DataFrame, module: pl.DataFrame) -> float:
    """The peak of the root over all that is allocated in it; 1 without a root."""
    roots = module.filter(pl.col("parent_id").is_null()).select("module_id")
    peak = made.join(roots, on="module_id")["peak_bytes"].to_list()
    everything = int(made["made"].sum())
    return min(1.0, peak[0] / everything) if len(peak) == 1 and everything else 1.0


def _made(called: pl.DataFrame, module: pl.DataFrame) -> pl.DataFrame:
    """``called`` with what the calls of each module allocate (``made``), those inside left out."""
    outer = run_inside(module, set(called["module_id"].to_list()))
    schema = {"module_id": called.schema["module_id"], "caller_id": called.schema["module_id"]}
    pairs = [(inner, one) for one, below in outer.items() for inner in below]
    inside = (
        called.join(pl.DataFrame(pairs, schema=schema, orient="row"), on="module_id")
        .group_by(module_id="caller_id")
        .agg(inner_peak=pl.col("peak_bytes").sum())
    )
    rest = pl.max_horizontal("peak_bytes", "output_bytes") - pl.col("inner_peak").fill_null(0)
    joined = called.join(inside, on="module_id", how="left", nulls_equal=False)
    return joined.with_columns(made=rest.clip(0))


def _forward(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("phase") == FORWARD)


def cache_of(run: pl.DataFrame) -> int | None:
    """Bytes of the cache of the device of one recording (a row of ``run``).

    None where its step ran compiled: what that brings is not what was counted, uncompiled.
    """
    rows = run.filter(~pl.col("mode").str.contains("compile", literal=True))
    return next(iter(rows["l2_bytes"].to_list()), None)
