"""Sizes as a person reads them."""

from __future__ import annotations

import pytest

from cb_trace.reporters.sizes import size, with_sizes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.00 kB"),
        (240_904_704, "241 MB"),
        (23_806_312_960, "23.8 GB"),
        (-2_500_000, "-2.50 MB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_a_note_on_bytes_has_sizes() -> None:
    told = "peak 240904704 bytes above the 1798812672 that the step needs by itself"
    assert with_sizes(told) == "peak 241 MB above the 1.80 GB that the step needs by itself"
    assert with_sizes("812 bytes after the last whole event") == (
        "812 bytes after the last whole event"
    )


def test_other_notes_keep_their_numbers() -> None:
    clock = "SM clock 1980 MHz, 37 to 43 °C, after each of 1260 blocks of samples"
    assert with_sizes(clock) == clock
