"""The views on small profiles: literal answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from tests.store.profiles import (
    BLOCK_0,
    BLOCK_1,
    FC_0,
    FC_1,
    HEAD,
    NET,
    Rows,
    base_rows,
    opened,
    part,
    replay,
)  # fmt: skip


def figures(connection: DuckDBPyConnection, *columns: str, key: str = "path") -> dict[str, Any]:
    rows = connection.execute(f"SELECT {key}, {', '.join(columns)} FROM compare").fetchall()
    return {row[0]: row[1:] if len(columns) > 1 else row[1] for row in rows}


def test_cost_is_inclusive_and_a_container_costs_its_children(tmp_path: Path) -> None:
    with opened(tmp_path / "p.duckdb", base_rows()) as profile:
        assert figures(profile, "cost_us", "calls") == {
            "": (95.0, 1), "blocks": (60.0, 0), "blocks.0": (25.0, 1), "blocks.0.fc": (20.0, 1),
            "blocks.1": (35.0, 1), "blocks.1.fc": (30.0, 1), "head": (10.0, 1),
        }  # fmt: skip


def test_a_module_for_which_nothing_ran_has_no_row(tmp_path: Path) -> None:
    rows = base_rows()
    for table in ("partition", "module_context"):
        rows[table] = [row for row in rows[table] if row["module_id"] != HEAD]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        assert "head" not in figures(profile, "cost_us")


def test_a_module_that_ran_without_a_part_of_the_step_costs_nothing(tmp_path: Path) -> None:
    rows = base_rows()
    rows["partition"] = [row for row in rows["partition"] if row["module_id"] != HEAD]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        assert figures(profile, "cost_us")["head"] == 0.0


def test_what_a_later_issue_computes_is_null(tmp_path: Path) -> None:
    with opened(tmp_path / "p.duckdb", base_rows()) as profile:
        assert figures(profile, "marginal_us", "knockout_us", "launch_us", "isolated_us")[""] == (
            None, None, None, None,
        )  # fmt: skip


def test_the_error_is_isolated_less_cost(tmp_path: Path) -> None:
    rows = base_rows() | {"replay": [replay(0, HEAD, 12_000, calls=2)]}
    with opened(tmp_path / "p.duckdb", rows) as profile:
        row = figures(
            profile, "isolated_us", "isolated_gpu_us", "error_us", "error_ratio", "spread"
        )
        assert row["head"] == (24.0, 12.0, 14.0, pytest.approx(1.4), pytest.approx(0.1))


def test_a_skipped_module_shows_the_sum_of_its_children(tmp_path: Path) -> None:
    measured: Rows = [
        replay(0, NET, None, skipped="out of memory"),
        replay(1, BLOCK_0, None, skipped="raised ValueError"),
        replay(2, BLOCK_1, 40_000),
        replay(3, FC_0, 22_000),
        replay(4, FC_1, None, measured_id=3),
        replay(5, HEAD, 12_000),
    ]
    with opened(tmp_path / "p.duckdb", base_rows() | {"replay": measured}) as profile:
        assert figures(profile, "isolated_us", "isolated_from") == {
            "": (74.0, "partial"),  # Linear 0, Block 1, head; own work of two is in no sum
            "blocks": (62.0, "partial"),
            "blocks.0": (22.0, "partial"),
            "blocks.0.fc": (22.0, "replay"),
            "blocks.1": (40.0, "replay"),
            "blocks.1.fc": (22.0, "shared"),
            "head": (12.0, "replay"),
        }


def test_the_sum_is_whole_where_those_above_own_no_time(tmp_path: Path) -> None:
    rows = base_rows()
    measured = [replay(0, BLOCK_0, None, skipped="raised ValueError"), replay(1, FC_0, 22_000)]
    rows["partition"] = [row for row in rows["partition"] if row["module_id"] != BLOCK_0]
    with opened(tmp_path / "p.duckdb", rows | {"replay": measured}) as profile:
        assert figures(profile, "isolated_us", "isolated_from")["blocks.0"] == (22.0, "children")


def test_a_sum_that_lacks_a_module_says_so(tmp_path: Path) -> None:
    measured = [replay(0, BLOCK_0, 22_000), replay(1, HEAD, None, skipped="out of memory")]
    with opened(tmp_path / "p.duckdb", base_rows() | {"replay": measured}) as profile:
        found = figures(profile, "isolated_us", "isolated_from")
        errors = figures(profile, "error_us", "error_ratio")
    assert found[""] == (22.0, "partial")
    assert found["head"] == (None, None)
    assert errors[""] == (None, None)  # a lower bound says nothing of the error
    assert errors["blocks.0"] == (-3.0, pytest.approx(-0.12))


def test_device_time_alone_is_never_the_sum_of_a_part(tmp_path: Path) -> None:
    """Block 0 was not profiled, and Linear 1 not timed cold: their sums are not known."""
    cold = {"condition": "cold"}
    rows = base_rows()
    rows["replay"] = [
        replay(0, BLOCK_0, 22_000, busy_ns=None), replay(1, FC_1, 40_000), replay(2, HEAD, 12_000),
        replay(3, BLOCK_0, 24_000, **cold), replay(4, FC_1, None, skipped="no room", **cold),
        replay(5, HEAD, 14_000, **cold),
        replay(6, FC_0, 5_000), replay(7, FC_0, 5_000, call_index=1, busy_ns=None),
    ]  # fmt: skip
    rows["partition"] = [row for row in rows["partition"] if row["module_id"] in {FC_0, FC_1, HEAD}]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute(
            "SELECT path, isolated_from, isolated_us, isolated_gpu_us, isolated_cold_us "
            "FROM compare"
        ).fetchall()
    assert {path: figures for path, *figures in found} == {
        "": ["children", 74.0, None, None],
        "blocks": ["children", 62.0, None, None],
        "blocks.0": ["replay", 22.0, None, 12.0],
        "blocks.0.fc": ["replay", 10.0, None, None],
        "blocks.1": ["children", 40.0, 20.0, None],
        "blocks.1.fc": ["replay", 40.0, 20.0, None],
        "head": ["replay", 12.0, 6.0, 7.0],
    }


def test_one_skipped_call_leaves_the_module_unmeasured(tmp_path: Path) -> None:
    measured = [replay(0, HEAD, 9_000), replay(1, HEAD, None, call_index=1, skipped="no input")]
    with opened(tmp_path / "p.duckdb", base_rows() | {"replay": measured}) as profile:
        assert figures(profile, "isolated_us")["head"] is None


def test_terms_stand_in_their_columns_and_sum_to_the_error(tmp_path: Path) -> None:
    kinds = {"launch": 9_000, "cache": -1_000, "kernel_choice": 0, "fusion": 0, "overlap": 500,
             "idle": -6_500, "contention": None, "residual": None}  # fmt: skip
    rows = base_rows() | {
        "replay": [replay(0, HEAD, 12_000)],
        "term": [part(HEAD, kind, 0) | {"ns": ns, "low_ns": ns, "high_ns": ns}
                 for kind, ns in kinds.items()],
    }  # fmt: skip
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = figures(profile, *(f"{kind}_us" for kind in kinds))["head"]
        assert found == (9.0, -1.0, 0.0, 0.0, 0.5, -6.5, None, None)
        assert sum(x for x in found if x is not None) == figures(profile, "error_us")["head"]


def test_each_deployment_has_its_own_rows(tmp_path: Path) -> None:
    rows = base_rows()
    rows["partition"] += [part(HEAD, "busy", 8_000, deployment="graph")]
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute(
            "SELECT deployment, cost_us FROM compare WHERE path = 'head' ORDER BY 1"
        ).fetchall()
    assert found == [("eager", 10.0), ("graph", 8.0)]


def test_the_link_carries_the_time_of_the_file(tmp_path: Path) -> None:
    rows = base_rows()
    rows["module_context"][0] |= {"ts_ns": 2_800_123_456_789_123, "dur_ns": 61_504}
    with opened(tmp_path / "p.duckdb", rows) as profile:
        link = figures(profile, "perfetto_url")[""]
    assert link.endswith("annotated.json.gz&ts=2800123456789123&dur=61504")


def test_the_step_partition_sums_to_the_step(tmp_path: Path) -> None:
    with opened(tmp_path / "p.duckdb", base_rows()) as profile:
        rows = profile.execute("SELECT path, kind, us, share FROM step_partition").fetchall()
    assert ("", "idle_host", 25.0, 0.25) in rows
    assert (None, "unattributed", 5.0, 0.05) in rows
    assert sum(row[2] for row in rows) == 100.0
    assert sum(row[3] for row in rows) == pytest.approx(1.0)


def test_coverage_places_every_nanosecond(tmp_path: Path) -> None:
    rows = base_rows() | {
        "trace": [{"trace_id": 0, "run_id": "r", "role": "context", "rank": 0},
                  {"trace_id": 1, "run_id": "r", "role": "isolated", "rank": 0}],
        "kernel": [{"kernel_id": k, "trace_id": k // 4, "dur_ns": 10 ** k} for k in range(6)],
        "kernel_module": [
            given(0, FC_0, 1), given(1, FC_0, 4), given(1, FC_1, 6),
            given(2, None, 100, method="none", reason="no launch in file"),
        ],
        "replay_kernel": [{"replay_id": 0, "iteration": 0, "position": 0, "kernel_id": 4}],
        "drop": [{"trace_id": 0, "reason": "clamped", "events": 3, "ns": 77}],
    }  # fmt: skip
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute(
            "SELECT trace_id, status, method, reason, events, ns, flaw_ns FROM coverage"
        ).fetchall()
    assert sorted(found, key=str) == [
        (0, "attributed", "range", None, 3, 11, None),
        (0, "noted", None, "clamped", 3, None, 77),
        (0, "unattributed", "none", "no launch in file", 1, 100, None),
        (0, "unattributed", None, "not examined", 1, 1000, None),
        (1, "between replays", None, None, 1, 100_000, None),
        (1, "replay", None, None, 1, 10_000, None),
    ]


def given(kernel_id: int, module_id: int | None, ns: int, **more: Any) -> dict[str, Any]:
    return {"kernel_id": kernel_id, "module_id": module_id, "ns": ns, "share": 0.5,
            "phase": "forward", "method": "range", **more}  # fmt: skip


def test_a_fused_kernel_has_a_row_a_module(tmp_path: Path) -> None:
    roles = ["context", "graph"]  # the other has the same step once more
    rows = base_rows() | {
        "trace": [{"trace_id": id_, "run_id": "r", "role": role} for id_, role in enumerate(roles)],
        "kernel": [{"kernel_id": 0, "trace_id": 0, "name": "fused", "dur_ns": 10, "step": 0},
                   {"kernel_id": 1, "trace_id": 1, "name": "fused", "dur_ns": 9, "step": 0}],
        "kernel_module": [given(0, FC_0, 4, share=0.4, bytes=80),
                          given(0, FC_1, 6, share=0.6),
                          given(1, FC_0, 4, share=0.4), given(1, FC_1, 5, share=0.6)],
    }  # fmt: skip
    with opened(tmp_path / "p.duckdb", rows) as profile:
        found = profile.execute(
            "SELECT name, modules, path, share, us, bytes FROM fused_kernel"
        ).fetchall()
    assert found == [
        ("fused", 2, "blocks.1.fc", 0.6, 0.006, None),
        ("fused", 2, "blocks.0.fc", 0.4, 0.004, 80),
    ]
