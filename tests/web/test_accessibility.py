"""axe-core finds nothing to complain about, light and dark, in the page of one and of two."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.web.browser import Browser

# They carry axe, the newer one first; neither is imported.
_PACKAGES = ("axe_playwright_python", "axe_core_python")


def find_axe() -> Path | None:
    """``axe.min.js``: named by CB_TRACE_AXE, else out of a package that carries it."""
    places = [Path(named)] if (named := os.environ.get("CB_TRACE_AXE")) else []
    specs = [spec for name in _PACKAGES if (spec := find_spec(name))]
    folders = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    places += [Path(folder, "axe.min.js") for folder in folders]
    return next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", ["report", "diff"])
def test_axe_is_content(
    browser: Browser, request: pytest.FixtureRequest, *, kind: str, dark: bool
) -> None:
    axe = find_axe()
    if axe is None:
        pytest.skip("no axe-core on this machine (pip install axe-core-python)")
    page = browser.open(f"{request.getfixturevalue(kind)}#m=h.0.mlp", dark=dark)
    page.ask(f"(() => {{ {axe.read_text('utf-8')}; }})()")
    found = page.ask(
        "axe.run().then((result) => result.violations.map((one) =>"
        "[one.id, one.nodes.map((node) => node.html.slice(0, 160)).slice(0, 5)]))"
    )
    assert found == []
    page.close()
