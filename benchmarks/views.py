"""How long each public view of a profile takes to answer, and `cb-trace compare` on it.

    cb-trace ingest big.json.gz -o big.duckdb
    python -m benchmarks.views big.duckdb

Every view is read whole, `compare` also as the command reads it, and the command once more as a
process, start to exit. Each repeat opens the profile anew: its first answer counts.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 0.3


def views(profile: Path) -> list[str]:
    """The public views: those without an underscore in front."""
    from cb_trace.store import open_profile

    query = "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY view_name"
    with open_profile(profile) as connection:
        return [name for (name,) in connection.execute(query).fetchall() if name[0] != "_"]


def read_view(profile: Path, view: str) -> int:
    from cb_trace.store import open_profile

    with open_profile(profile) as connection:
        begin = time.perf_counter_ns()
        connection.execute(f'SELECT * FROM "{view}"').fetchall()
        return time.perf_counter_ns() - begin


def read_command(profile: Path) -> int:
    """What the command does once it runs: its queries and its table."""
    from rich.console import Console

    from cb_trace.reporters import table
    from cb_trace.reporters.comparison import Selection, read_comparison
    from cb_trace.store import open_profile

    with Path("/dev/null").open("w") as nowhere, open_profile(profile) as connection:
        begin = time.perf_counter_ns()
        comparison = read_comparison(connection, Selection())
        table.print_comparison(comparison, Console(file=nowhere, width=4000))
        return time.perf_counter_ns() - begin


def run_command(profile: Path) -> int:
    begin = time.perf_counter_ns()
    command = [sys.executable, "-m", "cb_trace", "compare", str(profile)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter_ns() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profile", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    timed: dict[str, Callable[[], int]] = {
        f"view {view}": lambda view=view: read_view(given.profile, view)  # type: ignore[misc]
        for view in views(given.profile)
    }
    timed["compare, queries and table"] = lambda: read_command(given.profile)
    timed["compare, whole process"] = lambda: run_command(given.profile)
    print("| | median s | least s |\n|---|---|---|")
    for name, measure in timed.items():
        seconds = [measure() / 1e9 for _ in range(given.repeats)]
        late = " **over**" if statistics.median(seconds) > LIMIT_S and "process" not in name else ""
        print(f"| {name} | {statistics.median(seconds):.3f}{late} | {min(seconds):.3f} |")


if __name__ == "__main__":
    main()
