"""``cb-trace ingest``: a bundle or Kineto traces become a profile."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import (
    SETTINGS,
    FilePath,
    first_of,
    force_option,
    needs_reading_half,
    say,
    show_progress,
)
from cb_trace.commands.part import STEPS, WINDOW, step_pattern_option
from cb_trace.errors import ThresholdCrossedError
from cb_trace.imports import uncollected

if TYPE_CHECKING:
    from cb_trace.conduct import IngestReport
    from cb_trace.trace import LoadOptions, Unpacked


@click.command(
    name="ingest",
    epilog="Example: cb-trace ingest trace.json.gz -o trace.duckdb",
    context_settings=SETTINGS,
)
@click.argument("source", type=FilePath)
@click.option("-o", "output", type=FilePath, help="Profile to write. [default: SOURCE.duckdb]")
@click.option(
    "--hta", is_flag=True, help="Ask HolisticTraceAnalysis for a second opinion as well (slow)."
)
@click.option(
    "--window",
    type=WINDOW,
    help="Load a part: START:END from the trace's first event, with a unit: 1.5s:2s, 200ms:350ms.",
)
@click.option("--steps", type=STEPS, help="Load a part: the steps FIRST-LAST, or one step.")
@step_pattern_option
@click.option(
    "--capture",
    type=FilePath,
    help="Trace in which SOURCE's CUDA graphs were captured, to know their modules by.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Accept a damaged file, of which only what decodes is loaded: exit 0.",
)
@force_option
def command(
    *,
    source: Path,
    output: Path | None,
    hta: bool,
    window: tuple[int, int] | None,
    steps: tuple[int, int] | None,
    step_pattern: str | None,
    capture: Path | None,
    partial: bool,
    force: bool,
) -> None:
    """Make a profile from a bundle, a Kineto trace, or a folder with one trace a rank.

    A trace from elsewhere gets its modules from its nn.Module slices; record with
    with_stack=True to have them.
    """
    # numpy's threads for matrix products, of which there are none here, spin at the start: 0.1 s
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # most frames are small: other threads wake up when the work is done (of 1.4 s, 0.1)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    # what polars frees goes back to the system: of five million events 100 MB at the peak
    returned = "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:0"
    os.environ.setdefault("_RJEM_MALLOC_CONF", returned)
    from cb_trace.trace import LoadOptions

    target = output or Path(f"{_stem(source)}.duckdb")
    part = LoadOptions(window_ns=window, steps=steps, step_pattern=step_pattern)
    report = ingest_to(source, target, force=force, load=part, capture=capture)
    if hta:
        from cb_trace.commands.hta import second_opinion_on

        second_opinion_on(target)
    say(f"next: cb-trace compare {target}")
    damaged = [trace.path for trace in report.traces if trace.broken]
    if damaged and not partial:  # traces.md row 7: not to go unnoticed in a script
        raise ThresholdCrossedError(
            f"{first_of(damaged)} is damaged: only what decodes was loaded",
            hint="--partial accepts that",
        )


def ingest_to(
    source: Path,
    target: Path,
    *,
    force: bool,
    load: LoadOptions | None = None,
    capture: Path | None = None,
) -> IngestReport:
    """Ingest and say what came of it."""
    needs_reading_half()
    with _unpacking(source) as text, show_progress() as show:
        with uncollected():
            from cb_trace.conduct import ingest

        report = ingest(
            source, target, force=force, load=load, capture=capture, text=text, progress=show
        )
    for remark in report.remarks():
        say(f"note: {remark}")
    say(report.summary())
    say(f"Wrote {target}")
    return report


def _unpacking(source: Path) -> AbstractContextManager[Unpacked | None]:
    """Unpack a single trace from now on, while the rest is imported."""
    from cb_trace.files import is_bundle
    from cb_trace.trace import Unpacked

    return Unpacked(source) if source.is_file() and not is_bundle(source) else nullcontext()


def _stem(source: Path) -> str:
    name = source.resolve().name if source.name in {"", ".", ".."} else source.name
    for ending in (".gz", ".json", ".zip"):
        name = name.removesuffix(ending)
    return name or "profile"
