"""Run a command in a process of its own: its time, its CPU time, the memory of its whole tree."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_PERIOD_S = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Measured:
    """Wall seconds, CPU seconds and peak bytes, one of each a run."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)

    def add(self, wall: float, cpu: float, peak: int) -> None:
        self.wall.append(wall)
        self.cpu.append(cpu)
        self.peak.append(peak)

    def over(self, other: Measured) -> float:
        """Median ratio of the wall times, run by run: a run is beside its neighbour in time."""
        pairs = zip(self.wall, other.wall, strict=False)
        return statistics.median(own / theirs for own, theirs in pairs)


def measure(code: str) -> tuple[float, float, int]:
    """Run Python code to its end: wall and CPU seconds, peak memory of the process tree.

    :raises SystemExit: it failed.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=stderr
        )
        peak: list[int] = [0]
        done = threading.Event()
        watch = threading.Thread(target=_watch, args=(process.pid, done, peak))
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        done.set()
        watch.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        said = stderr.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"failed ({process.returncode}): {code}\n{said[-2000:]}")
    # the kernel's own maximum of the largest process; the samples add the processes beside it
    return wall, usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss * 1024, peak[0])


def _watch(pid: int, done: threading.Event, peak: list[int]) -> None:
    while not done.wait(_PERIOD_S):
        peak[0] = max(peak[0], sum(map(_resident, _tree(pid))))


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it (Linux)."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0
