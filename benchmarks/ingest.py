"""Time and peak memory of ingest beside other ways to read the same file, in one run.

Every measurement is a fresh process, start to exit, and the contenders take turns, so that a busy
machine slows all of them alike: read the ratios.

    python -m benchmarks.ingest ../shared/traces/public/h100_owlv2_eager.json.gz --repeats 3
    python -m benchmarks.ingest generated:1000000 --repeats 3
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.trace_generator import generate

# What each process runs; {file} is the trace and {out} a profile that does not exist yet.
CONTENDERS = {
    "ingest": (
        "import sys; sys.argv = ['cb-trace', 'ingest', {file!r}, '-o', {out!r}];"
        "from cb_trace.cli import main; main()"
    ),
    "load only": "from benchmarks.ingest import load_only; load_only({file!r}, {out!r})",
    "HTA TraceAnalysis": (
        "from hta.trace_analysis import TraceAnalysis; TraceAnalysis(trace_files={{0: {file!r}}})"
    ),
    "HTA parser": (
        "from hta.common.trace_parser import parse_trace_dataframe as parse;"
        "from hta.configs.parser_config import ParserConfig;"
        "parse({file!r}, ParserConfig.get_default_cfg())"
    ),
    "gzip + orjson": "import gzip, orjson; orjson.loads(gzip.open({file!r}).read())",
    "isal + msgspec": "from benchmarks.ingest import typed_decode; typed_decode({file!r})",
}
_MB = 1 << 20


@dataclass(slots=True)
class Measured:
    """Wall seconds, CPU seconds and peak bytes of the runs of one contender."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)

    def add(self, wall: float, cpu: float, peak: int) -> None:
        self.wall.append(wall)
        self.cpu.append(cpu)
        self.peak.append(peak)


def load_only(file: str, out: str) -> None:
    """The trace stage alone, into a profile on disk."""
    import duckdb

    from cb_trace.columns import TABLES
    from cb_trace.trace import load_trace

    with duckdb.connect(out) as connection:
        for table, schema in TABLES.items():
            columns = ", ".join(f'"{name}" {kind}' for name, kind in schema.items())
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
        load_trace(connection, Path(file), trace_id=0, run_id="run", role="foreign", path=file)


def typed_decode(file: str) -> None:
    """The fastest complete decode we know: typed structs of the fields that we keep."""
    import gc

    import msgspec
    from isal import igzip

    names = {
        "correlation": "correlation", "device": "device", "stream": "stream", "grid": "grid",
        "block": "block", "bytes": "bytes", "external_id": "External id",
        "sequence_number": "Sequence number", "forward_thread": "Fwd thread id",
        "python_id": "Python id", "python_parent_id": "Python parent id",
        "registers": "registers per thread", "shared_memory": "shared memory",
        "graph_id": "graph id", "graph_node_id": "graph node id",
    }  # fmt: skip
    anything = object
    args = msgspec.defstruct("Args", [(name, anything, None) for name in names], rename=names)
    event = msgspec.defstruct(
        "Event",
        [("ph", str), *((name, anything, None) for name in ("cat", "name", "pid", "tid")),
         ("ts", anything, None), ("dur", anything, None), ("args", args | None, None)],
    )  # fmt: skip
    document = msgspec.defstruct("Document", [("traceEvents", list[event])])  # type: ignore[valid-type]
    gc.disable()
    with igzip.open(file) as stream:  # type: ignore[no-untyped-call]
        msgspec.json.Decoder(document).decode(stream.read())


def measure(code: str) -> tuple[float, float, int]:
    """Run code in a process of its own: wall and CPU seconds, peak memory."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=stderr
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        stderr.seek(0)
        said = stderr.read().decode(errors="replace")
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed ({process.returncode}): {code}\n{said[-2000:]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def compare(file: Path, contenders: list[str], repeats: int, folder: Path) -> dict[str, Measured]:
    """Measure the contenders in turn, ``repeats`` rounds."""
    found = {name: Measured() for name in contenders}
    for number in range(repeats):
        for name in contenders:
            out = folder / f"{number}.duckdb"
            code = CONTENDERS[name].format(file=str(file), out=str(out))
            found[name].add(*measure(code))
            out.unlink(missing_ok=True)
            print(f"  {name}: {found[name].wall[-1]:.2f} s", file=sys.stderr)
    return found


def table(found: dict[str, Measured], base: str) -> str:
    """A Markdown table; the last column divides each wall time by the base's."""
    lines = [
        "| | wall s | CPU s | peak MB | wall ÷ ingest |",
        "|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        ratio = statistics.median(
            other / own for other, own in zip(runs.wall, found[base].wall, strict=True)
        )
        lines.append(
            f"| {name} | {statistics.median(runs.wall):.2f} | {statistics.median(runs.cpu):.2f} "
            f"| {max(runs.peak) // _MB} | {ratio:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", help="a trace, or generated:EVENTS")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), default=[])
    parser.add_argument("--without", action="append", choices=list(CONTENDERS), default=[])
    given = parser.parse_args()
    names = [n for n in given.only or CONTENDERS if n not in given.without]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(given.trace).resolve()
        if given.trace.startswith("generated:"):
            file = Path(folder) / "generated.json.gz"
            generate(file, int(given.trace.partition(":")[2]))
        found = compare(file, names, given.repeats, Path(folder))
    print(f"\n{given.trace}, {given.repeats} rounds\n\n{table(found, names[0])}")


if __name__ == "__main__":
    main()
