"""How long the report of 10,000 modules takes to draw: in a browser, fresh each time.

    python -m benchmarks.report_page                      # a page of its own
    python -m benchmarks.report_page report.html --loads 20

Wall is from the first line of the script to the last element of what is in sight (what the page
notes itself); script is the processor time of everything the page ran, both in ms. On a busy
machine read script: wall counts what others took.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from tests.web.browser import Browser, find_browser
from tests.web.conftest import write_report
from tests.web.test_size import MODULES, bare_profile

WITHIN_MS = 100


def load(browser: Browser, address: str) -> tuple[float, float]:
    """Wall and processor time of one load."""
    page = browser.open("about:blank", ready="true")
    page.call("Performance.enable", timeDomain="threadTicks")
    page.go(address)
    metrics = {m["name"]: m["value"] for m in page.call("Performance.getMetrics")["metrics"]}
    wall = float(page.ask("document.documentElement.dataset.drawnMs"))
    page.close()
    return wall, 1000 * metrics["ScriptDuration"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("--loads", type=int, default=10)
    given = parser.parse_args()
    program = find_browser()
    if program is None:
        raise SystemExit("no Chromium on this machine")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = Path(folder, "large.duckdb")
        address = (
            given.page.resolve().as_uri()
            if given.page
            else write_report(bare_profile(own, MODULES))
        )
        browser = Browser(program, Path(folder, "browser"))
        times = [load(browser, address) for _ in range(given.loads)]
        browser.close()
    for name, values in zip(("wall", "script"), zip(*times, strict=True), strict=True):
        print(f"{name}: least {min(values):.0f} ms, median {statistics.median(values):.0f} ms")
    print(f"within {WITHIN_MS} ms: {min(times)[0] < WITHIN_MS}")


if __name__ == "__main__":
    main()
