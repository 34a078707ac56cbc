"""What ``profile`` and ``capture`` share: a provider's name and options become a bundle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cb_trace.commands.measuring import MEASURE, ceilings_of
from cb_trace.commands.options import default_device, needs_recording_half, say, show_progress

if TYPE_CHECKING:
    from cb_trace.bundle import Manifest, Mode
    from cb_trace.capture.options import Dtype, RecordOptions, StepPhase

# Notes that whoever records should see before anyone reads the figures.
SAID_AT_ONCE = {
    "compile provenance unavailable",
    "compiled model",
    "instrumentation changed the kernels",
    "kernels vary",
    "device memory of recording",
    "table shrunk",
    "batch replicated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks to record."""

    provider: str
    preset: str | None
    settings: dict[str, str]
    device: str | None
    dtype: str
    seed: int
    steps: int
    replay: bool
    phase: str = "forward"
    mode: str = "eager"
    wrap: tuple[str, ...] = ()
    dedup: bool = True
    budget_seconds: float | None = None
    knockout: str | None = None
    speedups: tuple[str, ...] = ()
    ceilings: str | None = None  # measure, or a file


def is_bundle_name(output: str) -> bool:
    """Whether an output names a bundle: a ``.zip``, or a folder (it ends in a slash)."""
    return output.endswith((".zip", "/"))


def record_bundle(request: Request, target: Path, *, force: bool) -> None:
    """Record a workload into a bundle and say what was left out.

    :raises CbTraceError: torch is missing, the target is taken, or the provider or its step fails.
    """
    needs_recording_half()
    from cb_trace.capture.options import device_of
    from cb_trace.capture.output import bundle_at, check_target
    from cb_trace.capture.record import record
    from cb_trace.providers import load

    check_target(target, force=force)
    device = str(device_of(request.device or default_device()))
    with show_progress() as show:
        show(f"building {request.provider} on {device}")
        workload = load(
            request.provider,
            preset=request.preset,
            settings=request.settings,
            device=device,
            seed=request.seed,
        )
        with bundle_at(target, force=force) as folder:
            manifest = record(
                workload,
                folder,
                _options(request, device),
                provider=request.provider,
                progress=show,
            )
    say_replays(manifest)
    say(f"Wrote {target}")


def _options(request: Request, device: str) -> RecordOptions:
    from cb_trace.capture.options import RecordOptions
    from cb_trace.replay.knockout import parse_knockout, parse_speedup

    options = RecordOptions(
        device=device,
        dtype=cast("Dtype", request.dtype),
        seed=request.seed,
        steps=request.steps,
        replay=request.replay,
        phase=cast("StepPhase", request.phase),
        mode=cast("Mode", request.mode),
        wrap=request.wrap,
        dedup=request.dedup,
        knockout=None if request.knockout is None else parse_knockout(request.knockout),
        speedups=tuple(map(parse_speedup, request.speedups)),
    )
    if request.ceilings == MEASURE:
        options = replace(options, measure_ceilings=True)
    elif request.ceilings is not None:
        options = replace(options, ceilings=ceilings_of(request.ceilings, device))
    if request.budget_seconds is None:
        return options
    return replace(options, replay_seconds=request.budget_seconds)


def say_replays(manifest: Manifest) -> None:
    """How many modules were measured alone, and whether all were to be."""
    skipped = {replay.path for replay in manifest.replays if replay.skipped}
    measured = {replay.path for replay in manifest.replays if not replay.skipped}
    if manifest.replays:
        say(f"measured {len(measured)} modules alone, skipped {len(skipped - measured)}")
    if manifest.knockouts:
        taken = {record.path for record in manifest.knockouts if not record.skipped}
        left = {record.path for record in manifest.knockouts} - taken
        say(f"knocked out {len(taken)} modules, skipped {len(left)}")
    for note in manifest.notes:
        if note.reason in SAID_AT_ONCE:
            say(f"note: {note.reason}: {note.detail}")
    for record in manifest.speedups:
        if record.skipped:
            say(f"{record.path or 'the root'} on 1/{record.factor} of its batch: {record.skipped}")
    if any(note.reason == "interrupted" for note in manifest.notes):
        say("interrupted: what was measured until then is kept")
