"""Everything that needs a GPU, in one go: the tests marked gpu, and the sample recordings.

    python benchmarks/gpu_session.py OUT                 # both
    python benchmarks/gpu_session.py OUT --only tests    # or forward, modes, names of samples

Bundles are written to OUT as zips; a table of what was recorded is printed at the end and written
to OUT/table.md. Needs torch, pytest, hypothesis, click, rich; nothing is installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cb_trace.bundle import Manifest, Mode  # noqa: E402
from cb_trace.capture.options import Dtype, RecordOptions, StepPhase  # noqa: E402
from cb_trace.capture.output import bundle_at  # noqa: E402
from cb_trace.capture.record import record  # noqa: E402
from cb_trace.providers import Setting, load  # noqa: E402
from cb_trace.replay.knockout import KnockoutOptions  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One recording of ``sample_traces/``."""

    name: str
    provider: str
    preset: str
    settings: dict[str, Setting] = field(default_factory=dict)
    dtype: Dtype = "fp32"
    phase: StepPhase = "forward"
    mode: Mode = "eager"
    steps: int = 3
    profiled_calls: int = 2  # of every replay; more only makes the file larger
    replay_seconds: float = 25.0  # 0: no replay
    compare_plain: bool = True  # of compiled models
    knockout: int = 0  # so many modules are also taken out of the step

    @property
    def command(self) -> str:
        """The command line that records the same."""
        verb = "profile" if self.replay_seconds else "capture"
        settings = "".join(f" --set {key}={value}" for key, value in self.settings.items())
        how = "" if self.phase == "forward" else f" --phase {self.phase}"
        how += "" if self.mode == "eager" else f" --mode {self.mode}"
        how += f" --knockout=top:{self.knockout}" if self.knockout else ""
        return (
            f"cb-trace {verb} {self.provider} --preset {self.preset}{settings}{how}"
            f" --dtype {self.dtype} --steps {self.steps} -o {self.name}.zip"
        )


FORWARD = (
    Sample(
        name="nanogpt_gpt2_b8_s1024_bf16",
        provider="nanogpt",
        preset="gpt2",
        settings={"batch": 8, "seq": 1024},
        dtype="bf16",
        knockout=10,
    ),
    Sample(
        name="nanogpt_gpt2_b1_s64_bf16",
        provider="nanogpt",
        preset="gpt2",
        settings={"batch": 1, "seq": 64},
        dtype="bf16",
        knockout=10,
    ),
    Sample(name="deepfm_paper", provider="deepfm", preset="paper", knockout=10),
)
# Smaller ones: what counts is every phase and mode, and files that can be kept.
_MODELS: dict[str, tuple[str, dict[str, Setting], Dtype]] = {
    "nanogpt": ("gpt2", {"layers": 4, "batch": 8, "seq": 512}, "bf16"),
    "deepfm": ("paper", {"rows_min": 10_000, "rows_max": 100_000}, "fp32"),
}
_WAYS: tuple[tuple[StepPhase, Mode, float, bool], ...] = (
    ("train", "eager", 10.0, False),
    ("forward", "compile", 10.0, False),
    ("train", "compile", 0.0, True),
    ("forward", "cudagraph", 0.0, False),
    ("train", "cudagraph", 0.0, False),
    ("forward", "compile+cudagraph", 0.0, False),
)


def _mode_samples() -> Iterator[Sample]:
    for model, (preset, settings, dtype) in _MODELS.items():
        for phase, mode, replay_seconds, compare_plain in _WAYS:
            words = [model, phase, "" if mode == "eager" else mode.replace("+", "_")]
            yield Sample(
                name="_".join(word for word in words if word),
                provider=model,
                preset=preset,
                settings=settings,
                dtype=dtype,
                phase=phase,
                mode=mode,
                steps=2,
                profiled_calls=1,
                replay_seconds=replay_seconds if model == "nanogpt" else 0.0,  # else large files
                compare_plain=compare_plain,
            )


MODES = tuple(_mode_samples())
SAMPLES = (*FORWARD, *MODES)
GROUPS = {"record": SAMPLES, "forward": FORWARD, "modes": MODES}
HEADINGS = (
    *("name", "device", "torch", "clock MHz", "bare eager µs", "bare graph µs", "samples"),
    *("replays", "skipped", "seconds", "zip kB", "command"),
)


def main() -> int:
    arguments = _parsed()
    arguments.out.mkdir(parents=True, exist_ok=True)
    only, device = arguments.only or ["tests", "record"], arguments.device
    failed = 0
    if "tests" in only and device.startswith("cuda"):
        failed += run_tests()
    rows = []
    for sample in _chosen(only):
        try:
            rows.append(record_sample(sample, arguments.out, device))
        except Exception:  # whatever it was: the others may still do
            traceback.print_exc()
            failed += 1
    if rows:
        table = as_table(rows)
        (arguments.out / "table.md").write_text(table, encoding="utf-8")
        print(table)
    return 1 if failed else 0


def _chosen(only: list[str]) -> list[Sample]:
    named = [sample for sample in SAMPLES if sample.name in only]
    grouped = [sample for group in only for sample in GROUPS.get(group, ())]
    return list({sample.name: sample for sample in [*grouped, *named]}.values())


def run_tests() -> int:
    """The tests marked gpu; 1 if one failed."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    return int(subprocess.run(command, cwd=ROOT, check=False).returncode != 0)


def record_sample(sample: Sample, out: Path, device: str) -> tuple[str, ...]:
    """Record one sample and return its row of the table."""
    begin = time.perf_counter()
    target = out / f"{sample.name}.zip"
    workload = load(
        sample.provider, preset=sample.preset, settings=sample.settings, device=device, seed=0
    )
    options = RecordOptions(
        device=device,
        dtype=sample.dtype,
        steps=sample.steps,
        profiled_calls=sample.profiled_calls,
        phase=sample.phase,
        mode=sample.mode,
        replay=sample.replay_seconds > 0,
        replay_seconds=sample.replay_seconds,
        compare_plain=sample.compare_plain,
        bare_seconds=2.0 if sample in FORWARD else 0.7,
        knockout=_knockout(sample),
    )
    with bundle_at(target, force=True) as folder:
        manifest = record(workload, folder, options, provider=sample.provider, progress=_progress)
    return _row(sample, manifest, time.perf_counter() - begin, target)


def _knockout(sample: Sample) -> KnockoutOptions | None:
    return KnockoutOptions(top=sample.knockout, budget_seconds=12.0) if sample.knockout else None


def _row(sample: Sample, manifest: Manifest, seconds: float, target: Path) -> tuple[str, ...]:
    bare = {s.deployment: s.ns for s in manifest.step_samples if s.kind == "bare"}
    micro = {key: f"{median(ns) / 1000:.1f}" for key, ns in bare.items()}
    own = [r for r in manifest.replays if r.measured_id == r.replay_id]
    for note in manifest.notes:
        print(f"  note: {note.path or ''} {note.reason}: {note.detail} ×{note.count}")
    for reason in sorted({str(r.skipped) for r in own if r.skipped}):
        print(f"  skipped: {[r.path for r in own if r.skipped == reason][:5]} {reason}")
    return (
        sample.name,
        manifest.run.device_name,
        manifest.run.torch_version,
        str(manifest.run.sm_clock_mhz),
        micro.get("eager", "none"),
        micro.get("graph", "none"),
        str(max(map(len, bare.values()))),
        str(sum(bool(r.samples_ns) for r in own)),
        str(sum(bool(r.skipped) for r in own)),
        f"{seconds:.1f}",
        f"{target.stat().st_size / 1000:.0f}",
        f"`{sample.command}`",
    )


def as_table(rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the GPU tests and record the samples.")
    names = ["tests", *GROUPS, *(sample.name for sample in SAMPLES)]
    parser.add_argument("out", type=Path, help="folder for the bundles")
    parser.add_argument("--only", nargs="+", choices=names, help="tests, groups or single samples")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
