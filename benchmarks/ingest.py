"""Time and peak memory of ingest beside other ways to read the same file, in one run.

Every measurement is a fresh process, start to exit, and the contenders take turns, so that a busy
machine slows all of them alike: read the ratios.

    python -m benchmarks.ingest                              # the whole table, and the targets
    python -m benchmarks.ingest TRACE.json.gz --repeats 3    # one trace
    python -m benchmarks.ingest generated:1000000 --without "HTA TraceAnalysis"
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Measured, measure
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
OWLV2 = "../shared/traces/public/h100_owlv2_eager.json.gz"
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One trace of the whole table: which contenders run how often."""

    trace: str
    repeats: int
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    once: tuple[str, ...] = ()  # too slow to repeat


@dataclass(frozen=True, slots=True)
class Target:
    """What the wall time of a contender, divided by ours, must reach; or our peak memory."""

    trace: str
    contender: str
    at_least: float = 0.0
    peak_mb: int = 0


SUITE = (
    Case(OWLV2, 5),
    Case("generated:100000", 5),
    Case("generated:1000000", 3, once=("HTA TraceAnalysis",)),
    Case("generated:5000000", 1, ("ingest", "load only", "HTA parser", "isal + msgspec")),
)
TARGETS = (
    Target(OWLV2, "HTA TraceAnalysis", 4),
    Target(OWLV2, "gzip + orjson", 1 / 2.5),
    Target("generated:1000000", "HTA TraceAnalysis", 20),
    Target("generated:1000000", "HTA parser", 5),
    Target("generated:1000000", "isal + msgspec", 1 / 2.5),
    Target("generated:1000000", "ingest", peak_mb=600),
    Target("generated:5000000", "HTA parser", 5),
    Target("generated:5000000", "ingest", peak_mb=1000),
)


# --- contenders -------------------------------------------------------------------------------


def load_only(file: str, out: str) -> None:
    """The trace stage alone, into a profile on disk."""
    from cb_trace import store
    from cb_trace.trace import load_trace

    with store.create(Path(out)) as draft:
        load_trace(
            draft.connection, Path(file), trace_id=0, run_id="run", role="foreign", path=file
        )


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


# --- measuring --------------------------------------------------------------------------------


def compare(file: Path, case: Case, folder: Path) -> dict[str, Measured]:
    """Measure the contenders in turn, as many rounds as the case says."""
    found = {name: Measured() for name in case.contenders}
    for number in range(case.repeats):
        for name in case.contenders:
            if number and name in case.once:
                continue
            out = folder / f"{number}.duckdb"
            code = CONTENDERS[name].format(file=str(file), out=str(out))
            found[name].add(*measure(code))
            out.unlink(missing_ok=True)
            print(f"  {name}: {found[name].wall[-1]:.2f} s", file=sys.stderr)
    return found


def run(case: Case, folder: Path) -> dict[str, Measured]:
    """Measure one trace, generated first where its name says so, and print its table."""
    print(f"{case.trace}", file=sys.stderr)
    file, kind = Path(case.trace).resolve(), case.trace.partition(":")
    if kind[0] == "generated":
        file = folder / "generated.json.gz"
        generate(file, int(kind[2]))
    found = compare(file, case, folder)
    print(
        f"\n{case.trace}, {case.repeats} rounds\n\n{table(found, case.contenders[0])}", flush=True
    )
    return found


def table(found: dict[str, Measured], base: str) -> str:
    """A Markdown table; the last column divides each wall time by the base's."""
    lines = [
        f"| | wall s | CPU s | peak MB | wall ÷ {base} |",
        "|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        lines.append(
            f"| {name} | {statistics.median(runs.wall):.2f} | {statistics.median(runs.cpu):.2f} "
            f"| {max(runs.peak) // _MB} | {runs.over(found[base]):.2f} |"
        )
    return "\n".join(lines)


# --- the whole table --------------------------------------------------------------------------


def suite(folder: Path) -> bool:
    """Run every case; print the tables, the cost by size, and the targets.

    :return: whether every target that could be measured is met.
    """
    results: dict[str, dict[str, Measured]] = {}
    for case in SUITE:
        if not case.trace.startswith("generated:") and not Path(case.trace).exists():
            print(f"skipped: no {case.trace}", file=sys.stderr)
            continue
        results[case.trace] = run(case, folder)
    print(f"\n{linearity(results)}")
    lines, met = targets(results)
    print(f"\n{lines}")
    return met


def linearity(results: dict[str, dict[str, Measured]]) -> str:
    """Cost an event at each size; linear is a line of like numbers."""
    lines = [
        "| events | wall s | µs an event | CPU µs an event | peak MB |",
        "|---|---|---|---|---|",
    ]
    for trace, found in results.items():
        if trace.startswith("generated:"):
            events, ours = int(trace.partition(":")[2]), found["ingest"]
            wall, cpu = statistics.median(ours.wall), statistics.median(ours.cpu)
            lines.append(
                f"| {events:,} | {wall:.2f} | {1e6 * wall / events:.1f} "
                f"| {1e6 * cpu / events:.1f} | {max(ours.peak) // _MB} |"
            )
    return "\n".join(lines)


def targets(results: dict[str, dict[str, Measured]]) -> tuple[str, bool]:
    """The targets beside what was measured."""
    lines, met = ["| trace | against | target | measured | |", "|---|---|---|---|---|"], True
    for target in TARGETS:
        found = results.get(target.trace, {})
        if "ingest" not in found or target.contender not in found:
            continue
        ours, theirs = found["ingest"], found[target.contender]
        if target.peak_mb:
            value, wanted = f"{max(ours.peak) // _MB} MB", f"≤ {target.peak_mb} MB"
            reached = max(ours.peak) <= target.peak_mb * _MB
        elif target.at_least < 1:
            ratio = 1 / theirs.over(ours)
            value, wanted = f"{ratio:.2f} ×", f"≤ {1 / target.at_least:.1f} × its time"
            reached = ratio <= 1 / target.at_least
        else:
            ratio = theirs.over(ours)
            value, wanted = f"{ratio:.1f} ×", f"≥ {target.at_least:.0f} × faster"
            reached = ratio >= target.at_least
        met = met and reached
        name = Path(target.trace).name
        lines.append(
            f"| {name} | {'memory' if target.peak_mb else target.contender} | {wanted} "
            f"| {value} | {'met' if reached else 'missed'} |"
        )
    return "\n".join(lines), met


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", nargs="?", help="a trace, or generated:EVENTS; default: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), default=[])
    parser.add_argument("--without", action="append", choices=list(CONTENDERS), default=[])
    given = parser.parse_args()
    # as an installation has it; where bytecode is not written, every run would compile our sources
    compileall.compile_dir("cb_trace", quiet=1)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} at the start", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if given.trace is None:
            sys.exit(0 if suite(Path(folder)) else 1)
        names = tuple(n for n in given.only or CONTENDERS if n not in given.without)
        run(Case(given.trace, given.repeats, names), Path(folder))


if __name__ == "__main__":
    main()
