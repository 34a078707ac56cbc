"""axe-core finds nothing to complain about, light and dark."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.web.browser import Browser

_PACKAGE = "axe_playwright_python"  # carries a recent axe; it is not imported


def find_axe() -> Path | None:
    """``axe.min.js``: named by CB_TRACE_AXE, else out of a package that carries it."""
    places = [Path(named)] if (named := os.environ.get("CB_TRACE_AXE")) else []
    spec = find_spec(_PACKAGE)
    places += (
        [Path(p, "axe.min.js") for p in (spec.submodule_search_locations or [])] if spec else []
    )
    return next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("dark", [False, True])
def test_axe_is_content(browser: Browser, report: str, *, dark: bool) -> None:
    axe = find_axe()
    if axe is None:
        pytest.skip("no axe-core on this machine (pip install --no-deps axe-playwright-python)")
    page = browser.open(f"{report}#m=h.0.mlp", dark=dark)
    page.ask(f"(() => {{ {axe.read_text('utf-8')}; }})()")
    found = page.ask(
        "axe.run().then((result) => result.violations.map((one) =>"
        "[one.id, one.nodes.map((node) => node.html.slice(0, 160)).slice(0, 5)]))"
    )
    assert found == []
    page.close()
