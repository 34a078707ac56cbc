"""What the report page shows, read from a profile: one document of plain columns.

Modules are named by their place in one list, parents before children. A figure that was not
measured is null. Texts are made safe to show on the way in; exact names stay in the profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.errors import CbTraceError
from cb_trace.reporters.comparison import (
    Comparison,
    RunHead,
    Selection,
    chosen_run,
    read_comparison,
)
from cb_trace.reporters.html_columns import (
    LONGEST_NAME,
    Interned,
    Maker,
    Words,
    columns,
    figure,
    micro,
    ratio,
    text,
    texts,
)
from cb_trace.reporters.html_work import memory_columns, roofline_columns
from cb_trace.reporters.safe_text import plain
from cb_trace.reporters.sql_files import fetch
from cb_trace.version import VERSION

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Connection

TERMS = (
    "launch",
    "cache",
    "kernel_choice",
    "fusion",
    "overlap",
    "contention",
    "idle",
    "residual",
)
_FIGURES = {
    **dict.fromkeys(("calls", "kernels", "context_us", "busy_us", "exposed_us"), micro),
    **dict.fromkeys(("cost_us", "cost_low_us", "cost_high_us"), micro),
    **dict.fromkeys(("marginal_us", "isolated_us"), micro),
    **dict.fromkeys(("isolated_low_us", "isolated_high_us"), micro),
    **dict.fromkeys(("isolated_gpu_us", "isolated_cold_us"), micro),
    **dict.fromkeys(("knockout_us", "knockout_low_us", "knockout_high_us"), micro),
    **dict.fromkeys(("error_ratio", "spread"), ratio),
    **dict.fromkeys(("verdict", "isolated_from"), text),
}
_MOST_KERNEL_ROWS = 20_000
_MOST_FUSED = 40
_MOST_NOTES = 200
_LINK_MARK = "&ts="


@dataclass(frozen=True, slots=True)
class Tree:
    """The modules that have figures. ``index`` is a module's place by its path."""

    rows: list[dict[str, Any]]
    parents: list[int]  # -1 for a root
    index: dict[str, int]


def read_report(
    connection: Connection, profile: Path, *, rank: int | None = None
) -> dict[str, Any]:
    """The document that the page is drawn from; it can be written as JSON.

    :param rank: the recording of this rank; by default of the lowest.
    :raises CbTraceError: there is no such recording, or it holds no module.
    """
    run = chosen_run(connection, rank)
    given = {"run_id": run.run_id}
    ways = fetch(connection, "report_ways", **given)
    if not ways:
        raise CbTraceError(
            f"{profile} holds no module figures", hint="see 'cb-trace query PROFILE unattributed'"
        )
    compared = {
        (way["deployment"], way["phase"]): read_comparison(
            connection,
            Selection(deployment=way["deployment"], phase=way["phase"], sort="path", rank=rank),
        )
        for way in ways
    }
    tree = _tree(connection, run, compared)
    interned, words = Interned(), Words()
    first = next(iter(compared.values()))
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": VERSION,
        "profile": plain(profile.name, LONGEST_NAME),
        "run": texts(fetch(connection, "report_run", **given)[0]),
        "rank": run.rank,
        "modules": _modules(tree, words),
        "terms": TERMS,
        "views": [_view(connection, run, tree, one, interned) for one in compared.values()],
        "partition": _partition(connection, run, tree, words),
        "kernels": _kernels(connection, run, tree, words),
        "fused": _fused(connection, run, tree, words),
        "work": roofline_columns(connection, run.run_id, tree.index, words),
        "memory": memory_columns(connection, run.run_id, tree.index, words),
        "links": _links(first, tree),
        "measured": _measured(connection, run, first),
        "columns": interned.columns,
        "words": words.texts,
    }


def _tree(
    connection: Connection, run: RunHead, compared: Mapping[tuple[str, str], Comparison]
) -> Tree:
    active = {row.path for one in compared.values() for row in one.rows}
    every = fetch(connection, "report_modules", run_id=run.run_id)
    above = {row["module_id"]: row["parent_id"] for row in every}
    rows = [row for row in every if row["path"] in active]
    place = {row["module_id"]: number for number, row in enumerate(rows)}
    parents = []
    for row in rows:
        parent = row["parent_id"]
        while parent is not None and parent not in place:
            parent = above.get(parent)
        parents.append(-1 if parent is None else place[parent])
    return Tree(rows, parents, {row["path"]: number for number, row in enumerate(rows)})


def _modules(tree: Tree, words: Words) -> dict[str, Any]:
    """Names are the last part of a path where the rest is the parent's path."""
    names, whole, altered = [], {}, []
    for number, (row, parent) in enumerate(zip(tree.rows, tree.parents, strict=True)):
        path, prefix = row["path"], ""
        if parent >= 0:
            above = tree.rows[parent]["path"]
            prefix = f"{above}." if above else ""
            if not path.startswith(prefix):
                prefix = ""
                whole[number] = plain(path, LONGEST_NAME)
        names.append(plain(path.removeprefix(prefix), LONGEST_NAME))
        if plain(path, LONGEST_NAME) != path:
            altered.append(number)
    return {
        "name": names,
        "whole": whole,
        "altered": altered,
        "parent": tree.parents,
        **columns(
            tree.rows,
            {
                "class": words.code,
                "parameters": figure,
                "parameter_bytes": figure,
                "buffer_bytes": figure,
            },
        ),
    }


def _view(
    connection: Connection, run: RunHead, tree: Tree, one: Comparison, interned: Interned
) -> dict[str, Any]:
    """The figures of one deployment and phase, a column each."""
    rows = sorted(one.rows, key=lambda row: tree.index[row.path])
    table = columns([row.record for row in rows], _FIGURES)
    table["module"] = [tree.index[row.path] for row in rows]
    table["error_low"] = [ratio(row.error_low) for row in rows]
    table["error_high"] = [ratio(row.error_high) for row in rows]
    table["skipped"] = [text(row.skipped) for row in rows]
    places = {row.path: number for number, row in enumerate(rows)}
    table |= _terms(connection, run, one, places)
    return {
        "deployment": one.deployment,
        "phase": one.phase,
        **_step(one),
        "columns": {
            name: interned.add(column)
            for name, column in table.items()
            if any(value is not None for value in column)
        },
    }


def _step(one: Comparison) -> dict[str, Any]:
    """The step of a deployment with its interval, what its parts say of it, whether it is bare."""
    step = one.step
    if step is None:
        return {}
    known = {
        "step_us": step.ns,
        "step_low_us": step.low_ns,
        "step_high_us": step.high_ns,
        "predicted_us": step.predicted_ns,
        "kernel_sum_us": step.kernel_sum_ns,
        "isolation_sum_us": step.isolation_sum_ns,
    }
    times = {name: micro(ns / 1000) for name, ns in known.items() if ns is not None}
    return {**times, "step_bare": step.bare}


def _terms(
    connection: Connection, run: RunHead, one: Comparison, places: Mapping[str, int]
) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {}
    for row in fetch(
        connection,
        "error_terms",
        run_id=run.run_id,
        deployment=one.deployment,
        phase=one.phase,
        path=None,
    ):
        place = places.get(row["path"])
        if place is None or row["us"] is None or row["kind"] not in TERMS:
            continue
        for ending in ("us", "low_us", "high_us"):
            column = table.setdefault(f"{row['kind']}_{ending}", [None] * len(places))
            column[place] = micro(row[ending])
    return table


def _partition(
    connection: Connection, run: RunHead, tree: Tree, words: Words
) -> dict[str, list[Any]]:
    rows = fetch(connection, "report_partition", run_id=run.run_id)
    code = words.code
    given: dict[str, Maker] = {"deployment": code, "phase": code, "kind": code, "us": micro}
    return {"module": _places(rows, tree), **columns(rows, given)}


def _kernels(connection: Connection, run: RunHead, tree: Tree, words: Words) -> dict[str, Any]:
    """Context beside isolation where there is both, and what each module ran itself."""
    code, given = words.code, {"run_id": run.run_id, "most": _MOST_KERNEL_ROWS}
    both = fetch(connection, "report_kernel_diff", **given)
    own = fetch(connection, "report_kernels", **given)
    texts_of_both = ("phase", "op", "status", "context_kernel", "isolated_kernel")
    numbers = ("context_kernels", "isolated_kernels", "context_us", "isolated_us")
    return {
        "both": {
            "module": _places(both, tree),
            **columns(both, dict.fromkeys(texts_of_both, code) | dict.fromkeys(numbers, micro)),
        },
        "own": {
            "module": _places(own, tree),
            **columns(
                own,
                dict.fromkeys(("phase", "op", "kernel"), code)
                | dict.fromkeys(("kernels", "us"), micro),
            ),
        },
        "cut": max(len(both), len(own)) == _MOST_KERNEL_ROWS,
    }


def _fused(connection: Connection, run: RunHead, tree: Tree, words: Words) -> dict[str, Any]:
    rows = fetch(connection, "report_fused", run_id=run.run_id, most=_MOST_FUSED)
    given: dict[str, Maker] = {"kernel": words.code, "us": micro, "share": ratio, "kernels": micro}
    return {"module": _places(rows, tree), **columns(rows, given), "most": _MOST_FUSED}


def _places(rows: Sequence[Mapping[str, Any]], tree: Tree) -> list[int | None]:
    return [tree.index.get(row["path"]) for row in rows]


def _links(one: Comparison, tree: Tree) -> dict[str, Any]:
    """What Perfetto links have in common, and the rest of each."""
    rests: list[str | None] = [None] * len(tree.rows)
    prefix = ""
    for row in one.rows:
        head, mark, rest = (row.record["perfetto_url"] or "").partition(_LINK_MARK)
        if mark:
            prefix = head
            rests[tree.index[row.path]] = mark + rest
    return {"prefix": prefix, "rest": rests}


def _measured(connection: Connection, run: RunHead, one: Comparison) -> dict[str, Any]:
    """How the figures came about: samples, coverage, what was dropped or skipped, notes."""
    given = {"run_id": run.run_id}
    tables = ("samples", "replays", "traces", "coverage")
    notes = [texts({"reason": n.reason, "detail": n.detail, "path": n.path}) for n in one.notes]
    skipped: dict[str, list[str]] = {}
    for item in one.skipped:
        skipped.setdefault(plain(item.reason, LONGEST_NAME), []).append(
            plain(item.path or item.class_name, LONGEST_NAME)
        )
    return {
        **{
            name: [texts(r) for r in fetch(connection, f"report_{name}", **given)]
            for name in tables
        },
        "notes": notes[:_MOST_NOTES],
        "notes_cut": max(0, len(notes) - _MOST_NOTES),
        "skipped": [
            {"reason": reason, "modules": len(paths), "some": paths[:5]}
            for reason, paths in skipped.items()
        ],
    }
