"""The icicle as PNG: a browser on this machine draws the SVG."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from cb_trace.errors import CbTraceError
from cb_trace.parts import scratch_folder
from cb_trace.reporters.whole_file import write_whole

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SIZE = re.compile(r'width="(\d+)" height="(\d+)"')
_SECONDS = 60
_SCALE = 2  # sharp on a slide


def write(svg: str, target: Path) -> None:
    """Draw an SVG of :mod:`cb_trace.reporters.icicle_svg` into a file.

    :raises CbTraceError: there is no browser, or it draws nothing.
    """
    browser = find_browser()
    if browser is None:
        raise CbTraceError(
            "png needs Chromium or Chrome, which this machine does not have",
            hint="use --format svg",
        )
    with scratch_folder() as folder:
        page, picture = folder / "icicle.html", folder / "icicle.png"
        page.write_text(
            '<!doctype html><meta charset="utf-8">'
            f"<style>body{{margin:0}}svg{{display:block}}</style>{svg}",
            encoding="utf-8",
        )
        _screenshot(browser, page, picture, svg)
        if not picture.is_file():
            raise CbTraceError(f"{browser} drew nothing", hint="use --format svg")
        write_whole(target, picture.read_bytes())


def find_browser() -> str | None:
    """A Chromium or Chrome on the path."""
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


def _screenshot(browser: str, page: Path, picture: Path, svg: str) -> None:
    size = _SIZE.search(svg)
    width, height = size.groups() if size else ("1600", "900")
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={page.parent / 'browser'}",
        f"--window-size={width},{height}",
        f"--force-device-scale-factor={_SCALE}",
        f"--screenshot={picture}",
        page.as_uri(),
    ]
    if os.geteuid() == 0:  # Chromium's sandbox refuses root; the page is our own picture
        command.insert(1, "--no-sandbox")
    try:
        subprocess.run(command, check=False, capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CbTraceError(f"{browser} did not end", hint="use --format svg") from error
