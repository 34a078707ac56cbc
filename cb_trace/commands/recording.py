"""What ``profile`` and ``capture`` share: options become a request, and a request a bundle."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from cb_trace.commands.measuring import MEASURE, ceilings_of
from cb_trace.commands.options import (
    assignments,
    default_device,
    needs_recording_half,
    say,
    show_progress,
)

if TYPE_CHECKING:
    from cb_trace.bundle import Manifest, Mode
    from cb_trace.capture.options import Dtype, RecordOptions, StepPhase

# Notes that whoever records should see before anyone reads the figures.
SAID_AT_ONCE = {
    "compile provenance unavailable",
    "compiled again, other kernels",
    "compiled model",
    "instrumentation changed the kernels",
    "kernels vary",
    "device memory of recording",
    "table shrunk",
    "batch replicated",
}


_UNFIT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks to record."""

    provider: str
    preset: str | None
    settings: dict[str, str]
    device: str | None
    dtype: str
    phase: str
    mode: str
    wrap: tuple[str, ...]
    seed: int
    steps: int
    replay: bool = False
    dedup: bool = True
    budget_seconds: float | None = None
    knockout: str | None = None
    speedups: tuple[str, ...] = ()
    ceilings: str | None = None  # measure, or a file

    def file_name(self, ending: str) -> str:
        """A name that tells recordings apart: ``nanogpt-tiny-train-batch4.duckdb``."""
        words = [self.provider.rpartition(":")[2], self.preset or ""]
        words += [word for word in (self.phase, self.mode) if word not in ("forward", "eager")]
        words += [f"{key}{value}" for key, value in self.settings.items()]
        fit = (_UNFIT_IN_FILE_NAMES.sub("_", word).strip(".") for word in words if word)
        return "-".join(fit) + ending


def recording_options(function: Callable[..., None]) -> Callable[..., None]:
    """Options of what is recorded: the workload and the device.

    The command gets them, and its argument ``provider``, as one ``request``.
    """

    @wraps(function)
    def command(
        *,
        settings: tuple[str, ...],
        shrink_tables: int | None,
        full_batch: int | None,
        **given: Any,
    ) -> None:
        asked = {name: given.pop(name) for name in _PLAIN}
        settled = workload_settings(settings, shrink_tables, full_batch)
        function(request=Request(settings=settled, **asked), **given)

    for option in reversed(_RECORDING):
        command = option(command)
    return command


_PLAIN = ("provider", "preset", "device", "dtype", "phase", "mode", "wrap", "seed", "steps")
_RECORDING = (
    click.option("--preset", metavar="NAME", help="A size that the provider names."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the workload; may be given again.",
    ),
    click.option(
        "--device", metavar="NAME", help="cpu, cuda or cuda:N. [default: cuda where there is one]"
    ),
    click.option(
        "--dtype",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        show_default=True,
        help="Autocast to this type.",
    ),
    click.option(
        "--phase",
        type=click.Choice(["forward", "train"]),
        default="forward",
        show_default=True,
        help="A step is the forward alone, or a training step.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["eager", "compile", "cudagraph", "compile+cudagraph"]),
        default="eager",
        show_default=True,
        help="How the step runs: as it is, through torch.compile, as a CUDA graph, or both.",
    ),
    click.option(
        "--wrap",
        multiple=True,
        metavar="METHOD",
        help="A method that counts as a call of its module, as forward does; may be given again.",
    ),
    click.option(
        "--shrink-tables",
        type=click.IntRange(min=1),
        metavar="ROWS",
        help="Build no embedding table with more rows: for models larger than the device.",
    ),
    click.option(
        "--full-batch",
        type=click.IntRange(min=1),
        metavar="N",
        help="Repeat the inputs until the batch is N.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of model and data."),
    click.option(
        "--steps",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        help="Steps recorded under the profiler.",
    ),
)


def workload_settings(
    given: tuple[str, ...], shrink_tables: int | None, full_batch: int | None
) -> dict[str, str]:
    """All settings of a workload: those given by ``--set``, and what is done to make it fit.

    :raises CbTraceError: as :func:`assignments`.
    """
    fit = {"shrink_tables": shrink_tables, "full_batch": full_batch}
    made = {name: str(number) for name, number in fit.items() if number is not None}
    return assignments(given, "--set") | made


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
    with chdir("."), show_progress() as show:  # wherever the workload goes, we come back
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
