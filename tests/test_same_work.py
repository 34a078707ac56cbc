"""Whether a module did the same work alone: casts that autocast keeps are shown by module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from cb_trace.replay.hooks import Recorder
from cb_trace.store import named_query, open_profile


class Twice(nn.Module):
    """Calls one layer twice under autocast: the second call finds its weights cast."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.once = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.once(self.again(self.again(x).float()))
        return made


def rows(folder: Path) -> dict[str, tuple[float, float, str]]:
    """casts_step, casts_alone and the words, by module."""
    model = Twice()
    options = RecordOptions(
        dtype="bf16", grad=True, warmup=1, steps=2, bare_samples=2, bare_seconds=0.0,
        replay_seconds=2.0, profiled_calls=2,
    )  # fmt: skip
    (folder / "b").mkdir()
    record(Workload("twice", model, (torch.ones(4, 8),)), folder / "b", options)
    ingest(folder / "b", folder / "p.duckdb")
    with open_profile(folder / "p.duckdb") as connection:
        found = connection.execute(named_query("same_work").sql).fetchall()
    return {row[0]: (row[6], row[7], row[9]) for row in found if row[1] == "forward"}


def test_casts_are_replayed_where_the_step_made_them_and_only_there(tmp_path: Path) -> None:
    found = rows(tmp_path)
    assert set(found) == {"", "again", "once"}
    assert {(step, alone) for step, alone, _ in found.values()} == {(0.0, 0.0)}
    assert {words for *_, words in found.values()} == {"the same"}


@pytest.mark.parametrize(
    ("casts", "shown"),
    [
        (False, {"": "in the step only", "again": "in the step only", "once": "in the step only"}),
        (True, {"again": "alone only"}),
    ],
)
def test_a_cache_in_another_state_is_shown_for_each_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, casts: bool, shown: dict[str, str]
) -> None:
    close: Callable[..., Any] = Recorder._close

    def pretend(self: Recorder, module: nn.Module, output: Any) -> None:
        close(self, module, output)
        for call in self.calls.values():
            call.casts = casts

    monkeypatch.setattr(Recorder, "_close", pretend)
    found = rows(tmp_path)
    for path, words in shown.items():
        assert f"casts or copies {words}" in found[path][2]
    assert {path for path, (*_, words) in found.items() if words != "the same"} == set(shown)
