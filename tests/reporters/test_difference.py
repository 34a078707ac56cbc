"""What changed between two profiles: matched by path, with intervals, sign new less base."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cb_trace.errors import CbTraceError
from cb_trace.reporters.comparison import Selection
from cb_trace.reporters.difference import (
    Change,
    Difference,
    DifferenceRow,
    Figure,
    Order,
    mismatches,
    read_difference,
    run_facts,
)
from cb_trace.reporters.difference_text import (
    difference_json,
    difference_markdown,
    flip_lines,
    print_difference,
    step_line,
)
from cb_trace.store import open_profile
from tests.conftest import Ingested
from tests.reporters.pairs import BASE_US, NEW_US, write_pair
from tests.reporters.profiles import RUN, run_row, write_profile


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"))


def read(
    pair: tuple[Path, Path], selection: Selection | None = None, order: Order = "change"
) -> Difference:
    with open_profile(pair[0]) as base, open_profile(pair[1]) as new:
        return read_difference(base, new, selection or Selection(), order)


def rows(difference: Difference) -> dict[str, DifferenceRow]:
    return {row.path: row for row in difference.rows}


def test_the_step_and_modules_change_by_new_less_base(pair: tuple[Path, Path]) -> None:
    found = read(pair)
    assert (found.step.base.value, found.step.new.value) == (BASE_US, NEW_US)
    assert (found.step.delta, found.step.low, found.step.high) == (111, 91, 131)
    assert found.step.within_noise is False
    mlp = rows(found)["h.0.mlp"].cost
    assert (mlp.base.value, mlp.new.value, mlp.delta, mlp.ratio) == (400, 480, 80, 0.2)
    assert (mlp.low, mlp.high) == pytest.approx((71.2, 88.8))


def test_a_change_inside_both_intervals_is_noise(pair: tuple[Path, Path]) -> None:
    attn = rows(read(pair))["h.0.attn"].cost
    assert (attn.delta, attn.within_noise) == (1, True)
    assert not attn.grew_beyond(0.001)


@pytest.mark.parametrize(
    ("alone", "cost", "flip"),
    [
        ((100, 120), (80, 60), "slower alone"),
        ((100, 80), (60, 80), "faster alone"),
        ((100, 120), (60, 80), None),
        ((100, 104), (80, 60), None),  # alone within noise: 2 on either side
        ((100, 120), (80, 76), None),
        ((None, 120), (80, 60), None),  # not measured alone
    ],
)
def test_a_module_may_change_one_way_alone_and_the_other_in_the_step(
    alone: tuple[int | None, int], cost: tuple[int, int], flip: str | None, pair: tuple[Path, Path]
) -> None:
    def change(values: tuple[int | None, int]) -> Change:
        both = (Figure(v, v - 2, v + 2) if v is not None else Figure(None) for v in values)
        return Change(*both)

    found = read(pair)
    row = replace(rows(found)["h.0.mlp"], isolated=change(alone), cost=change(cost))
    assert row.flip == flip
    assert len(list(flip_lines(replace(found, rows=[row])))) == (flip is not None)
    assert json.loads(difference_json(replace(found, rows=[row])))["rows"][0]["flip"] == flip


@pytest.mark.parametrize("deployment", ["eager", "graph"])
def test_a_product_rewritten_elementwise_is_slower_alone_and_cheaper_in_the_step(
    deployment: str, ingested: Ingested, sample_traces: Path
) -> None:
    """Recorded compiled on an H200: 198 µs more alone, and a step that is a third shorter."""
    base, new = (
        ingested(sample_traces / "injection" / f"gemv_{name}.zip")
        for name in ("baseline", "injected")
    )
    found = read((base, new), Selection(deployment=deployment))
    assert {row.path: row.flip for row in found.rows if row.flip} == {"head": "slower alone"}
    (line,) = flip_lines(found)
    assert line.startswith("slower alone and cheaper in the step: head (+197.7 µs alone, -")
    assert line[2:] in difference_markdown(found)
    text = StringIO()
    print_difference(found, Console(file=text, width=200))
    assert f"\n{line}\n" in text.getvalue()


def test_modules_of_one_side_are_added_and_removed(pair: tuple[Path, Path]) -> None:
    found = rows(read(pair))
    assert {path: row.presence for path, row in found.items() if row.presence != "both"} == {
        "h.0.extra": "added",
        "old": "removed",
    }
    assert (found["h.0.extra"].cost.delta, found["old"].cost.delta) == (50, -20)
    assert found["h.0.extra"].cost.ratio is None
    assert found["h.0.extra"].isolated.delta is None


def test_siblings_come_by_the_size_of_their_change(pair: tuple[Path, Path]) -> None:
    paths = [row.path for row in read(pair).rows]
    assert paths == ["", "h", "h.0", "h.0.mlp", "h.0.extra", "h.0.attn", "old", "head"]
    by_path = [row.path for row in read(pair, order="path").rows]
    assert by_path == ["", "h", "h.0", "h.0.attn", "h.0.extra", "h.0.mlp", "head", "old"]
    cut = read(pair, Selection(module="h", depth=1))
    assert [(row.path, row.depth) for row in cut.rows] == [("h", 0), ("h.0", 1)]


def test_parts_of_the_step_sum_to_it(pair: tuple[Path, Path]) -> None:
    parts = read(pair).parts
    assert sum(base or 0 for _, base, _ in parts) == BASE_US
    assert sum(new or 0 for _, _, new in parts) == NEW_US
    assert ("idle_gap", None, 81.0) in parts


def test_what_is_not_the_same_is_said_by_kind() -> None:
    base = {
        "workload": "gpt", "dtype": "bf16", "settings": '{"batch": 1, "seq": 64}',
        "device_name": "A", "sm_clock_mhz": 1980, "torch_version": "2.11", "seed": 0,
    }  # fmt: skip
    new = {**base, "settings": '{"batch": 8, "seq": 64}', "device_name": "B", "sm_clock_mhz": 1975}
    found = mismatches(base, {**new, "dtype": "fp32", "torch_version": None})
    assert [(m.what, m.base, m.new, m.kind) for m in found] == [
        ("batch", "1", "8", "work"),
        ("dtype", "bf16", "fp32", "work"),
        ("device", "A", "B", "hardware"),  # and not the clock: 1975 MHz is 1980
        ("torch", "2.11", "not known", "other"),
    ]
    assert mismatches(base, dict(base)) == []


def test_what_only_one_side_tells_is_no_other_work() -> None:
    """Somebody's trace tells no settings; its workload is the name of its file."""
    own = {"mode": "eager", "workload": "gpt", "settings": '{"batch": 1}', "sm_clock_mhz": 1980}
    trace = {"mode": None, "workload": "a"}
    assert {m.kind for m in mismatches(own, trace)} == {"work", "other"}
    assert [m.what for m in mismatches(own, trace) if m.kind == "work"] == ["workload"]
    assert mismatches(trace, {"mode": None, "workload": "b"}) == []


def test_doing_a_forward_again_is_no_other_phase() -> None:
    train = {"phases": "forward,backward,optimizer"}
    assert mismatches(train, {"phases": "forward,backward,recompute,optimizer"}) == []
    assert [m.what for m in mismatches(train, {"phases": "forward"})] == ["phases"]


def test_steps_of_other_phases_have_no_change(tmp_path: Path) -> None:
    difference = read(write_pair(tmp_path, phases="forward,backward"))
    assert difference.step.delta is None
    assert difference.parts == []
    assert rows(difference)["h.0.mlp"].cost.delta == 80
    assert step_line(difference) == (
        "step: 1,020.0 µs bare (forward) → 1,131.0 µs bare (forward, backward): "
        "two different steps, so no change of one is told"
    )


def test_a_step_under_the_profiler_is_no_change_of_a_bare_one(tmp_path: Path) -> None:
    difference = read(write_pair(tmp_path, step_bare_ns=None))
    assert difference.step.delta is None
    assert difference.parts == []
    line = step_line(difference)
    assert line.startswith("step: 1,020.0 µs bare → ")
    assert line.endswith(" µs under the profiler: not timed alike, so no change of it is told")


def test_the_phases_of_a_trace_are_those_found_in_it(tmp_path: Path) -> None:
    """Somebody's trace names none."""
    backward = {"run_id": RUN, "module_id": 4, "phase": "backward", "deployment": "eager"}
    part = backward | {"kind": "busy", "ns": 1}
    profile = write_profile(
        tmp_path / "t.duckdb", run=[run_row(phases=None, mode=None)], partition=[part]
    )
    with open_profile(profile) as connection:
        assert run_facts(connection)["phases"] == "forward,backward"


def test_two_without_a_common_phase_are_refused(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    other = write_profile(
        tmp_path / "graph.duckdb",
        partition=[
            {"run_id": RUN, "module_id": 4, "phase": "backward", "deployment": "eager",
             "kind": "busy", "ns": 1}
        ],
    )  # fmt: skip
    with open_profile(pair[0]) as base, open_profile(other) as new:
        assert read_difference(base, new, Selection()).phase == "forward"
        with pytest.raises(CbTraceError, match="do not both have backward"):
            read_difference(base, new, Selection(phase="backward"))


bounded = st.tuples(*[st.floats(0, 1e6)] * 3).map(sorted).map(lambda v: Figure(v[1], v[0], v[2]))


@given(bounded, bounded)
def test_a_change_is_noise_exactly_where_the_intervals_meet(base: Figure, new: Figure) -> None:
    meet = max(base.low or 0, new.low or 0) <= min(base.high or 0, new.high or 0)
    assert Change(base, new).within_noise is meet


@given(bounded, bounded)
def test_the_other_way_round_the_change_is_its_negative(base: Figure, new: Figure) -> None:
    there, back = Change(base, new), Change(new, base)
    assert there.delta == pytest.approx(-(back.delta or 0))
    assert there.low == pytest.approx(-(back.high or 0))


def test_a_written_change_has_no_noise_of_floating_point(tmp_path: Path) -> None:
    step = Change(Figure(1020.1), Figure(1131.408))
    assert step.delta != 111.308  # as doubles have it
    written = json.loads(difference_json(replace(read(write_pair(tmp_path)), step=step)))
    assert written["step"]["step_change_us"] == 111.308
