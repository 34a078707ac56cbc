"""The icicle for speedscope (https://www.speedscope.app): its file format, version 0.0.1.

A profile a figure, deployment and phase. A sample is the stack of a module and weighs its own
part: its figure less its children's. What cannot be drawn (a negative part) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cb_trace.reporters.document_tree import DocumentTree, document_tree

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_FIGURES = {"cost_us": "cost in the step", "isolated_us": "alone", "knockout_us": "knock-out"}


def render(document: Mapping[str, Any]) -> str:
    """The file's text."""
    trees = [
        document_tree(document, deployment=view["deployment"], phase=view["phase"])
        for view in document["views"]
    ]
    profiles = [
        profile
        for tree in trees
        for column, title in _FIGURES.items()
        if (profile := _profile(tree, column, title))
    ]
    frames = [
        {"name": path or label} for path, label in zip(trees[0].paths, trees[0].labels, strict=True)
    ]
    content = {
        "$schema": _SCHEMA,
        "exporter": f"cb-trace {document['tool_version']}",
        "name": document["profile"],
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    return json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"


def _profile(tree: DocumentTree, column: str, title: str) -> dict[str, Any] | None:
    figures = [_ns(value) for value in tree.column(column)]
    samples: list[list[int]] = []
    weights: list[int] = []
    pending = [(root, [root]) for root in reversed(tree.roots)]
    while pending:
        module, stack = pending.pop()
        own = figures[module] - sum(figures[child] for child in tree.children[module])
        if own > 0:
            samples.append(stack)
            weights.append(own)
        pending += [(child, [*stack, child]) for child in reversed(tree.children[module])]
    if not samples:
        return None
    return {
        "type": "sampled",
        "name": f"{title}, {tree.view['deployment']}, {tree.view['phase']}",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _ns(value: float | None) -> int:
    return 0 if value is None else round(value * 1000)
