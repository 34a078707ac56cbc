"""Replay of a bundle that exists: its workload is built again and measured alone once more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from cb_trace.bundle import (
    Bundle,
    Manifest,
    ModuleRecord,
    Note,
    TraceRecord,
    open_bundle,
    readable,
    write_bundle,
)
from cb_trace.capture.compiled import fresh_compiler
from cb_trace.capture.environment import environment
from cb_trace.capture.given import as_written
from cb_trace.capture.intact import intact
from cb_trace.capture.options import Dtype, RecordOptions, device_of
from cb_trace.capture.record import INTERRUPTED, Progress, replay_options
from cb_trace.capture.step import step_of, trains_by_us, warm_up
from cb_trace.capture.tree import module_tree
from cb_trace.errors import CbTraceError
from cb_trace.providers import load
from cb_trace.providers.workload import Workload
from cb_trace.replay.likes import calls_seen
from cb_trace.replay.walk import Replayer


def replay_bundle(
    source: Path,
    folder: Path,
    options: RecordOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Manifest:
    """Replay a bundle's workload and write the bundle, replays renewed, into ``folder``.

    Device kind, autocast, seed, phase, mode, grad mode and wrapped methods are the bundle's; the
    other options are the given ones.

    :raises CbTraceError: no bundle; no provider to build the workload from; another module tree
        than the one recorded; no such device here.
    """
    bundle, folder = open_bundle(source.absolute()), folder.absolute()
    options = _options(bundle, options or RecordOptions())
    device = _device(bundle, options)
    workload = _workload(bundle, options)
    with as_written(workload.model) as given:
        workload, options = replace(workload, model=given.model), given.options(options)
        manifest = _renewed(bundle, workload, folder, options, device, progress or (lambda _: None))
    write_bundle(folder, manifest)
    return manifest


def _renewed(  # noqa: PLR0917 - the parts of one replay
    bundle: Bundle,
    workload: Workload,
    folder: Path,
    options: RecordOptions,
    device: torch.device,
    progress: Progress,
) -> Manifest:
    step = step_of(workload, options, device)
    writes = workload.step is not None or trains_by_us(workload, options)
    compiler = fresh_compiler(device) if options.compiled else nullcontext()
    with intact(workload.model, device, values=writes), compiler:
        torch.manual_seed(options.seed)
        if trains_by_us(workload, options) and not workload.model.training:
            workload.model.train()
        warm_up(step, workload.name, options.warmup, device)
        tree = module_tree(workload.model)
        _check_same(bundle.manifest.modules, tree.records, workload.name)
        replayer = Replayer(
            workload.model,
            step,
            tree.records,
            device,
            replay_options(options),
            progress,
        )
        traces, notes = _replayed(replayer, bundle, folder)
    return replace(
        bundle.manifest,
        traces=[*_kept(bundle, folder), *traces],
        replays=replayer.records,
        host_tours=replayer.tour.records(),
        notes=[*bundle.manifest.notes, *notes, *_moved(bundle, device), *replayer.notes],
    )


def _replayed(
    replayer: Replayer, bundle: Bundle, folder: Path
) -> tuple[list[TraceRecord], list[Note]]:
    try:
        replayer.capture()
        replayer.time()
        for context in [t for t in bundle.manifest.traces if t.role == "context"][:1]:
            with readable(bundle.trace_file(context)) as file:
                replayer.part(*calls_seen(file, replayer.groups()))
        return replayer.profile(folder), []
    except KeyboardInterrupt:
        return [], [Note(reason=INTERRUPTED, detail="stopped by Ctrl-C")]


def _options(bundle: Bundle, given: RecordOptions) -> RecordOptions:
    run = bundle.manifest.run
    if run.provider is None:
        raise CbTraceError(
            f"{bundle.path} was recorded from a live model and names no provider to build it from",
            hint="record it again; replay is part of recording",
        )
    grad = any(
        note.reason == "grad mode" and note.detail == "grad" for note in bundle.manifest.notes
    )
    same_kind = given.device.partition(":")[0] == run.device_type
    device = given.device if same_kind else run.device_type
    autocast = run.autocast or run.dtype  # the latter may be the model's own, without autocast
    dtype: Dtype = autocast if autocast in get_args(Dtype) else "fp32"  # type: ignore[assignment]
    return replace(
        given,
        device=device,
        dtype=dtype,
        seed=run.seed,
        grad=grad,
        phase="train" if "backward" in run.phases else "forward",
        mode=run.mode,
        wrap=tuple(run.wrap),
    )


def _device(bundle: Bundle, options: RecordOptions) -> torch.device:
    try:
        return device_of(options.device)
    except CbTraceError as error:
        run = bundle.manifest.run
        raise CbTraceError(
            f"{bundle.path} was recorded on {run.device_name}; {error.message}",
            hint=f"replay it where there is a device of the kind {run.device_type}",
        ) from error


def _workload(bundle: Bundle, options: RecordOptions) -> Workload:
    run = bundle.manifest.run
    assert run.provider is not None
    return load(run.provider, settings=run.settings, device=options.device, seed=options.seed)


def _check_same(recorded: Sequence[ModuleRecord], built: Sequence[ModuleRecord], name: str) -> None:
    """:raises CbTraceError: the trees differ in paths, classes or configuration."""
    then = {(m.path, m.class_name, m.signature) for m in recorded}
    now = {(m.path, m.class_name, m.signature) for m in built}
    if then != now:
        odd = min(path for path, *_ in then ^ now) or "the root"
        raise CbTraceError(
            f"{name} no longer builds the model that was recorded: they differ at {odd}",
            hint="record it again",
        )


def _kept(bundle: Bundle, folder: Path) -> list[TraceRecord]:
    """Copy the traces that are not replays."""
    records = [record for record in bundle.manifest.traces if record.role != "isolated"]
    for record in records:
        with readable(bundle.trace_file(record)) as file:
            shutil.copyfile(file, folder / record.file)
    return records


def _moved(bundle: Bundle, device: torch.device) -> list[Note]:
    here, there = environment(device).device_name, bundle.manifest.run.device_name
    detail = f"recorded on {there}, replayed on {here}"
    return [] if here == there else [Note(reason="replayed on another device", detail=detail)]
