"""The injections as recorded on an H200, read by today's analysis: every row as it has to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.injection import NAMES
from benchmarks.injection_check import RULES, judge

# Recordings of `spin` hold every call that asks whether the device has run dry: too large to keep.
KEPT = tuple(name for name in NAMES if name != "spin")


@pytest.mark.parametrize("name", KEPT)
def test_each_injection_moves_its_own_terms_and_no_other(sample_traces: Path, name: str) -> None:
    rows = list(judge(name, RULES[name], sample_traces / "injection"))
    assert len(rows) == len(RULES[name].moves) + 2 + (name == "gemv")
    assert [row for row in rows if row[-1] != "ok"] == []
