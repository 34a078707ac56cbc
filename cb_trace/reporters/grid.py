"""Tables in the house style, in a terminal of any width and in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NAME_ROOM = 20  # what a name should have before figures are left out
GAP = 3  # between columns: two of padding, one where a line could stand


def frame() -> Table:
    """An empty table in the house style."""
    from rich import box
    from rich.table import Table

    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
    )


def print_table(table: Table, console: Console) -> None:
    """Print a table after an empty line; in a file without blanks at the ends of its lines.

    Where a terminal is too narrow for all figures, names are cut as far as they go and its lines
    are longer than it is.
    """
    console.print()
    widths = _fitted(table, console.width) if console.is_terminal else _widths(table)
    if console.is_terminal and _line_width(widths) <= console.width:
        for column, width in zip(table.columns, widths, strict=True):
            column.min_width = column.max_width = width
        console.print(table)
    else:
        console.file.write("".join(f"{line}\n" for line in _plain_lines(table, widths)))


def _fitted(table: Table, room: int) -> list[int]:
    """Let names give way, figures never: a figure without its end is another figure."""
    widths = _widths(table)
    names = {
        place: min(widths[place], column.max_width or NAME_ROOM)
        for place, column in enumerate(table.columns)
        if column.justify != "right"
    }
    while _line_width(widths) > room:
        place = max(names, key=lambda one: widths[one] - names[one], default=None)
        if place is None or widths[place] == names[place]:
            break
        widths[place] -= 1
    return widths


def _line_width(widths: list[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _widths(table: Table) -> list[int]:
    from rich.cells import cell_len

    columns = ((column.header, *column.cells) for column in table.columns)
    return [max(cell_len(str(cell)) for cell in cells) for cells in columns]


def _plain_lines(table: Table, widths: list[int]) -> Iterator[str]:
    """What rich would draw in a terminal that is wide enough, in a fiftieth of its time."""
    from rich.cells import cell_len

    columns = [
        [_cut(str(cell), width) for cell in (column.header, *column.cells)]
        for column, width in zip(table.columns, widths, strict=True)
    ]
    right = [column.justify == "right" for column in table.columns]
    for number, row in enumerate(zip(*columns, strict=True)):
        blank = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        aligned = [
            pad + cell if at_right else cell + pad
            for cell, pad, at_right in zip(row, blank, right, strict=True)
        ]
        yield (" " * GAP).join(aligned).rstrip()
        if number == 0:
            yield "─" * _line_width(widths)


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"
