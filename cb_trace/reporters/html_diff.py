"""What the page of two profiles shows: both documents, and what differs between the recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.reporters.difference import common_ways, mismatches, run_facts, steps_alike
from cb_trace.reporters.html_columns import LONGEST_NAME, texts
from cb_trace.reporters.html_data import read_report
from cb_trace.reporters.safe_text import plain
from cb_trace.version import VERSION

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Connection


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two profiles."""

    connection: Connection
    profile: Path


def read_diff_report(base: Side, new: Side, *, rank: int | None = None) -> dict[str, Any]:
    """The document that the page of two profiles is drawn from.

    The page itself matches modules by path and takes differences; :mod:`difference` says by which
    rules.

    :raises CbTraceError: no such rank, or no deployment and phase that both have figures for.
    """
    ways = common_ways(base.connection, new.connection, rank)
    differs = mismatches(*(run_facts(side.connection, rank) for side in (base, new)))
    documents = [read_report(side.connection, side.profile, rank=rank) for side in (base, new)]
    return {
        "kind": "diff",
        "schema_version": SCHEMA_VERSION,
        "tool_version": VERSION,
        "profile": " → ".join(plain(side.profile.name, LONGEST_NAME) for side in (base, new)),
        "run": documents[1]["run"],
        "differs": [texts(asdict(item)) for item in differs],
        "steps_alike": steps_alike(differs),
        "base": _side(documents[0], ways),
        "new": _side(documents[1], ways),
    }


def _side(document: Mapping[str, Any], ways: list[tuple[str, str]]) -> dict[str, Any]:
    """A document without what the page of two does not draw."""
    views = {(view["deployment"], view["phase"]): view for view in document["views"]}
    kernels = {**document["kernels"], "both": None}
    return {**document, "views": [views[way] for way in ways], "kernels": kernels, "fused": None}
