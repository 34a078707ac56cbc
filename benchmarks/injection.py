"""Inject one cause of error at a time, and see whether its own term moves by it and no other does.

    python benchmarks/injection.py record OUT      # on a GPU; needs torch and nothing that reads
    python benchmarks/injection.py check OUT       # anywhere; exit status 1 where a term is wrong

``record`` writes OUT/NAME_baseline.zip and OUT/NAME_injected.zip of every injection; ``check``
prints what was expected beside what was found.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

NAMES = ("nothing", "copy", "spin", "cache", "fusion", "kernel_choice", "gemv")
VERSIONS = ("baseline", "injected")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("half", choices=["record", "check"])
    parser.add_argument("out", type=Path, help="folder of the recordings")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="some injections")
    parser.add_argument("--device", default="cuda", help="to record on")
    arguments = parser.parse_args()
    names = [name for name in NAMES if not arguments.only or name in arguments.only]
    if arguments.half == "check":
        from benchmarks.injection_check import check

        return check(arguments.out, names)
    arguments.out.mkdir(parents=True, exist_ok=True)
    return record_all(arguments.out, names, arguments.device)


def record_all(out: Path, names: list[str], device: str) -> int:
    """Record both versions of each; 1 where one could not be."""
    failed, begin = 0, time.perf_counter()
    for name in names:
        for version in VERSIONS:
            try:
                record_one(out, name, version, device)
            except Exception:  # whatever it was: the others may still do
                traceback.print_exc()
                failed += 1
            print(f"{time.perf_counter() - begin:6.1f} s  {name} {version}", flush=True)
    return 1 if failed else 0


def record_one(out: Path, name: str, version: str, device_name: str) -> Path:
    """Record one version into ``out``."""
    import torch

    from benchmarks.injection_models import INJECTIONS, Place
    from cb_trace.capture.options import RecordOptions, device_of
    from cb_trace.capture.output import bundle_at
    from cb_trace.capture.record import record

    device = device_of(device_name)
    torch.manual_seed(0)
    made = INJECTIONS[name](Place(device), version)
    options = RecordOptions(
        device=str(device), mode=made.mode, steps=8, profiled_calls=8, bare_seconds=0.3,
        # The time of a module compiled alone includes the compiler's.
        replay_seconds=20.0 if made.mode == "compile" else 2.0, compare_plain=False,
    )  # fmt: skip
    target = out / f"{name}_{version}.zip"
    with made.around(), bundle_at(target, force=True) as folder:
        record(made.workload(f"{name}_{version}"), folder, options)
    del made
    gc.collect()  # gigabytes that the next one needs
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return target


if __name__ == "__main__":
    sys.exit(main())
