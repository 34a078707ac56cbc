"""The icicle as one SVG file, for slides: width by cost in the step, colour by signed error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from cb_trace.reporters.document_tree import DocumentTree, document_tree

WIDTH = 1600
_ROW, _TOP, _FOOT = 34, 74, 44
_LETTER = 7.6
_SMALLEST = 0.6
_FULL = 3  # doublings of isolated over cost at the ends of the scale
# PuOr of ColorBrewer: purple, alone takes less than in the step; orange, it takes more.
_SCALE = ((94, 60, 153), (178, 171, 210), (241, 241, 239), (253, 184, 99), (230, 97, 1))
_FONT = "font-family=\"system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif\""
_HATCH = (
    '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<rect width="7" height="7" fill="#f5f6f8"/><path d="M-1,1 l2,-2 M0,7 l7,-7 M6,8 l2,-2" '
    'stroke="#b9bec8" fill="none"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """Where a module lies; x and width in pixels, depth in rows."""

    module: int
    x: float
    width: float
    depth: int


def render(
    document: Mapping[str, Any], *, deployment: str | None = None, phase: str | None = None
) -> str:
    """The SVG of one deployment and phase.

    :raises CbTraceError: the document has no such deployment or phase.
    """
    tree = document_tree(document, deployment=deployment, phase=phase)
    costs = tree.column("cost_us")
    width_is = "cost in the step"
    if all(cost is None for cost in costs):
        costs, width_is = tree.column("busy_us"), "time busy in the step"
    boxes = list(icicle(tree, costs, WIDTH))
    rows = max((box.depth for box in boxes), default=0) + 1
    height = _TOP + rows * _ROW + _FOOT
    marks = [_mark(tree, number) for number in range(len(tree.labels))]
    drawn = "".join(_drawn(tree, box, *marks[box.module]) for box in boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" {_FONT} font-size="14" role="img">\n'
        f'{_HATCH}<rect width="{WIDTH}" height="{height}" fill="#fff"/>{_heading(tree)}{drawn}'
        f"{_legend(height)}{_caption(tree, width_is, height)}</svg>\n"
    )


def icicle(tree: DocumentTree, figures: list[Any], width: float) -> Iterator[Box]:
    """Boxes, parents before children; those too narrow to see are left out.

    A child's width is to its parent's as its figure is to the parent's, or to the sum of the
    children where that is larger.
    """
    pending = [Box(root, 0.0, width, 0) for root in tree.roots[:1]]
    while pending:
        box = pending.pop()
        yield box
        below = [(child, max(figures[child] or 0, 0)) for child in tree.children[box.module]]
        whole = max(figures[box.module] or 0, sum(figure for _, figure in below))
        x = box.x
        for child, figure in below:
            part = box.width * figure / whole if whole else 0
            if part >= _SMALLEST:
                pending.append(Box(child, x, part, box.depth + 1))
            x += part


def error_colour(ratio: float) -> tuple[int, int, int]:
    """The colour of a signed error; red, green and blue of 0 to 255."""
    place = (max(-1.0, min(1.0, math.log2(max(1 + ratio, 1e-9)) / _FULL)) + 1) * 2
    lower = min(int(place), len(_SCALE) - 2)
    left, right = _SCALE[lower], _SCALE[lower + 1]
    mixed = [round(a + (b - a) * (place - lower)) for a, b in zip(left, right, strict=True)]
    return mixed[0], mixed[1], mixed[2]


def _mark(tree: DocumentTree, module: int) -> tuple[str, str]:
    """Fill and the text to print for a module's error."""
    ratio, low, high, source = (
        tree.column(name)[module]
        for name in ("error_ratio", "error_low", "error_high", "isolated_from")
    )
    if ratio is None or source == "partial":
        return "url(#hatch)", ""
    if low is not None and high is not None and low <= 0 <= high:
        return _hex(error_colour(0.0)), "~0"
    percent = 100 * ratio
    text = f"{percent:+.1f} %" if abs(percent) < 9.95 else f"{percent:+,.0f} %"
    return _hex(error_colour(ratio)), text.replace("-", "−")


def _drawn(tree: DocumentTree, box: Box, fill: str, error: str) -> str:
    y = _TOP + box.depth * _ROW
    path = escape(tree.paths[box.module] or tree.labels[box.module])
    parts = [
        f'<g><title>{path} {error}</title><rect x="{box.x:.2f}" y="{y}" '
        f'width="{max(box.width - (box.width > 3), _SMALLEST):.2f}" height="{_ROW - 2}" '
        f'fill="{fill}"/>'
    ]
    room = int((box.width - 14) / _LETTER)
    if room >= 2:
        label, ink = tree.labels[box.module], _ink(fill)
        shown = label if len(label) <= room else f"{label[: room - 1]}…"
        parts.append(_text(box.x + 7, y + 21, shown, ink))
        if error and len(label) + len(error) + 2 <= room:
            parts.append(_text(box.x + box.width - 8, y + 21, error, ink, anchor="end"))
    return "".join([*parts, "</g>"])


def _heading(tree: DocumentTree) -> str:
    run, view = tree.document["run"], tree.view
    title = str(run.get("workload") or tree.document["profile"])
    facts = [
        run.get("device_name"),
        run.get("dtype"),
        f"{view['deployment']} deployment",
        view["phase"],
    ]
    if view.get("step_us") is not None:
        facts.append(f"step {view['step_us']:,.0f} µs")
    line = " · ".join(str(fact) for fact in facts if fact)
    return (
        f'<text x="2" y="26" font-size="22" font-weight="600" fill="#17191e">{escape(title)}</text>'
        + _text(2, 52, line, "#5a606c")
    )


def _legend(height: int) -> str:
    steps, width = 48, 288
    x, y = 170.0, height - 30
    ramp = "".join(
        f'<rect x="{x + n * width / steps:.1f}" y="{y}" width="{width / steps + 0.5:.1f}" '
        f'height="10" fill="{_hex(error_colour(2 ** ((n / (steps - 1) * 2 - 1) * _FULL) - 1))}"/>'
        for n in range(steps)
    )
    ticks = ((0, "−88 %"), (1 / 3, "−50 %"), (0.5, "0"), (2 / 3, "+100 %"), (1, "+700 %"))
    texts = "".join(
        f'<text x="{x + at * width:.0f}" y="{y + 24}" font-size="11" fill="#5a606c" '
        f'text-anchor="middle">{text}</text>'
        for at, text in ticks
    )
    right = x + width + 20
    return (
        f"{_text(2, y + 10, 'error: alone takes less', '#5a606c')}{ramp}{texts}"
        f"{_text(right, y + 10, 'alone takes more', '#5a606c')}"
        f'<rect x="{right + 140}" y="{y - 2}" width="14" height="14" fill="url(#hatch)"/>'
        f"{_text(right + 162, y + 10, 'not measured', '#5a606c')}"
    )


def _caption(tree: DocumentTree, width_is: str, height: int) -> str:
    """What a width means, at the lower right: the legend beside it is of the colour alone."""
    text = f"width: {width_is}, µs, {tree.view['deployment']} deployment"
    return _text(WIDTH - 2, height - 20, text, "#5a606c", anchor="end")


def _text(x: float, y: float, text: str, ink: str, *, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{ink}" text-anchor="{anchor}" '
        f'unicode-bidi="isolate">{escape(text)}</text>'
    )


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _ink(fill: str) -> str:
    if not fill.startswith("#"):
        return "#17191e"
    red, green, blue = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return (
        "#17191e" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18 else "#fff"
    )
