"""Whether a recording that is made again says the same, and whether isolation is to be believed.

    python benchmarks/repeatability.py OUT --times 5 -- nanogpt --preset gpt2 --dtype bf16
    python benchmarks/repeatability.py OUT --times 0     # read what is there

Every recording is a process of its own (``cb-trace profile … -o OUT/N.zip``); those that exist
already are not made again. Printed are: how long each took, how far modules of more than 1 % of
the step differ between recordings, alone and in the step; kernel time of large matrix products
alone against in the step; how often the step's kernel time of a small module lies between hot and
cold. Small is what fits the last-level cache: of what does not, hot is cold. Needs torch, click and
rich to record, and nothing to read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cb_trace.bundle import (  # noqa: E402
    Bundle,
    Manifest,
    open_bundle,
    readable,
)
from cb_trace.range_names import REPLAY_PREFIX  # noqa: E402
from cb_trace.replay.likes import calls_seen  # noqa: E402

SHARE = 0.01  # of the step: smaller modules are not judged
LARGE_NS = 30_000  # of a matrix product; smaller ones feel the cache
MATRIX = ("Linear", "LMHead")

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernel time of one module's call, ns: in the step, and over profiled calls alone."""

    path: str
    class_name: str
    holds_others: bool
    fits: bool  # what crosses its border is no more than the last-level cache
    step: float
    hot: list[int]
    cold: list[int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recording: its figures by module, ns per step."""

    seconds: float | None
    bare: Figures  # by deployment
    alone: dict[str, Figures]  # condition → module → wall
    inside: Figures  # module → kernels in the step
    kernels: list[Kernels]


def main() -> None:
    """Record what is missing, and print."""
    given = _arguments()
    given.folder.mkdir(parents=True, exist_ok=True)
    for number in range(given.times):
        _record(given.folder, number, given.profile)
    files = sorted(given.folder.glob("*.zip"), key=lambda f: f.name)
    found = [_read(file) for file in files]
    for line in report(found):
        print(line)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=5)
    parser.epilog = "What follows -- are arguments of 'cb-trace profile'."
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:cut])
    given.profile = words[cut + 1 :]
    return given


def _record(folder: Path, number: int, arguments: Sequence[str]) -> None:
    target = folder / f"{number:02}.zip"
    if target.exists():
        return
    begin = time.monotonic()
    command = [sys.executable, "-m", "cb_trace", "profile", *arguments, "-o", str(target)]
    subprocess.run(command, cwd=ROOT, check=True)
    seconds = time.monotonic() - begin
    target.with_suffix(".seconds").write_text(f"{seconds:.1f}\n")
    print(f"{target.name}: {seconds:.1f} s", flush=True)


# --- reading ------------------------------------------------------------------------------------


def _read(file: Path) -> Recorded:
    bundle = open_bundle(file)
    manifest = bundle.manifest
    took = file.with_suffix(".seconds")
    kernels = list(_kernels(bundle))
    return Recorded(
        seconds=float(took.read_text()) if took.exists() else None,
        bare={s.deployment: median(s.ns) for s in manifest.step_samples if s.kind == "bare"},
        alone={c: _alone(manifest, c) for c in ("hot", "cold", "graph")},
        inside={k.path: k.step for k in kernels},
        kernels=kernels,
    )


def _alone(manifest: Manifest, condition: str) -> Figures:
    """Bare wall a step of every module whose calls were all measured."""
    medians = {r.replay_id: median(r.samples_ns) for r in manifest.replays if r.samples_ns}
    found: Figures = {}
    for record in manifest.replays:
        if record.condition == condition and record.measured_id in medians:
            name = record.path if record.phase == "forward" else f"{record.path} ({record.phase})"
            found[name] = found.get(name, 0.0) + medians[record.measured_id] * record.calls
    return found


def _kernels(bundle: Bundle) -> Iterator[Kernels]:
    """Every forward call that was profiled alone, beside the same call in the step."""
    manifest = bundle.manifest
    with readable(bundle.trace_file(_trace(manifest, "context"))) as file:
        seen, _ = calls_seen(file, frozenset(m.path for m in manifest.modules))
    alone: dict[int, list[int]] = {}
    for trace in manifest.traces:
        if trace.role == "isolated":
            with readable(bundle.trace_file(trace)) as file:
                alone |= replayed(json.loads(gzip.decompress(file.read_bytes()))["traceEvents"])
    classes = {m.path: m.class_name for m in manifest.modules}
    parents = {m.parent for m in manifest.modules}
    cache = manifest.run.l2_bytes or 0
    crosses: dict[str, int] = {}
    for cost in manifest.costs:
        if cost.phase == "forward":
            crosses[cost.path] = max(crosses.get(cost.path, 0), cost.bytes_compulsory)
    by_call: dict[tuple[str, int], dict[str, list[int]]] = {}
    for record in manifest.replays:
        if record.phase == "forward" and record.measured_id in alone:
            call = by_call.setdefault((record.path, record.call_index), {})
            call[record.condition] = alone[record.measured_id]
    for (path, index), sides in by_call.items():
        inside = seen.get((path, index))
        if inside and inside.ns and {"hot", "cold"} <= set(sides) and min(sides["hot"]):
            holds, fits = path in parents, crosses.get(path, 0) <= cache
            step = median(inside.ns)
            yield Kernels(path, classes[path], holds, fits, step, sides["hot"], sides["cold"])


def replayed(events: Sequence[dict[str, Any]]) -> dict[int, list[int]]:
    """Kernel sums of each profiled call of every replay, by its id, from an isolated trace."""
    kernels = {
        e["args"]["correlation"]: round(e["dur"] * 1e3)
        for e in events
        if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}
    }
    launches = sorted(
        (e["ts"], kernels.get(e.get("args", {}).get("correlation"), 0))
        for e in events
        if e.get("cat") in {"cuda_runtime", "cuda_driver"}
    )
    begins = [ts for ts, _ in launches]
    found: dict[int, list[int]] = {}
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "user_annotation" and name.startswith(REPLAY_PREFIX):
            low = bisect_left(begins, event["ts"])
            high = bisect_left(begins, event["ts"] + event["dur"])
            total = sum(ns for _, ns in launches[low:high])
            found.setdefault(int(name.split(":")[1]), []).append(total)
    return found


def _trace(manifest: Manifest, role: str) -> Any:
    return next(trace for trace in manifest.traces if trace.role == role)


# --- printing -----------------------------------------------------------------------------------


def report(found: Sequence[Recorded]) -> Iterator[str]:
    """The lines."""
    yield f"{len(found)} recordings"
    seconds = [one.seconds for one in found if one.seconds is not None]
    if seconds:
        yield f"whole recording: {min(seconds):.0f} to {max(seconds):.0f} s"
    for deployment in found[0].bare if found else ():
        values = [one.bare[deployment] for one in found if deployment in one.bare]
        middle = f"{median(values) / 1e3:,.1f} µs"
        yield f"bare step, {deployment}: {middle}, {_spread(values):.2%} apart"
    for condition in ("hot", "cold", "graph"):
        yield from _agreement(f"alone, {condition}", [o.alone[condition] for o in found], found)
    yield from _agreement("kernels in the step", [one.inside for one in found], found)
    yield from _products(found)
    yield from _bracket(found)


def _agreement(what: str, figures: Sequence[Figures], found: Sequence[Recorded]) -> Iterator[str]:
    """How far apart the recordings are, largest less smallest over median, module by module."""
    if len(figures) < 2:
        return
    step = min(min(one.bare.values()) for one in found)
    common = set.intersection(*(set(one) for one in figures))
    apart = {
        name: _spread([one[name] for one in figures])
        for name in common
        if median(one[name] for one in figures) >= SHARE * step
    }
    if apart:
        worst = max(apart, key=lambda name: apart[name])
        yield (
            f"{what}: {len(apart)} modules above {SHARE:.0%} of the step, median "
            f"{median(apart.values()):.2%} apart, worst {apart[worst]:.2%} ({worst or 'the root'})"
        )


def _products(found: Sequence[Recorded]) -> Iterator[str]:
    """Large matrix products: kernels alone, hot, over kernels in the step."""
    ratios = {
        (number, k.path): median(k.hot) / k.step - 1
        for number, one in enumerate(found)
        for k in one.kernels
        if k.class_name in MATRIX and k.step >= LARGE_NS
    }
    if ratios:
        worst = max(ratios, key=lambda key: abs(ratios[key]))
        within = sum(abs(ratio) <= 0.03 for ratio in ratios.values())
        yield (
            f"matrix products above {LARGE_NS / 1e3:.0f} µs: kernels alone within 3 % of those in "
            f"the step for {within} of {len(ratios)}, median {median(ratios.values()):+.2%}, worst "
            f"{ratios[worst]:+.2%} ({worst[1]})"
        )


def _bracket(found: Sequence[Recorded]) -> Iterator[str]:
    """Modules that hold no other and are no large product, by whether the cache matters to them."""
    others = [
        k
        for one in found
        for k in one.kernels
        if not k.holds_others and not (k.class_name in MATRIX and k.step >= LARGE_NS)
    ]
    large = [k for k in others if not k.fits]
    for what, some in (("small", [k for k in others if k.fits]), ("larger than the cache", large)):
        if some:
            yield from _between(what, some)


def _between(what: str, small: Sequence[Kernels]) -> Iterator[str]:
    medians = sum(median(k.hot) <= k.step <= median(k.cold) for k in small)
    calls = sum(min(k.hot) <= k.step <= max(k.cold) for k in small)
    near = sum(min(k.hot) * 0.97 <= k.step <= max(k.cold) * 1.03 for k in small)
    yield (
        f"{what} modules: the step lies between hot and cold for {calls / len(small):.0%} of "
        f"{len(small)} ({medians / len(small):.0%} between the medians, {near / len(small):.0%} "
        "within 3 %)"
    )
    outside = sorted(
        {k.path: k for k in small if not min(k.hot) <= k.step <= max(k.cold)}.values(),
        key=lambda k: -k.step,
    )
    for k in outside[:8]:
        yield (
            f"  {k.path}: {median(k.hot) / 1e3:.1f} hot, {k.step / 1e3:.1f} in the step, "
            f"{median(k.cold) / 1e3:.1f} cold, µs"
        )


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


if __name__ == "__main__":
    main()
