"""A recording with modules taken out and sped up, from the options to the sentence on a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cb_trace.bundle import KnockoutRecord, Manifest, open_bundle
from cb_trace.capture.changed import VISITS, _both_visits, _wants_visit
from cb_trace.capture.options import RecordOptions
from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.errors import CbTraceError
from cb_trace.providers.workload import Workload
from cb_trace.replay.knockout import SPENT, Job, KnockoutOptions
from cb_trace.store import open_profile


def recorded(folder: Path, **options: Any) -> Manifest:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8), nn.Flatten(0)).eval()
    folder.mkdir()
    given: dict[str, Any] = {"bare_seconds": 0.05, "bare_samples": 5, "replay_seconds": 0.4}
    workload = Workload("net", model, (torch.randn(16, 32),))
    return record(workload, folder, RecordOptions(**given | options))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed")
    recorded(
        folder / "net",
        knockout=KnockoutOptions(top=1, paths=("1", "3"), budget_seconds=1.5, min_pairs=3),
        speedups=(Job("0", 2), Job("2", 4), Job("3", 2)),
    )
    return ingest(folder / "net", folder / "net.duckdb").profile


def rows(profile: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_profile(profile) as connection:
        return connection.execute(sql).fetchall()


def test_every_module_asked_for_is_taken_out(profile: Path) -> None:
    # Of the bundle: whether the step had the bare one's speed meanwhile is up to the machine.
    records = open_bundle(profile.parent / "net").manifest.knockouts
    found = {r.path: (len(r.base_ns) >= 3, r.skipped) for r in records if r.path in ("1", "3")}
    assert found == {
        "1": (True, None),
        "3": (False, "its output shares memory with its inputs"),
    }
    assert {"1", "3"} <= {r.path for r in records}
    assert rows(profile, "SELECT count(*) FROM knockout") == [(len(records),)]


def test_every_module_is_visited_in_every_other_turn(tmp_path: Path) -> None:
    options = KnockoutOptions(paths=("1", "2", "3"), budget_seconds=1.5, min_pairs=9)
    manifest = recorded(tmp_path / "net", knockout=options)
    by_path = {record.path: record for record in manifest.knockouts}
    assert list(by_path) == ["1", "2", "3"]
    for path in ("1", "2"):
        record = by_path[path]
        assert len(record.visits) == len(VISITS) == 3
        assert sum(record.visits) == len(record.base_ns) == len(record.knocked_ns)
        assert min(record.visits) >= 3
    assert by_path["3"].visits == []


def test_visits_of_one_module_are_one_record() -> None:
    def visit(*base: int, skipped: str | None = None) -> KnockoutRecord:
        return KnockoutRecord(
            path="a", phase="forward", deployment="graph", base_ns=list(base),
            knocked_ns=[ns - 1 for ns in base], dropped=1, visits=[len(base)] if base else [],
            skipped=skipped,
        )  # fmt: skip

    spent = visit(skipped=f"{SPENT}3 s spent")
    both = _both_visits(visit(10, 11), visit(12))
    assert (both.base_ns, both.knocked_ns) == ([10, 11, 12], [9, 10, 11])
    assert (both.visits, both.dropped) == ([2, 1], 2)
    assert _both_visits(spent, visit(10)) == visit(10)
    assert _both_visits(visit(10), spent) == visit(10)
    assert _wants_visit({})
    assert _wants_visit({"graph": spent})
    assert not _wants_visit({"graph": visit(skipped="its output shares memory with its inputs")})


def test_what_a_faster_module_gains_stands_beside_the_prediction(profile: Path) -> None:
    found = rows(
        profile,
        "SELECT path, factor, samples >= 3, low_ns <= saved_ns AND saved_ns <= high_ns, "
        "predicted_low_ns <= predicted_ns AND predicted_ns <= predicted_high_ns, skipped "
        "FROM speedup JOIN module USING (module_id) ORDER BY path",
    )
    assert found == [
        ("0", 2, True, True, True, None),
        ("2", 4, True, True, True, None),
        ("3", 2, None, None, True, "its output shares memory with its inputs"),
    ]


def test_the_prediction_is_that_of_whatif(profile: Path) -> None:
    from cb_trace.whatif import parse_setting, what_if

    (outcome,) = what_if(profile, [parse_setting("2=0.25x")])
    (stored,) = rows(
        profile, "SELECT predicted_ns FROM speedup JOIN module USING (module_id) WHERE path = '2'"
    )
    assert stored == (outcome.saved_ns,)


def test_what_a_module_costs_on_a_cpu_is_what_the_step_loses_without_it(profile: Path) -> None:
    from cb_trace.whatif import Wish, what_if

    ((path, cost, step),) = rows(
        profile,
        "SELECT path, cost_us, (SELECT cost_us FROM compare WHERE path = '') FROM compare "
        "WHERE path = '2'",
    )
    (without,) = what_if(profile, [Wish("remove", path)])
    assert without.now_ns == round(step * 1e3)
    assert without.saved_ns == pytest.approx(cost * 1e3, abs=1)
    assert without.low_ns <= without.then_ns <= without.high_ns
    *_, both = what_if(profile, [Wish("remove", ""), Wish("set", "2", 0.5)])
    assert both.then_ns == 0


def test_a_module_that_the_model_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match=r"no module 'h\.0' to take out or speed up"):
        recorded(tmp_path / "net", speedups=(Job("h.0", 2),))


def test_one_factor_a_module(tmp_path: Path) -> None:
    with pytest.raises(CbTraceError, match="is sped up twice"):
        recorded(tmp_path / "net", speedups=(Job("0", 2), Job("0", 4)))
