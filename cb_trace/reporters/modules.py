"""Find a module by the name a person typed."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from cb_trace.errors import CbTraceError
from cb_trace.reporters.safe_text import plain

ROOT_NAMES = frozenset({"", "<root>", "."})


def find_module(name: str, paths: Collection[str]) -> str:
    """The path that ``name`` means.

    :raises CbTraceError: no module has this path; close matches are the hint.
    """
    if name in paths:
        return name
    if name in ROOT_NAMES and "" in paths:
        return ""
    raise CbTraceError(f"no module {plain(name, 80)!r} in this profile", hint=_hint(name, paths))


def _hint(name: str, paths: Collection[str]) -> str:
    last = name.rpartition(".")[2]
    ends_alike = [path for path in paths if path and path.rpartition(".")[2] == last][:3]
    close = list(dict.fromkeys(get_close_matches(name, paths, n=3) + ends_alike))[:3]
    if not close:
        return "'cb-trace query PROFILE module_tree' lists them"
    return "did you mean " + ", ".join(plain(path, 80) for path in close) + "?"
