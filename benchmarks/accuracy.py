"""How right the figures are: record a grid of workloads on a GPU, then hold figures to the truth.

    python benchmarks/accuracy.py record OUT                     # where the GPU is
    python benchmarks/accuracy.py record OUT --points dlrm_default_512 gpt2_b1_s64
    python benchmarks/accuracy.py table OUT/*.zip > docs/accuracy.md

One bundle a point: the step bare (eager and as a CUDA graph), every module alone, modules taken
out of the step, profiled steps and the sequence run. A point whose bundle exists is skipped, so the
grid can be filled in several runs. Recording needs torch, click and rich; the table needs the
reading half.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy_grid import GRID, TINY, Point  # noqa: E402

# Of the time of a point: bare steps (each deployment), modules alone, knock-out. The rest is what
# building, counting and profiling take.
BARE, ALONE, KNOCKOUT = 0.03, 0.25, 0.45


def record(arguments: argparse.Namespace) -> int:
    """Record the points that have no bundle yet; 1 if one failed."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    failed, longest = 0, 0.0
    for point in _chosen(arguments):
        target = arguments.out / f"{point.name}.zip"
        if target.exists():
            _say(f"{point.name}: there already")
            continue
        if time.monotonic() - begin + longest > arguments.seconds:
            _say(f"{point.name}: left for another run, {arguments.seconds:.0f} s are over")
            continue
        started = time.monotonic()
        try:
            _record_point(point, target, arguments)
        except Exception:  # whatever it was: the others may still do
            traceback.print_exc()
            failed += 1
        took = time.monotonic() - started
        longest = max(longest, took)
        size = target.stat().st_size // 1000 if target.exists() else 0
        _say(f"{point.name}: {took:.1f} s, {size} kB")
    return int(failed > 0)


def _chosen(arguments: argparse.Namespace) -> Iterator[Point]:
    wanted = arguments.points
    for point in TINY if arguments.tiny else GRID:
        if not wanted or any(point.name.startswith(prefix) for prefix in wanted):
            yield point


def _record_point(point: Point, target: Path, arguments: argparse.Namespace) -> None:
    from cb_trace.capture.options import RecordOptions
    from cb_trace.capture.output import bundle_at
    from cb_trace.capture.record import record as record_into
    from cb_trace.providers import load
    from cb_trace.replay.knockout import KnockoutOptions

    seconds, device = arguments.point_seconds, arguments.device
    workload = load(
        point.provider, preset=point.preset, settings=point.settings, device=device, seed=0
    )
    paths = point.knocked_out(dict(workload.model.named_modules()))
    options = RecordOptions(
        device=device,
        dtype=point.dtype,
        steps=5,
        profiled_calls=2,
        bare_seconds=BARE * seconds,
        replay_seconds=ALONE * seconds,
        knockout=KnockoutOptions(paths=tuple(paths), budget_seconds=KNOCKOUT * seconds),
    )
    with bundle_at(target) as folder:
        manifest = record_into(workload, folder, options, provider=point.provider, progress=_say)
    for note in manifest.notes:
        _say(f"  note: {note.path or ''} {note.reason}: {note.detail}")
    for one in manifest.knockouts:
        if one.skipped:
            _say(f"  no knock-out, {one.deployment}: {one.path} {one.skipped}")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def table(arguments: argparse.Namespace) -> int:
    """Print the tables of the bundles."""
    from benchmarks.accuracy_table import document

    print(document(arguments.bundles, arguments.causes, TINY if arguments.tiny else GRID), end="")
    return 0


def main() -> int:
    arguments = _parsed()
    return table(arguments) if arguments.half == "table" else record(arguments)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Figures against what they claim to be.")
    halves = parser.add_subparsers(dest="half", required=True)
    recording = halves.add_parser("record", help="record the grid")
    recording.add_argument("out", type=Path, help="folder for the bundles")
    recording.add_argument("--points", nargs="+", metavar="NAME", help="names, or how they begin")
    recording.add_argument("--seconds", type=float, default=1e9, help="begin no point after this")
    recording.add_argument("--point-seconds", type=float, default=18.0, help="for one point, about")
    recording.add_argument("--device", default="cuda")
    reading = halves.add_parser("table", help="the tables, as Markdown")
    reading.add_argument("bundles", type=Path, nargs="+")
    reading.add_argument("--causes", type=Path, help="Markdown that goes below the summary")
    for half in (recording, reading):
        half.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
