"""Rows 7 and 12: text that is damaged, and text that is only cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trace.conftest import Loader
from tests.trace.test_reading import SOUND, reasons

DAMAGED_ENDS = {
    "closed too early": ("}", 1),
    "text": (", xyz]}", 5),
    "a text": (', "]}', 3),
    "closed inside": (', {"ph"]}', 7),
}


@pytest.mark.parametrize("case", DAMAGED_ENDS)
def test_row_7_text_that_is_no_cut_is_damage(case: str, tmp_path: Path, load: Loader) -> None:
    end, lost = DAMAGED_ENDS[case]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": SOUND})[:-2] + end)
    report = load(tmp_path / "t.json")
    assert (report.slices, report.broken, report.lost_bytes) == (3, True, lost)
    assert "truncated tail" not in reasons(report)


CUT_ENDS = [
    ', {"ph": "X", "name": "C:\\work", "args": {"a": 1}',
    ', {"ph": "X", "args": {"a": tr',
    ', {"ph": "X", "ts": 1.',
    ', {"ph": "X", "name": "\\u00',
    ", {",
    "",
    ",",
]


@pytest.mark.parametrize("end", CUT_ENDS)
def test_row_12_a_cut_event_is_no_damage(end: str, tmp_path: Path, load: Loader) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": SOUND})[:-2] + end)
    report = load(tmp_path / "t.json")
    assert (report.slices, report.truncated, report.damage) == (3, True, None)


def test_row_7_of_no_event_anything_is_left(tmp_path: Path, load: Loader) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": [1, null]}')
    assert load(tmp_path / "t.json").broken
    (tmp_path / "one.json").write_text(json.dumps({"traceEvents": [*SOUND, 1]}))
    assert not load(tmp_path / "one.json", trace_id=1).broken  # counted, as row 2 has it
