from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.analysis import BareStep, cost_bounds, scaled_partition, step_parts, terms
from cb_trace.bundle import Deployment
from tests.analysis.timelines import LIST, MODULE, ROOT, A, B, C, D, Timeline
from tests.frames import frame

OPS = {name: number for number, name in enumerate(["mm", "add", "gelu", "inductor"], 1)}
KINDS = ["launch", "cache", "kernel_choice", "fusion", "overlap", "contention", "idle", "residual"]
Found = dict[tuple[int, str], dict[str, int | None]]


@dataclass
class Replays:
    """Hot replays: ``add`` a record, with the kernels (op, name, dur) of each profiled call."""

    records: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, module: int, wall: int, *iterations: list[tuple[str, str, int]], **more: Any
    ) -> "Replays":
        """``busy_ns`` and ``kernel_ns`` default to the mean kernel sum."""
        id_ = len(self.records)
        total = sum(dur for kernels in iterations for *_, dur in kernels)
        mean = (2 * total + len(iterations)) // (2 * len(iterations)) if iterations else None
        row = {"replay_id": id_, "measured_id": id_, "module_id": module, "phase": "forward"}
        row |= {"condition": "hot", "call_index": 0, "calls": 1, "median_ns": wall, "samples": 5}
        row |= {"low_ns": wall, "high_ns": wall, "kernel_ns": mean, "busy_ns": mean}
        self.records.append(row | more)
        for iteration, kernels in enumerate(iterations):
            for position, (op, name, dur) in enumerate(kernels):
                kernel_id = 1000 + len(self.kernels)
                link = {"replay_id": id_, "iteration": iteration, "position": position}
                self.links.append(link | {"kernel_id": kernel_id})
                self.kernels.append(
                    {"kernel_id": kernel_id, "op_id": OPS.get(op), "name": name, "dur_ns": dur}
                )
        return self


def run(
    timeline: Timeline,
    replays: Replays,
    bare: dict[Deployment, BareStep] | None = None,
    device_type: str = "cuda",
    sequence: dict[int, list[int]] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The terms, and the partition they were held against."""
    frames = timeline.frames()
    parts = step_parts(**frames, launch=timeline.launch_frame(), device_type=device_type)
    partition = scaled_partition(parts, run_id="r", bare=bare or {})
    op = frame("op", *({"op_id": id_, "name": name} for name, id_ in OPS.items()))
    found = terms(
        partition=partition,
        cost_bounds=cost_bounds(parts, partition, MODULE, run_id="r", bare=bare or {}),
        op=op,
        replay=frame("replay", *replays.records),
        replay_kernel=frame("replay_kernel", *replays.links),
        isolated_kernel=frame("kernel", *replays.kernels),
        isolated_op=op,
        sequence=sequence_frame(sequence or {}),
        run_id="r",
        device_type=device_type,
        **{name: frames[name] for name in ("kernel", "kernel_module", "step", "module")},
    )
    return found, partition


def sequence_frame(times: dict[int, list[int]]) -> pl.DataFrame:
    """How long kernels (by place in the timeline) take in each run of the sequence."""
    rows = [(kernel, run, ns) for kernel, runs in times.items() for run, ns in enumerate(runs)]
    schema = {"kernel_id": pl.Int64, "run": pl.Int32, "ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def by_module(found: pl.DataFrame) -> Found:
    table: Found = {}
    for module, deployment, kind, ns in found.select(
        "module_id", "deployment", "kind", "ns"
    ).rows():
        table.setdefault((module, deployment), {})[kind] = ns
    assert all(list(row) == KINDS for row in table.values())
    return table


def context() -> Timeline:
    """b's kernel covers 15 of the 30 of a's second; 20 idle before a's last."""
    timeline = Timeline().step(0, 150)
    timeline.kernel(A, 0, 50, op_id=OPS["mm"], name="gemm128")
    timeline.kernel(B, 50, 15, stream=8, name="copy")
    timeline.kernel(A, 50, 30, op_id=OPS["mm"], name="gemm64")
    timeline.kernel(A, 100, 20, op_id=OPS["inductor"], name="fused")
    return timeline.kernel(B, 120, 30, name="copy")


ALONE = [("mm", "gemm128", 40), ("mm", "gemm256", 45), ("gelu", "gelu", 25)]


def test_every_term_of_one_module() -> None:
    # alone the kernels overlap by 10
    found, partition = run(context(), Replays().add(A, 300, ALONE, busy_ns=100))
    assert by_module(found) == {
        (A, "eager"): {
            "launch": 300 - 100,
            "cache": 40 - 50,
            "kernel_choice": 45 - 30,
            "fusion": 25 - 20,
            "overlap": (100 - 110) - (85 - 100),
            "contention": None,
            "idle": -20,
            "residual": None,
        }
    }
    cost = partition.filter(module_id=A)["ns"].sum()
    assert cost == 105
    assert found["ns"].sum() == 300 - cost


def test_a_sequence_run_tells_cache_contention_and_residual_apart() -> None:
    timeline = Timeline().step(0, 150)
    timeline.kernel(A, 0, 50, op_id=OPS["mm"], name="gemm128")  # alone on the device
    timeline.kernel(A, 50, 40, op_id=OPS["mm"], name="gemm128")  # beside the copy
    timeline.kernel(B, 60, 10, stream=8, name="copy")
    timeline.kernel(A, 100, 30, op_id=OPS["gelu"], name="gelu")  # not in the sequence
    timeline.kernel(A, 130, 20, op_id=OPS["add"], name="add")  # in one of two runs only
    alone = [("mm", "gemm128", 41), ("mm", "gemm128", 33), ("gelu", "gelu", 25), ("add", "add", 9)]
    found, partition = run(
        timeline, Replays().add(A, 300, alone),
        sequence={0: [47, 49], 1: [35, 35], 4: [19]},
    )  # fmt: skip
    row = by_module(found)[A, "eager"]
    assert row["contention"] == 35 - 40
    assert row["residual"] == 48 - 50
    assert row["cache"] == (41 - 48) + (33 - 35) + (25 - 30) + (9 - 20)
    assert sum(ns or 0 for ns in row.values()) == 300 - partition.filter(module_id=A)["ns"].sum()
    residual = found.filter(kind="residual").row(0, named=True)
    assert (residual["low_ns"], residual["high_ns"]) == (47 - 50, 49 - 50)


def test_a_kernel_beside_others_in_one_of_two_steps() -> None:
    timeline = Timeline().step(0, 100).step(100, 100)
    timeline.kernel(A, 0, 50, op_id=OPS["mm"], name="g", step=0)
    timeline.kernel(A, 100, 60, op_id=OPS["mm"], name="g", step=1)
    timeline.kernel(B, 110, 10, stream=8, name="copy", step=1)
    replays = Replays().add(A, 300, [("mm", "g", 40)])
    found, _ = run(timeline, replays, sequence={1: [44]})
    row = by_module(found)[A, "eager"]
    assert (row["contention"], row["residual"], row["cache"]) == ((44 - 60) / 2, (44 - 50) / 2, -4)


def test_a_module_the_sequence_knows_nothing_of_has_no_residual() -> None:
    found, _ = run(context(), Replays().add(A, 300, ALONE), sequence={1: [9]})
    row = by_module(found)[A, "eager"]
    assert (row["cache"], row["contention"], row["residual"]) == (40 - 50, None, None)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [(None, (50 - 50, None, None)), (1, (50 - 87, 0, 87 - 50))],
    ids=["in a stream", "in a graph"],
)
def test_a_copy_in_a_stream_is_not_the_copy_of_the_sequence(
    graph: int | None, expected: tuple[int | None, ...]
) -> None:
    name = "Memcpy DtoD (Device -> Device)"
    timeline = Timeline().step(0, 100)
    timeline.kernel(A, 0, 50, op_id=OPS["add"], name=name, kind="memcpy", graph_id=graph)
    found, _ = run(timeline, Replays().add(A, 300, [("add", name, 50)]), sequence={0: [87]})
    row = by_module(found)[A, "eager"]
    assert (row["cache"], row["contention"], row["residual"]) == expected


def test_a_kernel_of_the_step_without_an_operator_is_matched_by_itself() -> None:
    timeline = Timeline().step(0, 100)
    timeline.kernel(A, 0, 50, name="gemm128", step=0).kernel(A, 50, 50, name="other")
    found, _ = run(timeline, Replays().add(A, 90, ALONE))
    row = by_module(found)[A, "eager"]
    assert (row["cache"], row["kernel_choice"], row["fusion"]) == (-10, 0, 45 + 25 - 50)


def test_grid_and_block_tell_kernels_apart() -> None:
    timeline = Timeline().step(0, 100)
    timeline.kernel(A, 0, 50, op_id=OPS["mm"], name="gemm128", grid="2,1,1", block="8,1,1")
    found, _ = run(timeline, Replays().add(A, 90, [("mm", "gemm128", 40)]))
    row = by_module(found)[A, "eager"]
    assert (row["cache"], row["kernel_choice"]) == (0, -10)


def test_a_kernel_owned_in_part_is_only_in_the_step() -> None:
    timeline = Timeline().step(0, 50)
    timeline.kernel({A: 0.5, B: 0.5}, 0, 50, op_id=OPS["mm"], name="gemm128")
    replays = Replays().add(A, 90, [("mm", "gemm128", 40)]).add(ROOT, 90, [("mm", "gemm128", 40)])
    rows = by_module(run(timeline, replays)[0])
    assert (rows[A, "eager"]["cache"], rows[A, "eager"]["fusion"]) == (0, 40 - 25)
    assert (rows[ROOT, "eager"]["cache"], rows[ROOT, "eager"]["fusion"]) == (-10, 0)


def test_calls_add_up_and_kernels_are_matched_in_order() -> None:
    timeline = Timeline().step(0, 90).step(90, 90)
    for step in (0, 1):
        for call in range(3):
            timeline.kernel(
                A, step * 90 + call * 30, 20 + 2 * step, op_id=OPS["mm"], name="g", step=step
            )
            timeline.kernel(A, step * 90 + call * 30 + 22, 8, op_id=OPS["add"], name="v", step=step)
    two = [("mm", "g", 10), ("add", "v", 9)], [("mm", "g", 12), ("add", "v", 9)]
    replays = Replays().add(A, 100, *two, calls=2).add(A, 70, [("mm", "g", 15)], call_index=2)
    row = by_module(run(timeline, replays)[0])[A, "eager"]
    assert row == {
        "launch": 200 - 40 + 70 - 15,
        "cache": (22 + 15 - 63) + (18 - 16),
        "kernel_choice": 0,
        "fusion": -8,
        "overlap": 0,
        "contention": None,
        "idle": -3,
        "residual": None,
    }


def test_the_same_module_in_the_step_and_alone_has_no_terms() -> None:
    """A/A: nothing differs, nothing is named."""
    timeline = Timeline().step(0, 110)
    alone = []
    for number, (op, name, dur) in enumerate(ALONE):
        start = sum(k[2] for k in ALONE[:number])
        timeline.kernel(C if number else A, start, dur, op_id=OPS[op], name=name)
        alone.append((op, name, dur))
    replays = Replays().add(A, 110, alone, alone, alone)
    found = run(timeline, replays)[0].filter(module_id=A).drop_nulls("ns")
    assert found["ns"].to_list() == [0] * 6
    assert found["low_ns"].to_list() == found["high_ns"].to_list() == [0] * 6


def test_a_shared_measurement_is_matched_for_each_module_that_uses_it() -> None:
    timeline = Timeline().step(0, 90)
    timeline.kernel(A, 0, 50, op_id=OPS["mm"], name="g").kernel(
        B, 50, 40, op_id=OPS["mm"], name="g"
    )
    replays = (
        Replays().add(A, 60, [("mm", "g", 45)]).add(B, 60, measured_id=0, kernel_ns=45, busy_ns=45)
    )
    rows = by_module(run(timeline, replays)[0])
    assert (rows[A, "eager"]["cache"], rows[B, "eager"]["cache"]) == (-5, 5)


def test_a_module_with_a_call_that_was_not_measured_has_no_terms() -> None:
    replays = (
        Replays().add(A, 300, ALONE).add(A, 0, call_index=1, skipped="collective", median_ns=None)
    )
    assert run(context(), replays)[0].is_empty()


def test_without_a_profile_of_the_replay_only_idle_is_known() -> None:
    row = by_module(run(context(), Replays().add(A, 300))[0])[A, "eager"]
    assert row == dict.fromkeys(KINDS) | {"idle": -20}


def test_cold_replays_and_traces_without_steps_give_none() -> None:
    assert run(context(), Replays().add(A, 300, ALONE, condition="cold"))[0].is_empty()
    timeline = Timeline().kernel(A, 0, 10)
    assert run(timeline, Replays().add(A, 300, ALONE))[0].is_empty()


def test_a_container_takes_its_childrens_sums() -> None:
    timeline = Timeline().step(0, 100).kernel(D, 10, 50, op_id=OPS["mm"], name="g").call(D, 0, 5)
    replays = Replays().add(D, 70, [("mm", "g", 40)])
    rows = by_module(run(timeline, replays)[0])
    assert rows[LIST, "eager"] == rows[D, "eager"]
    assert rows[D, "eager"]["cache"] == -10
    assert (ROOT, "eager") not in rows  # it owns the idle at the edges


def test_on_a_cpu_the_step_is_scaled_to_the_bare_one() -> None:
    timeline = Timeline().step(0, 200).kernel(A, 0, 120, kind="cpu", op_id=OPS["mm"], name="mm")
    timeline.kernel(A, 140, 60, kind="cpu", op_id=OPS["add"], name="add")
    bare: dict[Deployment, BareStep] = {"eager": BareStep(100, 100, 100, 9)}
    # profiled alone 200, bare half of it
    replays = Replays().add(
        A, 95, [("mm", "mm", 110), ("add", "add", 50)], kernel_ns=80, busy_ns=80
    )
    row = by_module(run(timeline, replays, bare, "cpu")[0])[A, "eager"]
    assert row == {
        "launch": 15,
        "cache": (55 - 60) + (25 - 30),
        "kernel_choice": 0,
        "fusion": 0,
        "overlap": 0,
        "contention": None,
        "idle": -10,
        "residual": None,
    }


def test_bounds_show_what_the_samples_allow() -> None:
    timeline = Timeline()
    for step, dur in enumerate((40, 60, 50, 50)):
        timeline.step(step * 100, 100).kernel(
            A, step * 100, dur, op_id=OPS["mm"], name="g", step=step
        )
    alone = [[("mm", "g", dur)] for dur in (45, 47, 46)]
    replays = Replays().add(A, 300, *alone, low_ns=290, high_ns=320)
    found, _ = run(timeline, replays)
    rows = {kind: row for kind, *row in found.select("kind", "ns", "low_ns", "high_ns").rows()}
    launch, cache = rows["launch"], rows["cache"]
    assert launch[0] == 254
    assert 242 <= launch[1] <= 244
    assert 273 <= launch[2] <= 275
    assert cache[0] == -4
    assert -16 <= cache[1] <= -9
    assert 1 <= cache[2] <= 7
    assert rows["overlap"] == [0, 0, 0]


op_name = st.sampled_from(["mm", "add", "gelu", "inductor", ""])
alone_kernels = st.lists(
    st.tuples(op_name, st.sampled_from(["g", "h"]), st.integers(0, 30)), max_size=5
)
owner = st.sampled_from([None, ROOT, A, B, C, D, {A: 0.5, None: 0.5}, {B: 0.3, C: 0.7}])


@given(
    events=st.lists(
        st.tuples(
            owner, st.integers(0, 120), st.integers(0, 40), op_name, st.sampled_from(["g", "h"])
        ),
        max_size=12,
    ),
    records=st.lists(
        st.tuples(
            st.sampled_from([ROOT, A, B, C, D]),
            st.integers(0, 200),
            st.lists(alone_kernels, max_size=3),
            st.integers(1, 3),
            st.integers(0, 50),
        ),
        max_size=6,
    ),
    steps=st.integers(1, 3),
    bare_ns=st.integers(1, 200),
    device_type=st.sampled_from(["cuda", "cpu"]),
    sequence=st.dictionaries(
        st.integers(0, 11), st.lists(st.integers(0, 50), min_size=2, max_size=2), max_size=8
    ),
)
@settings(max_examples=30, deadline=None)
def test_the_terms_close_to_the_nanosecond(  # noqa: PLR0917 - as hypothesis calls it
    events: list[Any],
    records: list[Any],
    steps: int,
    bare_ns: int,
    device_type: str,
    sequence: dict[int, list[int]],
) -> None:
    timeline = Timeline()
    for number in range(steps):
        timeline.step(number * 45, 40)
    for of, start, dur, op, name in events:
        step = min(start // 45, steps - 1)
        timeline.kernel(of, start, dur, op_id=OPS.get(op), name=name, step=step, phase="forward")
    for module in range(MODULE.height):
        timeline.call(module, 0, 1)
    replays = Replays()
    for number, (module, wall, iterations, calls, hidden) in enumerate(records):
        replays.add(module, wall, *iterations, calls=calls, call_index=number)
        row = replays.records[-1]
        if row["busy_ns"] is not None:
            row["busy_ns"] = max(0, row["busy_ns"] - hidden)
    bare: dict[Deployment, BareStep] = {
        "eager": BareStep(bare_ns, bare_ns, bare_ns, 9),
        "graph": BareStep(20, 19, 22, 9),
    }
    found, partition = run(timeline, replays, bare, device_type, sequence)
    below = {ROOT: [*range(6)], A: [A, C], B: [B], C: [C], LIST: [LIST, D], D: [D]}
    rows = by_module(found)
    for (module, deployment), row in rows.items():
        own = [r for r in replays.records if r["module_id"] == module]
        if not own or row["launch"] is None:
            assert not own or any(r["kernel_ns"] is None for r in own)
            continue
        wall = sum(r["median_ns"] * r["calls"] for r in own)
        parts = partition.filter(pl.col("module_id").is_in(below[module]), deployment=deployment)
        assert sum(ns or 0 for ns in row.values()) == wall - parts["ns"].sum()
    for module in {r["module_id"] for r in replays.records}:
        assert (module, "eager") in rows
        assert (module, "graph") in rows
    measured = found.drop_nulls("ns")
    assert measured.filter(
        (pl.col("low_ns") > pl.col("ns")) | (pl.col("ns") > pl.col("high_ns"))
    ).is_empty()
