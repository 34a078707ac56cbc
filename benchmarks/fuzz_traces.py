"""Feed broken traces to the loader: each loads with its invariants whole, or fails in one line.

Every mutant follows from its number alone. In CI 2,000 run (tests/trace/test_fuzz.py); more by

    python -m benchmarks.fuzz_traces --mutants 50000 --first 0
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from cb_trace.columns import TABLES
from cb_trace.errors import CbTraceError
from cb_trace.trace import load_trace

Event = dict[str, Any]

ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**63, -(2**63), 2**64, 10**400, 1e308, "", "7", "x", "0x1f",
    "1700000000000000.123", [], [1], {}, {"a": {"b": [1]}}, "\u0000", "\ud800", "a" * 5000,
)  # fmt: skip
KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id")
ARGS = (
    "correlation", "External id", "stream", "device", "grid", "Python id", "Python parent id",
    "graph node id", "bytes", "registers per thread", "Sequence number", "name",
)  # fmt: skip
SPLICES = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\0", b"\xff", b"inf", b"NaN",
    b'"traceEvents": [', b"]}{", b'}, {"ph": "X"', b"\x1f\x8b\x08", b"\\u", b"1e999", b"-",
)  # fmt: skip
_BATCH = 40

# Rows that break what must hold of every load, by what they break.
VIOLATIONS = """
SELECT 'negative duration' WHERE EXISTS (FROM kernel WHERE dur_ns < 0 OR dur_ns IS NULL)
  OR EXISTS (FROM op WHERE dur_ns < 0) OR EXISTS (FROM launch WHERE dur_ns < 0)
UNION ALL SELECT 'no start' WHERE EXISTS (FROM kernel WHERE start_ns IS NULL)
  OR EXISTS (FROM op WHERE start_ns IS NULL)
UNION ALL SELECT 'kernel id twice'
  WHERE (SELECT count(*) <> count(DISTINCT kernel_id) FROM kernel)
UNION ALL SELECT 'op id twice' WHERE (SELECT count(*) <> count(DISTINCT op_id) FROM op)
UNION ALL SELECT 'thread twice' WHERE (SELECT count(*) <> count(DISTINCT thread) FROM thread)
UNION ALL SELECT 'no such launch'
  WHERE EXISTS (FROM kernel ANTI JOIN launch USING (launch_id) WHERE launch_id IS NOT NULL)
UNION ALL SELECT 'no such op'
  WHERE EXISTS (FROM launch ANTI JOIN op USING (op_id) WHERE op_id IS NOT NULL)
UNION ALL SELECT 'no such thread' WHERE EXISTS (FROM kernel ANTI JOIN thread USING (thread))
  OR EXISTS (FROM op ANTI JOIN thread USING (thread))
UNION ALL SELECT 'no such step'
  WHERE EXISTS (FROM kernel ANTI JOIN step USING (trace_id, step) WHERE step IS NOT NULL)
UNION ALL SELECT 'launch of another id'
  WHERE EXISTS (FROM kernel k JOIN launch l USING (launch_id) WHERE k.correlation <> l.correlation)
UNION ALL SELECT 'launch outside its operator'
  WHERE EXISTS (FROM launch l JOIN op o USING (op_id)
    WHERE l.start_ns NOT BETWEEN o.start_ns AND o.start_ns + o.dur_ns OR l.thread <> o.thread)
UNION ALL SELECT 'unlinked kernels miscounted' WHERE (
  SELECT sum(kernels_without_launch) FROM trace
) <> (SELECT count(*) FROM kernel WHERE launch_id IS NULL)
UNION ALL SELECT 'empty drop' WHERE EXISTS (FROM "drop" WHERE events < 0 OR ns < 0)
UNION ALL SELECT 'staging left' WHERE EXISTS (FROM duckdb_tables() WHERE temporary)
"""


# --- the traces to break ----------------------------------------------------------------------


def base_trace(old: bool) -> dict[str, Any]:
    """A small trace with everything in it; ``old`` spells it as in 2021."""
    events: list[Event] = [
        {"name": "process_name", "ph": "M", "ts": 1, "pid": 9, "tid": 0, "args": {"name": "python"}}
    ]
    cats = ("Operator", "Runtime", "Kernel") if old else ("cpu_op", "cuda_runtime", "kernel")
    origin = 1_623_212_388_426_602 if old else 5_126_667_474_542.782
    external = "external id" if old else "External id"

    def add(cat: str, name: str, at: float, dur: float, **args: Any) -> None:
        pid, tid = (0, 7) if "stream" in args else (9, 9)
        ts = origin + (int(at) if old else at)
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts,
                       "dur": int(dur) if old else dur, "args": args})  # fmt: skip

    for step in range(2):
        at = 200.5 * step
        add("Operator" if old else "user_annotation", f"ProfilerStep#{step}", at, 190)
        if not old:
            ids = {"Python id": 2 * step + 1, "Python parent id": None}
            add("python_function", "nn.Module: Net_0", at + 1, 150, **ids)
            ids = {"Python id": 2 * step + 2, "Python parent id": 2 * step + 1}
            add("python_function", "nn.Module: Linear_0", at + 2, 100, **ids)
        for call in range(2):
            number = 10 * step + call + 1
            add(cats[0], "aten::mm", at + 10 + 40 * call, 30, **{external: number})
            add(cats[1], "cudaLaunchKernel", at + 20 + 40 * call, 5, correlation=number)
            add(cats[2], "gemm<float>", at + 60 + 40 * call, 33.25, stream=7, device=0,
                correlation=number, grid=[1, 2, 3], **{external: number})  # fmt: skip
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events, "traceName": "t"}


# --- mutations --------------------------------------------------------------------------------


def mutate_events(chance: random.Random, document: dict[str, Any]) -> None:
    """Duplicate, reorder, remove, or change the type of something in an event."""
    events: list[Any] = document["traceEvents"]
    at = chance.randrange(len(events))
    action = chance.randrange(6)
    if action == 0:
        events.insert(chance.randrange(len(events)), json.loads(json.dumps(events[at])))
    elif action == 1:
        chance.shuffle(events)
    elif action == 2:
        del events[at]
        events.append({"ph": "X", "name": "x", "ts": 0, "dur": 1, "cat": "kernel"})
    elif action == 3:
        events[at] = chance.choice(ODD_VALUES)
    elif isinstance(event := events[at], dict):
        target = event.get("args") if action == 5 else event
        if isinstance(target, dict):
            target[chance.choice(ARGS if action == 5 else KEYS)] = chance.choice(ODD_VALUES)


def mutate_bytes(chance: random.Random, data: bytearray) -> None:
    """Flip, cut, splice or repeat bytes."""
    at = chance.randrange(len(data) + 1)
    action = chance.randrange(5)
    if action == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif action == 1:
        del data[at:]
    elif action == 2:
        del data[at : at + chance.randrange(1, 80)]
    elif action == 3:
        data[at:at] = chance.choice(SPLICES)
    else:
        start = chance.randrange(len(data) + 1)
        data[at:at] = data[start : start + chance.randrange(1, 400)]


def mutant(number: int) -> bytes:
    """The bytes of one broken trace."""
    chance = random.Random(number)
    document = base_trace(old=chance.random() < 0.3)
    for _ in range(chance.choice((0, 0, 1, 2, 4))):
        mutate_events(chance, document)
    indent = chance.choice((None, 2))
    text = json.dumps(document, indent=indent).encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        text = text[text.index(b"[", text.index(b"traceEvents")) : text.rindex(b"]") + 1]
    data = bytearray(text)
    packed = chance.random() < 0.25
    if packed and chance.random() < 0.7:
        data = bytearray(gzip.compress(bytes(data), 1, mtime=0))
    for _ in range(chance.choice((0, 1, 1, 2, 5)) if indent is None else 1):
        if data:
            mutate_bytes(chance, data)
    return bytes(data)


# --- running ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What became of a range of mutants."""

    loaded: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)


def empty_profile() -> duckdb.DuckDBPyConnection:
    # a trace of one block has no use for a second thread, which costs a fifth of the time
    connection = duckdb.connect(config={"threads": 1})
    # planning is most of the time of a load this small; plans as written give the same rows
    connection.execute("PRAGMA disable_optimizer")
    connection.execute("; ".join(_table(*named) for named in TABLES.items()))
    return connection


def _table(name: str, schema: Mapping[str, str]) -> str:
    columns = ", ".join(f'"{column}" {kind}' for column, kind in schema.items())
    return f'CREATE TABLE "{name}" ({columns})'


def run(numbers: range) -> Outcome:
    """Load the mutants of a range, many into one profile, and check what must hold."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mutant.json"
        for batch in _batches(numbers):
            connection = empty_profile()
            for number in batch:
                file.write_bytes(mutant(number))
                begin = time.perf_counter()
                if not _load(connection, file, number, outcome):
                    connection = empty_profile()
                outcome.slowest = max(outcome.slowest, (time.perf_counter() - begin, number))
            broken = connection.execute(VIOLATIONS).fetchall()
            outcome.failures += [f"mutants {batch.start}-{batch.stop - 1}: {w}" for (w,) in broken]
    return outcome


def _load(connection: Any, file: Path, number: int, outcome: Outcome) -> bool:
    """Load one mutant; False where the profile must be thrown away."""
    try:
        load_trace(connection, file, trace_id=number, run_id="fuzz", role="foreign", path=file.name)
    except CbTraceError as error:
        words = error.message.replace(str(file), "").replace(file.name, "").split()
        outcome.refused[" ".join(words[:5])] += 1
        if "\n" in error.message or len(error.message) > 400:
            outcome.failures.append(f"mutant {number}: not one short line: {error.message[:500]}")
    except Exception as error:
        outcome.failures.append(f"mutant {number}: {type(error).__name__}: {str(error)[:300]}")
    else:
        outcome.loaded += 1
        return True
    return False


def _batches(numbers: range) -> Iterator[range]:
    for start in range(numbers.start, numbers.stop, _BATCH):
        yield range(start, min(start + _BATCH, numbers.stop))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    stop = given.first + given.mutants
    parts = [range(at, min(at + 400, stop)) for at in range(given.first, stop, 400)]
    total = Outcome()
    with ProcessPoolExecutor(given.jobs) as pool:
        for part, outcome in zip(parts, pool.map(run, parts), strict=True):
            total.loaded += outcome.loaded
            total.refused += outcome.refused
            total.failures += outcome.failures
            total.slowest = max(total.slowest, outcome.slowest)
            print(*outcome.failures, sep="\n", end="\n" if outcome.failures else "")
            print(f"up to {part.stop - 1}: {len(total.failures)} failed", file=sys.stderr)
    print(f"{total.loaded} loaded, {total.refused.total()} refused, {len(total.failures)} failed")
    print(f"slowest {total.slowest[0]:.2f} s, mutant {total.slowest[1]}")
    for reason, count in total.refused.most_common():
        print(f"{count:8} {reason}")
    sys.exit(1 if total.failures else 0)


if __name__ == "__main__":
    main()
