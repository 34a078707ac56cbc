"""The terminal's tables: the module tree of ``compare``, and plain results of queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cb_trace.reporters.comparison import Comparison, ModuleRow, StepTime, Unattributed
from cb_trace.reporters.grid import GAP, NAME_ROOM, frame, print_table
from cb_trace.reporters.result import NOISE, Result
from cb_trace.reporters.safe_text import plain, shortened
from cb_trace.reporters.terms import HEADS, bracket_line, term_cells

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NOT_MEASURED = "–"
LONGEST_NAME = 120
LONGEST_CELL = 200
FIRST_FIGURE, FIRST_ISOLATED = 2, 4  # of COLUMNS
MEASURED = ("_us", "_ratio")  # how columns end whose figures have decimals, whatever they are
MOST_DIGITS = 1e15
DEPLOYMENTS = {"eager": "run eagerly", "graph": "as a CUDA graph"}
OUTSIDE_STEPS = "outside every step"
NO_MODULES = (
    "no module is named in this trace: record it with with_stack=True, or with cb-trace; "
    "'cb-trace query PROFILE unattributed' has its device time"
)
# Notes that say how it was measured and that change no figure here: in the profile and in JSON.
UNKNOWN_CLOCK = "SM clock unknown, temperature unknown"
CIRCUMSTANCES = frozenset({"captured inputs", "cold cache", "grad mode"})

PART_LABELS = {
    "modules": "modules that hold no other",
    "glue": "glue: work of parents outside their children",
    "idle_host": "idle: waiting for the host",
    "idle_gap": "idle: between kernels",
    "idle_sync": "idle: synchronising",
    "idle_copy": "idle: around copies",
    "unattributed": "unattributed",
    "profiled_excess": "busier under the profiler than bare",
}


@dataclass(frozen=True, slots=True)
class Cells:
    """One row of the tree as text, the same in a terminal and in Markdown."""

    module: str
    class_name: str
    cost: str
    share: str
    isolated: str
    error: str
    spread: str


COLUMNS = ("module", "class", "cost µs", "share", "isolated µs", "error", "spread")


def cells(row: ModuleRow) -> Cells:
    """The text of a row; names are not yet made safe for a terminal."""
    cost = row.cost_us if row.cost_us is not None else row.busy_us
    return Cells(
        module="  " * row.depth + (row.name or "(root)"),
        class_name=row.class_name,
        cost=microseconds(cost),
        share=percent(row.share),
        isolated=isolated_text(row),
        error=error_text(row),
        spread=percent(row.spread),
    )


def column_names(comparison: Comparison) -> tuple[str, ...]:
    """Headings; without a timed step the cost is unknown and device time stands in its place."""
    timed = any(row.cost_us is not None for row in comparison.rows)
    return COLUMNS if timed else tuple(c.replace("cost µs", "device µs") for c in COLUMNS)


def microseconds(value: float | None) -> str:
    """A time with one decimal, two where it is small."""
    if value is None:
        return NOT_MEASURED
    return f"{value:,.1f}" if abs(value) >= 1 or value == 0 else f"{value:.2f}"


def percent(ratio: float | None) -> str:
    """A part of a whole."""
    return NOT_MEASURED if ratio is None else f"{100 * ratio:,.1f}%"


def isolated_text(row: ModuleRow) -> str:
    """The isolated figure, a lower bound where a module below it was not measured."""
    if row.isolated_us is None:
        return "skipped" if row.skipped else NOT_MEASURED
    return ("≥ " if row.partial else "") + microseconds(row.isolated_us)


def error_text(row: ModuleRow) -> str:
    """The signed error, or ``~0`` where both figures lie within each other's noise."""
    if row.error_ratio is None or row.partial:
        return NOT_MEASURED
    if row.within_noise:
        return NOISE
    percents = 100 * row.error_ratio
    return f"{percents:+.1f}%" if abs(percents) < 0.95 else f"{percents:+,.0f}%"


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print header, tree and footer."""
    _print_head(comparison, console)
    if comparison.rows:
        print_table(_tree(comparison, console), console)
        _print_terms(comparison, console)
    _print_foot(comparison, console)


def _print_head(comparison: Comparison, console: Console) -> None:
    run = comparison.run
    facts = [run.device_name, run.dtype, run.mode and f"recorded {run.mode}"]
    step = comparison.step
    facts += [f"{comparison.deployment} deployment" if step and step.bare else None]
    facts += [comparison.phase, _rank(comparison)]
    if run.torch_version:
        facts.append(f"torch {run.torch_version}")
    _say(console, plain(run.workload or "trace", LONGEST_NAME), "bold")
    _say(console, " · ".join(plain(fact, LONGEST_NAME) for fact in facts if fact))


def _tree(comparison: Comparison, console: Console) -> Table:
    table = frame()
    heads = column_names(comparison)
    rows = [_texts(row) for row in comparison.rows]
    widths = [max([len(head), *(len(row[n]) for row in rows)]) for n, head in enumerate(heads)]
    shown = _columns_that_fit(widths, console.width)
    if not comparison.replayed:
        shown = tuple(number for number in shown if number < FIRST_ISOLATED)
    room = console.width - sum(widths[n] + GAP for n in shown if n >= FIRST_FIGURE)
    for number in shown:
        if number >= FIRST_FIGURE:
            table.add_column(heads[number], justify="right", no_wrap=True)
            continue
        # Names give way, figures never: a figure without its end is another figure.
        width = min(widths[number], room // 2 if number == 0 and 1 in shown else room)
        table.add_column(heads[number], no_wrap=True, overflow="ellipsis", max_width=max(width, 1))
        room -= width + GAP
    for row in rows:
        table.add_row(*(row[number] for number in shown))
    return table


def _columns_that_fit(widths: Sequence[int], room: int) -> tuple[int, ...]:
    """Indices into COLUMNS: where it is narrow the class goes first, then spread and share."""
    for shown in ((0, 1, 2, 3, 4, 5, 6), (0, 2, 3, 4, 5, 6), (0, 2, 4, 5)):
        names = sum(min(widths[n], NAME_ROOM) + GAP for n in shown if n < FIRST_FIGURE)
        if names + sum(widths[n] + GAP for n in shown if n >= FIRST_FIGURE) - GAP <= room:
            return shown
    return (0, 2, 5)


def _texts(row: ModuleRow) -> list[Text]:
    from rich.text import Text

    text = cells(row)
    name = "  " * row.depth + plain(row.name or "(root)", LONGEST_NAME)
    class_name = plain(text.class_name, LONGEST_NAME)
    style = "bold" if row.error_ratio is not None and abs(row.error_ratio) >= 0.5 else ""
    return [
        Text(name),
        Text(class_name, style="dim"),
        Text(text.cost),
        Text(text.share, style="dim"),
        Text(text.isolated),
        Text(text.error, style="dim" if row.within_noise else style),
        Text(text.spread, style="dim"),
    ]


def _print_terms(comparison: Comparison, console: Console) -> None:
    rows = term_cells(comparison.rows[0].record, comparison.terms)
    if not rows:
        return
    table = frame()
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print_table(table, console)


def _print_foot(comparison: Comparison, console: Console) -> None:
    if comparison.parts:
        rows = [
            (PART_LABELS.get(p.kind, p.kind), microseconds(p.ns / 1000), percent(p.share))
            for p in comparison.parts
        ]
        figures = sum(max(len(row[n]) for row in rows) + GAP for n in (1, 2))
        table = frame()
        label = "the step, once over"
        table.add_column(
            label, no_wrap=True, overflow="ellipsis", max_width=max(8, console.width - figures)
        )
        for head in ("µs", "share"):
            table.add_column(head, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        print_table(table, console)
    console.print()
    for line in footer_lines(comparison):
        _say(console, line)


def footer_lines(comparison: Comparison) -> list[str]:
    """What a reader must know to judge the table: the step, its noise, and what is not in it."""
    lines = list(step_lines(comparison))
    lines[:0] = _on_the_module(comparison)
    if comparison.asked and comparison.rows and comparison.rows[0].record["perfetto_url"]:
        link = plain(comparison.rows[0].record["perfetto_url"], 400)
        rank = f" --{one}" if (one := _rank(comparison)) else ""
        serving = f"cb-trace perfetto PROFILE{rank} --open"
        lines.append(f"in Perfetto, while '{serving}' serves it: {link}")
    if not comparison.rows:
        lines.append(NO_MODULES)
    elif not comparison.replayed:
        lines.append(_nothing_alone(comparison))
    if len(comparison.ranks) > 1:
        others = len(comparison.ranks) - 1
        lines.append(f"{_counted(others, 'other rank')} in this profile: see --rank N")
    lines += [_unattributed_line(item) for item in comparison.unattributed]
    lines += _skipped_lines(comparison)
    for note in comparison.notes:
        if note.reason in CIRCUMSTANCES or note.detail.startswith(UNKNOWN_CLOCK):
            continue
        where = f"{plain(note.path or '(root)', 60)}: " if note.path is not None else ""
        detail = f": {plain(note.detail, 160)}" if note.detail else ""
        times = f" (×{note.count})" if note.count > 1 else ""
        lines.append(f"note: {where}{plain(note.reason, 100)}{detail}{times}")
    return lines


def _on_the_module(comparison: Comparison) -> Iterator[str]:
    """The verdict on the module that was asked for, and what its cache term may be."""
    if not comparison.asked or not comparison.rows:
        return
    first = comparison.rows[0]
    if comparison.verdict is not None:
        yield f"{plain(first.path or first.class_name, 60)}: {comparison.verdict}"
    if bracket := bracket_line(first.record, comparison.terms):
        yield bracket


def _rank(comparison: Comparison) -> str | None:
    return f"rank {comparison.run.rank}" if len(comparison.ranks) > 1 else None


def _nothing_alone(comparison: Comparison) -> str:
    phases = comparison.phases_alone
    if not phases:
        return "isolated: nothing was measured alone in this recording"
    return f"isolated: modules were measured alone by phase; see --phase {' or '.join(phases)}"


def step_lines(comparison: Comparison) -> Iterator[str]:
    """The bare step with its interval, how far the profiler stretched it; other deployments."""
    step = comparison.step
    if step is None or not step.bare:
        yield "step: not timed bare; times are as under the profiler, which stretches idle"
        return
    line = f"step: {microseconds(step.ns / 1000)} µs bare"
    if step.low_ns is not None and step.high_ns is not None:
        line += f" ({microseconds(step.low_ns / 1000)} to {microseconds(step.high_ns / 1000)})"
    yield line + (f", ×{step.dilation:.2f} under the profiler" if step.dilation else "")
    yield from _at_once(step)
    yield from _prediction(step, comparison.phases_alone)
    for other in comparison.steps:
        if other is not step:
            how = DEPLOYMENTS.get(other.deployment, other.deployment)
            if other.deployment == "eager" and "compile" in (comparison.run.mode or ""):
                how = "launched by the host"
            yield (
                f"the same step {how}: {microseconds(other.ns / 1000)} µs bare; "
                f"see --deployment {other.deployment}"
            )


def _at_once(step: StepTime) -> Iterator[str]:
    """What the streams of the step save by running at once, measured."""
    one = step.one_stream_ns
    if one is None:
        return
    least = (step.one_stream_low_ns or one) - (step.high_ns or step.ns)
    most = (step.one_stream_high_ns or one) - (step.low_ns or step.ns)
    saved = one - step.ns
    told = NOISE if least <= 0 <= most else microseconds(abs(saved) / 1000)
    does = "costs" if most < 0 else "saves"
    yield f"on one stream: {microseconds(one / 1000)} µs bare; running at once {does} {told} µs"


def _prediction(step: StepTime, phases: Sequence[str]) -> Iterator[str]:
    """The step from its parts, which have not seen it; then what adding them up would say."""
    if step.predicted_ns is None or not step.ns:
        return
    yield f"predicted from its parts: {_beside(step.predicted_ns, step)}"
    inner = "isolated of all innermost modules"
    if len(phases) > 1:
        inner += f" ({', '.join(phases)})"
    sums = (("durations of all kernels", step.kernel_sum_ns), (inner, step.isolation_sum_ns))
    told = [f"{words} {_beside(ns, step)}" for words, ns in sums if ns is not None]
    if told:
        yield "plain sums instead: " + ", ".join(told)


def _beside(ns: int, step: StepTime) -> str:
    return f"{microseconds(ns / 1000)} µs ({100 * (ns / step.ns - 1):+.1f}%)"


def _unattributed_line(item: Unattributed) -> str:
    size = f"{_counted(item.kernels, 'kernel')}, {microseconds(item.ns / 1000)} µs in all"
    if item.reason == OUTSIDE_STEPS:  # what runs before, between and after the recorded steps
        return f"outside the recorded steps: {size}, in no figure above"
    return f"unattributed: {size}, {plain(item.reason, 60)}"


def _skipped_lines(comparison: Comparison) -> list[str]:
    """One line a reason, with the first few modules."""
    by_reason: dict[str, list[str]] = {}
    for item in comparison.skipped:
        by_reason.setdefault(item.reason, []).append(item.path or item.class_name)
    lines = []
    for reason, paths in by_reason.items():
        names = list(dict.fromkeys(paths))
        shown = ", ".join(plain(name, 60) for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"not measured alone: {shown}{more}: {plain(reason, 120)}")
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def print_result(result: Result, console: Console) -> None:
    """Print a query's result."""
    from rich.text import Text

    table, shown = frame(), result.shown()
    columns = []
    for number, name in enumerate(result.columns):
        values = [row[number] for row in result.rows]
        known = [value for value in values if value is not None]
        whole = not name.endswith(MEASURED) and all(map(_is_whole, known))
        numeric = all(isinstance(value, int | float) for value in known)
        table.add_column(
            Text(plain(name, LONGEST_CELL)),
            justify="right" if numeric else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
        columns.append([Text(_cell(row[number], whole=whole)) for row in shown])
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    print_table(table, console)
    console.print()
    _say(console, _counted(len(result.rows), "row"), "dim")


def _is_whole(value: object) -> bool:
    return not isinstance(value, float) or (value.is_integer() and abs(value) < MOST_DIGITS)


def _cell(value: object, *, whole: bool) -> str:
    """A figure with three decimals, with three digits where those would be none of it."""
    if value is None:
        return NOT_MEASURED
    if not isinstance(value, float):
        return plain(shortened(str(value), LONGEST_CELL), LONGEST_CELL)
    if whole:
        return f"{value:,.0f}"
    return f"{value:,.3f}" if value == 0 or 0.01 <= abs(value) < MOST_DIGITS else f"{value:.3g}"


def _say(console: Console, text: str, style: str = "") -> None:
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=True)
