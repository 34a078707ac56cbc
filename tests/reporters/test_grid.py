"""Tables: names give way to a narrow terminal, figures never."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from cb_trace.reporters.grid import frame, print_table

FIGURES = ("2,213.866", "2,212.926", "0.940", "0.212")


def printed(width: int | None, name: str = "inter_arch.deep_fm.dense_module.0") -> list[str]:
    """The lines of a table of one name and four figures, in a terminal or a file."""
    table = frame()
    table.add_column("path", no_wrap=True, overflow="ellipsis")
    for head in ("self_us", "busy_us", "idle_us", "share"):
        table.add_column(head, justify="right", no_wrap=True, overflow="ellipsis")
    table.add_row(Text(name), *map(Text, FIGURES))
    text = StringIO()
    options = {"force_terminal": True, "width": width, "color_system": None} if width else {}
    print_table(table, Console(file=text, **options))  # type: ignore[arg-type]
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200, None])
def test_no_figure_is_cut(width: int | None) -> None:
    *_, row = printed(width)
    assert tuple(row.split()[-4:]) == FIGURES


def test_names_give_way_before_lines_grow_too_long() -> None:
    *_, row = printed(68)
    assert len(row) <= 68
    assert row.startswith("inter_arch.deep_fm")
    assert "…" in row
    *_, row = printed(40)
    assert row.startswith("inter_arch.deep_fm.…   2,213.866")  # cut where figures need more, too


def test_two_long_names_do_not_fill_a_narrow_terminal_several_times_over() -> None:
    """They stood whole, 200 characters each, as soon as the figures did not fit."""
    *_, row = printed(30, name="void at::native::kernel<" * 9)
    assert len(row) == 20 + 4 * 3 + 9 + 9 + 7 + 5  # the name, gaps, and figures under their heads


def test_of_several_names_the_longest_gives_way_and_none_goes_missing() -> None:
    table = frame()
    for head in ("name", "question", "variables"):
        table.add_column(head, no_wrap=True, overflow="ellipsis")
    table.add_row("isolation_error", "Which modules look most different alone?" * 2, "n")
    text = StringIO()
    print_table(table, Console(file=text, force_terminal=True, width=80, color_system=None))
    row = text.getvalue().splitlines()[-1]
    assert len(row) <= 80
    assert row.startswith("isolation_error   Which modules")
    assert row.split()[-1] == "n"
