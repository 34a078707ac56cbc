"""A bundle's manifest as frames of the tables it fills: run, module, samples, replays, notes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median_low
from typing import TYPE_CHECKING, Any

from cb_trace.columns import SCHEMA_VERSION, polars_schema
from cb_trace.errors import CbTraceError

if TYPE_CHECKING:
    import polars as pl

    from cb_trace.analysis import BareStep, Interval
    from cb_trace.bundle import (
        Deployment,
        HostSpanRecord,
        HostTourRecord,
        Manifest,
        RunRecord,
        SampleBlock,
    )
    from cb_trace.notes import Note


@dataclass(frozen=True, slots=True)
class BundleFrames:
    """One frame a table; ``replay`` still lacks the figures that analysis computes."""

    run: pl.DataFrame
    module: pl.DataFrame
    step_sample: pl.DataFrame
    replay: pl.DataFrame
    replay_sample: pl.DataFrame
    note: pl.DataFrame
    knockout: pl.DataFrame
    speedup: pl.DataFrame  # without the predictions
    host_span: pl.DataFrame
    host_window: pl.DataFrame
    host_tour: pl.DataFrame
    bare: dict[Deployment, BareStep]


def bundle_frames(manifest: Manifest) -> BundleFrames:
    """Turn a manifest into frames.

    :raises CbTraceError: it contradicts itself: an unknown module, a value that fits no column.
    """
    import polars as pl

    try:
        return _frames(manifest)
    except (KeyError, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        cause = str(error).splitlines()[0]
        raise CbTraceError(
            f"the manifest contradicts itself: {cause}", hint="record the bundle again"
        ) from error


def table_frame(table: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """A frame with a table's full schema; what a row leaves out is null."""
    import polars as pl

    schema, rows = polars_schema(table), list(rows)
    data = {name: [row.get(name) for row in rows] for name in schema}
    return pl.DataFrame(data, schema=schema, strict=True)


def note_frame(run_id: str, notes: Iterable[Note], ids: dict[str, int]) -> pl.DataFrame:
    """Rows of table ``note``; ``ids`` maps module paths to ids."""
    return table_frame(
        "note",
        (
            {"run_id": run_id, "module_id": None if note.path is None else ids[note.path],
             "reason": note.reason, "detail": note.detail, "count": note.count}
            for note in notes
        ),
    )  # fmt: skip


def _frames(manifest: Manifest) -> BundleFrames:
    run_id = manifest.run.run_id
    ids = {module.path: place for place, module in enumerate(manifest.modules)}
    if len(ids) < len(manifest.modules):
        raise ValueError("two modules have one path")
    bare = _bare(manifest)
    return BundleFrames(
        run=_run(manifest, bare),
        module=_modules(manifest, ids),
        step_sample=table_frame("step_sample", _step_samples(manifest)),
        replay=_replays(manifest, ids),
        replay_sample=table_frame(
            "replay_sample",
            (
                {"replay_id": replay.replay_id, **sample}
                for replay in manifest.replays
                for sample in _samples(replay.samples_ns, replay.blocks)
            ),
        ),
        note=note_frame(run_id, manifest.notes, ids),
        knockout=table_frame("knockout", _knockouts(manifest, ids, bare)),
        speedup=table_frame("speedup", _speedups(manifest, ids, bare)),
        host_span=table_frame("host_span", _host_times(manifest, manifest.host_spans, ids)),
        host_window=table_frame("host_window", _host_window(manifest)),
        host_tour=table_frame("host_tour", _host_times(manifest, manifest.host_tours, ids)),
        bare=bare,
    )


def _bare(manifest: Manifest) -> dict[Deployment, BareStep]:
    """The bare step of each deployment that was timed, before the first profile."""
    from cb_trace.analysis import interval_stats

    samples: dict[Deployment, list[int]] = {}
    for block in manifest.step_samples:
        if block.kind == "bare" and block.ns:
            samples.setdefault(block.deployment, []).extend(block.ns)
    return {deployment: interval_stats(ns) for deployment, ns in sorted(samples.items())}


def _run(manifest: Manifest, bare: dict[Deployment, BareStep]) -> pl.DataFrame:
    from cb_trace.analysis import interval_stats

    step: Interval | None = next(iter(bare.values()), None)  # eager sorts first
    profiled = [n for block in manifest.step_samples if block.kind == "profiled" for n in block.ns]
    profiled_ns = interval_stats(profiled).median_ns if profiled else None
    row = _recorded(manifest.run) | {
        "schema_version": SCHEMA_VERSION,
        "step_bare_ns": step.median_ns if step else None,
        "step_bare_low_ns": step.low_ns if step else None,
        "step_bare_high_ns": step.high_ns if step else None,
        "step_profiled_ns": profiled_ns,
        "dilation": profiled_ns / step.median_ns if step and profiled_ns else None,
    }
    return table_frame("run", [row])


def _recorded(run: RunRecord) -> dict[str, Any]:
    names = [name for name in polars_schema("run") if hasattr(run, name)]
    return {name: getattr(run, name) for name in names} | {
        "created_at": _utc(run.created_at),
        "phases": ",".join(run.phases),
        "settings": json.dumps(run.settings),
    }


def _utc(text: str) -> datetime:
    """ISO 8601 to a naive time in UTC, as DuckDB's TIMESTAMP has it."""
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _modules(manifest: Manifest, ids: dict[str, int]) -> pl.DataFrame:
    return table_frame(
        "module",
        (
            {"module_id": ids[module.path], "run_id": manifest.run.run_id, "path": module.path,
             "class": module.class_name,
             "parent_id": None if module.parent is None else ids[module.parent],
             "depth": module.depth, "ordinal": module.ordinal, "parameters": module.parameters,
             "parameter_bytes": module.parameter_bytes, "buffer_bytes": module.buffer_bytes,
             "signature": module.signature, "aliases": json.dumps(module.aliases)}
            for module in manifest.modules
        ),
    )  # fmt: skip


def _step_samples(manifest: Manifest) -> Iterable[dict[str, Any]]:
    for block in manifest.step_samples:
        for sample in _samples(block.ns, block.blocks):
            yield {"run_id": manifest.run.run_id, "kind": block.kind,
                   "deployment": block.deployment, **sample}  # fmt: skip


def _samples(times: Sequence[int], blocks: Sequence[SampleBlock]) -> Iterable[dict[str, Any]]:
    """Samples in order, each with the block it was taken in, where they were taken in blocks.

    :raises ValueError: the blocks hold another number of samples.
    """
    each = [block for block in blocks for _ in range(block.samples)]
    if blocks and len(each) != len(times):
        raise ValueError(f"{len(each)} samples in blocks, {len(times)} in all")
    for place, ns in enumerate(times):
        row: dict[str, Any] = {"sample": place, "ns": ns}
        if each:
            block = each[place]
            row |= {"turn": block.turn, "sm_clock_mhz": block.sm_clock_mhz,
                    "temperature_c": block.temperature_c}  # fmt: skip
        yield row


def _knockouts(
    manifest: Manifest, ids: dict[str, int], bare: Mapping[Deployment, BareStep]
) -> Iterable[dict[str, Any]]:
    """What the bare step lost in every knock-out."""
    from cb_trace.analysis.knockouts import at_another_speed

    for record in manifest.knockouts:
        step = bare.get(record.deployment)
        found = _paired(record.base_ns, record.knocked_ns, step, record.visits, record.captures)
        skipped = record.skipped
        if times := at_another_speed(record.base_ns, step):
            found = {}
            skipped = f"the step took {times:.1f} times as long as the bare one meanwhile"
        yield {
            "run_id": manifest.run.run_id, "module_id": ids[record.path], "phase": record.phase,
            "deployment": record.deployment, "skipped": skipped,
            "marginal_ns": found.pop("ns", None), **found,
        }  # fmt: skip


def _speedups(
    manifest: Manifest, ids: dict[str, int], bare: Mapping[Deployment, BareStep]
) -> Iterable[dict[str, Any]]:
    """What the bare step gained where a module ran on a part of its batch."""
    for record in manifest.speedups:
        step = bare.get(record.deployment)
        found = _paired(record.base_ns, record.faster_ns, step, captures=record.captures)
        yield {
            "run_id": manifest.run.run_id, "module_id": ids[record.path], "phase": "forward",
            "deployment": record.deployment, "factor": record.factor, "skipped": record.skipped,
            "saved_ns": found.pop("ns", None), **found,
        }  # fmt: skip


def _host_times(
    manifest: Manifest, records: Sequence[HostSpanRecord | HostTourRecord], ids: dict[str, int]
) -> Iterable[dict[str, Any]]:
    """What the host took for every module in the bare step, or in the tour of them.

    :raises ValueError: a module twice, or without a sample.
    """
    from cb_trace.analysis import interval_stats

    paths = [record.path for record in records]
    if len(set(paths)) < len(paths):
        raise ValueError("two host times of one module")
    for record in records:
        found = interval_stats(record.ns)
        yield {
            "run_id": manifest.run.run_id,
            "module_id": None if record.path is None else ids[record.path],
            "calls": record.calls, "ns": found.median_ns, "low_ns": found.low_ns,
            "high_ns": found.high_ns, "samples": found.samples, "dropped": record.dropped,
        }  # fmt: skip


def _host_window(manifest: Manifest) -> Iterable[dict[str, Any]]:
    """The windows that the bare step's host times were read in.

    :raises ValueError: its lists are not of the same steps, or a time is negative.
    """
    window = manifest.host_window
    if window is None:
        return
    steps = list(zip(window.host_ns, window.closing_ns, window.window_ns, strict=True))
    if not steps:
        raise ValueError("a host window of no step")
    if min(window.empty_ns, *(min(step) for step in steps)) < 0:
        raise ValueError("a host window of negative length")
    host_ns = median_low(host for host, _, _ in steps)
    yield {
        "run_id": manifest.run.run_id, "host_ns": host_ns,
        "closing_ns": median_low(closing for _, closing, _ in steps),
        "window_ns": host_ns + median_low(whole - host for host, _, whole in steps),
        "empty_ns": window.empty_ns, "samples": len(steps),
    }  # fmt: skip


def _paired(
    base: list[int],
    changed: list[int],
    bare: BareStep | None,
    visits: Sequence[int] = (),
    captures: Sequence[int] = (),
) -> dict[str, int]:
    """``ns`` with its bounds, of the pairs where there are any."""
    from cb_trace.analysis import interval_stats
    from cb_trace.analysis.knockouts import paired_loss

    found = paired_loss(base, changed, bare, visits, captures)
    if found is None:
        return {}
    return {
        "ns": found.median_ns, "low_ns": found.low_ns, "high_ns": found.high_ns,
        "samples": found.samples, "base_ns": interval_stats(base).median_ns,
    }  # fmt: skip


def _replays(manifest: Manifest, ids: dict[str, int]) -> pl.DataFrame:
    known = {replay.replay_id for replay in manifest.replays}
    if len(known) < len(manifest.replays):
        raise ValueError("two replays have one id")
    if lost := {replay.measured_id for replay in manifest.replays} - known:
        raise ValueError(f"no replay {min(lost)}, which others share")
    return table_frame(
        "replay",
        (
            {"replay_id": replay.replay_id, "run_id": manifest.run.run_id,
             "module_id": ids[replay.path], "phase": replay.phase,
             "condition": replay.condition, "call_index": replay.call_index,
             "calls": replay.calls, "measured_id": replay.measured_id, "skipped": replay.skipped,
             "dropped": sum(block.dropped for block in replay.blocks), "unlike": replay.unlike}
            for replay in manifest.replays
        ),
    )  # fmt: skip
