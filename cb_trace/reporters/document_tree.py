"""Read the report's document back as a tree: for exports that draw no page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cb_trace.errors import CbTraceError


@dataclass(frozen=True, slots=True)
class DocumentTree:
    """The modules of a document, and the figures of one of its deployments and phases."""

    document: Mapping[str, Any]
    view: Mapping[str, Any]
    labels: list[str]
    paths: list[str]
    children: list[list[int]]
    roots: list[int]

    def column(self, name: str) -> list[Any]:
        """A figure by module; None where it was not measured."""
        dense: list[Any] = [None] * len(self.labels)
        at = self.view["columns"].get(name)
        if at is not None:
            places = self.document["columns"][self.view["columns"]["module"]]
            for place, value in zip(places, self.document["columns"][at], strict=True):
                dense[place] = value
        return dense


def document_tree(
    document: Mapping[str, Any], *, deployment: str | None = None, phase: str | None = None
) -> DocumentTree:
    """The tree with the figures of a deployment and phase, by default the first of each.

    :raises CbTraceError: the document has no such deployment or phase.
    """
    view = _chosen(document["views"], deployment, phase)
    modules, words = document["modules"], document["words"]
    classes = ["" if code is None else words[code] for code in modules["class"]]
    labels = [name or kind or "(root)" for name, kind in zip(modules["name"], classes, strict=True)]
    children: list[list[int]] = [[] for _ in labels]
    paths: list[str] = []
    for number, parent in enumerate(modules["parent"]):
        name = modules["whole"].get(number, modules["name"][number])
        above = paths[parent] if parent >= 0 and number not in modules["whole"] else ""
        paths.append(f"{above}.{name}" if above else name)
        if parent >= 0:
            children[parent].append(number)
    roots = [number for number, parent in enumerate(modules["parent"]) if parent < 0]
    return DocumentTree(document, view, labels, paths, children, roots)


def _chosen(
    views: list[Mapping[str, Any]], deployment: str | None, phase: str | None
) -> Mapping[str, Any]:
    given = {"deployment": deployment, "phase": phase}
    for key, wanted in given.items():
        there = dict.fromkeys(view[key] for view in views)
        if wanted is not None and wanted not in there:
            raise CbTraceError(
                f"no {key} {wanted!r} in this profile", hint=f"there is: {', '.join(there)}"
            )
        views = [view for view in views if wanted in {None, view[key]}]
    return views[0]
