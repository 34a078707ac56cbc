"""What changed between two profiles, as text: for a terminal, as Markdown, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cb_trace.columns import SCHEMA_VERSION
from cb_trace.reporters import rows as plain_rows
from cb_trace.reporters.difference import PHASES, TIMED, Change, Difference, DifferenceRow, Figure
from cb_trace.reporters.grid import frame, print_table
from cb_trace.reporters.result import Result
from cb_trace.reporters.safe_text import markdown_cell, plain
from cb_trace.reporters.table import (
    LONGEST_NAME,
    NOT_MEASURED,
    PART_LABELS,
    microseconds,
    percent,
)

if TYPE_CHECKING:
    from rich.console import Console

    from cb_trace.reporters.comparison import StepTime

COLUMNS = ("module", "class", "base µs", "new µs", "change µs", "change", "interval µs")
WITHIN_NOISE = "within noise"
_FIRST_FIGURE = 2


def print_difference(difference: Difference, console: Console) -> None:
    """Print what differs between the recordings, the step, the modules, the parts of the step."""
    from rich.text import Text

    for line in head_lines(difference):
        style = "bold" if line.startswith("NOT THE SAME") else ""
        console.print(Text(line, style=style), soft_wrap=True)
    table = frame()
    for number, name in enumerate(COLUMNS):
        table.add_column(
            name,
            justify="right" if number >= _FIRST_FIGURE else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in difference.rows:
        table.add_row(*(Text(plain(cell, LONGEST_NAME)) for cell in cells(row)))
    print_table(table, console)
    if turned := list(flip_lines(difference)):
        console.print()
        for line in turned:
            console.print(Text(line), soft_wrap=True)
    if not difference.parts:
        return
    table = frame()
    for number, name in enumerate(("the step, once over", "base µs", "new µs", "change µs")):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for cells_ in part_cells(difference):
        table.add_row(*cells_)
    print_table(table, console)


def head_lines(difference: Difference) -> Iterator[str]:
    """What is compared, what makes that hard, and the step."""
    runs = (difference.base_run, difference.new_run)
    names = [plain(run.workload or "trace", LONGEST_NAME) for run in runs]
    way = f"{difference.deployment} deployment, {difference.phase}"
    same = f"{names[0]}: " if names[0] == names[1] else f"{names[0]} against {names[1]}: "
    yield f"{same}new less base, {way}"
    loud = [m for m in difference.mismatches if m.kind != "other"]
    for what, kind in (("WORK", "work"), ("HARDWARE", "hardware")):
        told = [f"{m.what} {m.base} → {m.new}" for m in loud if m.kind == kind]
        if told:
            listed = plain("; ".join(told), 400)
            yield f"NOT THE SAME {what}: {listed}. Changes below are of that as well."
    rest = [f"{m.what} {m.base} → {m.new}" for m in difference.mismatches if m.kind == "other"]
    if rest:
        yield plain("also differs: " + "; ".join(rest), 400)
    yield step_line(difference)
    for side, step in (("base", difference.base_step), ("new", difference.new_step)):
        if step is not None and step.bare and step.predicted_ns is not None:
            yield f"{side}, predicted from its parts: {microseconds(step.predicted_ns / 1e3)} µs"


def step_line(difference: Difference) -> str:
    """The step in both, and its change."""
    base, new = (_step_text(step) for step in (difference.base_step, difference.new_step))
    change = difference.step
    other = next((m for m in difference.mismatches if m.what == PHASES), None)
    if other is not None:
        base, new = f"{base} ({_listed(other.base)})", f"{new} ({_listed(other.new)})"
        return f"step: {base} → {new}: two different steps, so no change of one is told"
    if any(m.what == TIMED for m in difference.mismatches):
        return f"step: {base} → {new}: not timed alike, so no change of it is told"
    if change.delta is None:
        return f"step: {base} → {new}"
    noise = f", {WITHIN_NOISE}" if change.within_noise else ""
    return (
        f"step: {base} → {new}: {signed(change.delta)} µs ({signed_percent(change.ratio)}"
        f"{', ' + interval(change) if change.low is not None else ''}{noise})"
    )


def _listed(phases: str) -> str:
    return phases.replace(",", ", ")


def _step_text(step: StepTime | None) -> str:
    if step is None:
        return "not timed"
    return f"{microseconds(step.ns / 1e3)} µs {'bare' if step.bare else 'under the profiler'}"


def cells(row: DifferenceRow) -> tuple[str, ...]:
    """A row as text; names are not yet made safe."""
    cost = row.cost
    class_name = f"{row.class_name} (was {row.base_class})" if row.base_class else row.class_name
    return (
        "  " * row.depth + (row.name or "(root)"),
        class_name,
        NOT_MEASURED if row.presence == "added" else microseconds(cost.base.value),
        NOT_MEASURED if row.presence == "removed" else microseconds(cost.new.value),
        signed(cost.delta),
        verdict(row),
        interval(cost),
    )


def verdict(row: DifferenceRow) -> str:
    """The change in percent; in a word where there is no percent or no change."""
    if row.presence != "both":
        return row.presence
    return WITHIN_NOISE if row.cost.within_noise else signed_percent(row.cost.ratio)


def flip_lines(difference: Difference) -> Iterator[str]:
    """The modules that changed one way alone and the other way in the step."""
    yet = {"slower alone": "cheaper in the step", "faster alone": "dearer in the step"}
    for row in difference.rows:
        if row.flip is not None:
            name = plain(row.path or row.class_name, LONGEST_NAME)
            alone, cost = signed(row.isolated.delta), signed(row.cost.delta)
            how = f"{alone} µs alone, {cost} µs in the step"
            yield f"{row.flip} and {yet[row.flip]}: {name} ({how})"


def part_cells(difference: Difference) -> Iterator[tuple[str, str, str, str]]:
    """The kinds of time of the step in both."""
    for kind, base, new in difference.parts:
        change = (new or 0.0) - (base or 0.0)
        label = PART_LABELS.get(kind, kind)
        yield label, microseconds(base), microseconds(new), signed(change)


def signed(value: float | None) -> str:
    """A time with its sign, whatever it is."""
    if value is None:
        return NOT_MEASURED
    return ("+" if value > 0 else "") + microseconds(value)


def signed_percent(ratio: float | None) -> str:
    """A change over the base."""
    if ratio is None:
        return NOT_MEASURED
    return ("+" if ratio > 0 else "") + percent(ratio)


def interval(change: Change) -> str:
    """The bounds of a change."""
    if change.low is None or change.high is None:
        return NOT_MEASURED
    return f"{signed(change.low)} to {signed(change.high)}"


def difference_json(difference: Difference) -> str:
    """Everything that is known of the change, with stable keys."""
    sides = ((difference.base_run, difference.base_step), (difference.new_run, difference.new_step))
    base, new = (
        {"run": asdict(run), "step": asdict(step) if step else None} for run, step in sides
    )
    return plain_rows.document_json(
        {
            "schema_version": SCHEMA_VERSION,
            "base": base,
            "new": new,
            "differs": [asdict(item) for item in difference.mismatches],
            "deployment": difference.deployment,
            "phase": difference.phase,
            "step": _change_record("step", difference.step),
            "rows": [_record(row) for row in difference.rows],
            "parts": [
                {"kind": kind, "base_us": base_us, "new_us": new_us}
                for kind, base_us, new_us in difference.parts
            ],
        }
    )


def difference_csv(difference: Difference) -> str:
    """The rows of :func:`difference_json`."""
    records = [_record(row) for row in difference.rows]
    columns = list(records[0]) if records else ["path"]
    found = Result(columns, [tuple(record.values()) for record in records])
    return plain_rows.result_csv(found)


def difference_markdown(difference: Difference) -> str:
    """The head as a list, and the modules as a table."""
    said = (*head_lines(difference), *flip_lines(difference))
    lines = [f"- {markdown_cell(line)}\n" for line in said]
    table = Result(list(COLUMNS), [cells(row) for row in difference.rows])
    return "".join(lines) + "\n" + plain_rows.result_markdown(table)


def _record(row: DifferenceRow) -> dict[str, Any]:
    sides = (("base", row.base), ("new", row.new))
    return {
        "path": row.path,
        "class": row.class_name,
        "base_class": row.base_class,
        "presence": row.presence,
        "parent": row.parent,
        "depth": row.depth,
        **_change_record("cost", row.cost),
        **_change_record("isolated", row.isolated),
        "flip": row.flip,
        **{f"{side}_error_ratio": there and there.error_ratio for side, there in sides},
        **{f"{side}_verdict": there and there.record["verdict"] for side, there in sides},
        **{f"{side}_perfetto_url": there and there.record["perfetto_url"] for side, there in sides},
    }


def _change_record(name: str, change: Change) -> dict[str, Any]:
    return {
        **_figure_record(f"base_{name}", change.base),
        **_figure_record(f"new_{name}", change.new),
        f"{name}_change_us": _to_ns(change.delta),
        f"{name}_change_low_us": _to_ns(change.low),
        f"{name}_change_high_us": _to_ns(change.high),
        f"{name}_change_ratio": change.ratio,
        f"{name}_within_noise": change.within_noise,
    }


def _to_ns(us: float | None) -> float | None:
    """Whole nanoseconds, which the figures were: their difference in floating point is not."""
    return None if us is None else round(us, 3)


def _figure_record(name: str, figure: Figure) -> dict[str, Any]:
    return {
        f"{name}_us": figure.value, f"{name}_low_us": figure.low, f"{name}_high_us": figure.high,
    }  # fmt: skip
