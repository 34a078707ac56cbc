"""The report: one HTML file with its style, script and data inside, that asks no network.

The script is built once from ``web/src`` by ``web/build.sh``; the built files are in the
repository, so making a report needs no node.
"""

from __future__ import annotations

import base64
import hashlib
import html
import string
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from cb_trace.reporters.html_columns import script_json


def render_report(document: Mapping[str, Any], *, live: bool = False) -> str:
    """The whole page of a document of :func:`cb_trace.reporters.html_data.read_report`.

    :param live: the page is served by ``cb-trace serve`` and may ask its server.
    """
    script, style = _built("report.js"), _built("report.css")
    # The policy names the one script and style that may run: nothing in the data can.
    policy = (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    ) + ("; connect-src 'self'" if live else "")
    run = document["run"]
    named = (run.get("workload"), run.get("device_name"))
    title = " · ".join([*(str(name) for name in named if name), "cb-trace"])
    return string.Template(_built("template.html")).substitute(
        policy=html.escape(policy),
        title=html.escape(title),
        style=style,
        data=script_json({**document, "live": live}),
        script=script,
    )


def inline_frame(page: str, *, height: int = 760) -> str:
    """The page as an element for a notebook: sealed off from what is around it."""
    return (
        f'<iframe sandbox="allow-scripts allow-popups" title="cb-trace report" '
        f'style="width:100%;height:{height}px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _built(name: str) -> str:
    return files("cb_trace.reporters").joinpath("web", "dist", name).read_text("utf-8")
