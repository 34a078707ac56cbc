"""Hostile names become text that no terminal, browser or spreadsheet acts on."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from cb_trace.reporters.safe_text import csv_cell, markdown_cell, plain, shortened


def test_control_characters_are_shown_as_escapes() -> None:
    assert plain("a\x1b[2Jb\n\x9b\u202ec\u2028") == "a\\x1b[2Jb\\x0a\\x9b\\u202ec\\u2028"


def test_ordinary_text_is_left_alone() -> None:
    assert (
        plain("transformer.h.0 größer µ 注意 \\ [bold]")
        == "transformer.h.0 größer µ 注意 \\ [bold]"
    )


def test_long_text_keeps_both_ends() -> None:
    assert shortened("a" * 5000 + "b" * 5000, 9) == "aaaa…bbbb"
    assert shortened("abcdef", 2) == "ab"
    assert shortened("abc", 3) == "abc"


def test_markdown_reads_nothing_in_a_cell() -> None:
    assert markdown_cell("<script>|`x`") == "&lt;script&gt;\\|\\`x\\`"
    assert markdown_cell("c_attn __init__") == "c_attn \\_\\_init\\_\\_"


def test_spreadsheets_run_no_formula() -> None:
    assert csv_cell("=cmd|' /C calc'!A0") == "'=cmd|' /C calc'!A0"
    assert csv_cell("h.0") == "h.0"


@given(st.text(), st.integers(3, 50))
def test_nothing_unprintable_survives(text: str, width: int) -> None:
    shown = plain(text, width)
    assert len(shown) <= width
    assert not [c for c in shown if unicodedata.category(c)[0] == "C"]
