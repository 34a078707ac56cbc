"""Results as JSON, CSV and Markdown: of a query, and of ``compare``."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.reporters import table, terms
from cb_trace.reporters.result import Result
from cb_trace.reporters.safe_text import csv_cell, markdown_cell

if TYPE_CHECKING:
    from cb_trace.reporters.comparison import Comparison, ModuleRow

Format = Literal["table", "json", "csv", "markdown"]
FORMATS: tuple[Format, ...] = ("table", "json", "csv", "markdown")


def result_json(result: Result, query: str) -> str:
    """A document with ``schema_version``, the columns in order, and one object a row."""
    return document_json(
        {
            "schema_version": SCHEMA_VERSION,
            "query": query,
            "columns": result.columns,
            "rows": [dict(zip(result.columns, row, strict=True)) for row in result.rows],
        }
    )


def result_csv(result: Result) -> str:
    """RFC 4180 with a header line; NULL is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_cell(column) for column in result.columns])
    writer.writerows([_csv_value(value) for value in row] for row in result.rows)
    return text.getvalue()


def result_markdown(result: Result) -> str:
    """A table of GitHub's Markdown."""
    return _markdown(result.columns, [[_text(value) for value in row] for row in result.shown()])


def comparison_json(comparison: Comparison) -> str:
    """Everything ``compare`` knows; a row carries the whole of its row in view ``compare``."""
    return document_json(
        {
            "schema_version": SCHEMA_VERSION,
            "run": asdict(comparison.run),
            "ranks": comparison.ranks,
            "deployment": comparison.deployment,
            "phase": comparison.phase,
            "steps": [asdict(step) for step in comparison.steps],
            "rows": [_comparison_row(row) for row in comparison.rows],
            "terms": [asdict(term) for term in comparison.terms],
            "parts": [asdict(part) for part in comparison.parts],
            "unattributed": [asdict(item) for item in comparison.unattributed],
            "skipped": [asdict(item) for item in comparison.skipped],
            "notes": [asdict(note) for note in comparison.notes],
        }
    )


def comparison_csv(comparison: Comparison) -> str:
    """The rows of :func:`comparison_json`."""
    rows = [_comparison_row(row) for row in comparison.rows]
    columns = list(rows[0]) if rows else ["path"]
    return result_csv(Result(columns, [tuple(row.values()) for row in rows]))


def comparison_markdown(comparison: Comparison) -> str:
    """The tree as a table, and the footer below it."""
    rows = []
    for row in comparison.rows:
        text = table.cells(row)
        module = "&nbsp;&nbsp;" * row.depth + markdown_cell(row.name or "(root)")
        rest = (text.class_name, text.cost, text.share, text.isolated, text.error, text.spread)
        rows.append([module, *(markdown_cell(cell) for cell in rest)])
    heads = table.column_names(comparison)
    texts = [_markdown_raw(heads, rows, right=range(2, len(heads)))]
    if rows and (why := terms.term_cells(comparison.rows[0].record, comparison.terms)):
        texts.append(_markdown_raw(terms.HEADS, why, right=range(1, len(terms.HEADS))))
    foot = [f"- {markdown_cell(line)}\n" for line in table.footer_lines(comparison)]
    return "\n".join((*texts, "".join(foot)))


def _comparison_row(row: ModuleRow) -> dict[str, Any]:
    return {
        **row.record,
        "parent": row.parent,
        "depth": row.depth,
        "share": row.share,
        "error_low_ratio": row.error_low,
        "error_high_ratio": row.error_high,
        "within_noise": row.within_noise,
        "skipped": row.skipped,
    }


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    safe = [[markdown_cell(cell) for cell in row] for row in rows]
    return _markdown_raw([markdown_cell(head) for head in heads], safe)


def _markdown_raw(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> str:
    rule = ["---:" if number in right else "---" for number in range(len(heads))]
    return "".join("| " + " | ".join(row) + " |\n" for row in (heads, rule, *rows))


def document_json(value: dict[str, Any]) -> str:
    return json.dumps(_jsonable(value), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _jsonable(value: object) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _csv_value(value: object) -> object:
    return csv_cell(value) if isinstance(value, str) else _text(value)
