from typing import Any

import polars as pl

from cb_trace.analysis import other_calls, replay_figures, without_elsewhere
from tests.frames import frame

FIGURES = ["median_ns", "low_ns", "high_ns", "samples", "kernel_ns", "busy_ns"]


def record(replay_id: int, **more: Any) -> dict[str, Any]:
    given = {"replay_id": replay_id, "measured_id": replay_id, "run_id": "r", "calls": 1}
    return given | {"condition": "hot", "phase": "forward"} | more


def figures(
    records: list[dict[str, Any]],
    samples: dict[int, list[int]],
    calls: list[tuple[int, int, int]],
    kernels: list[tuple[int, int, int, int]],
    device_type: str = "cuda",
) -> list[tuple[Any, ...]]:
    """``calls``: replay, iteration, wall. ``kernels``: replay, iteration, start, dur."""
    filled = replay_figures(
        frame("replay", *records),
        frame(
            "replay_sample",
            *({"replay_id": i, "ns": ns} for i, all_ in samples.items() for ns in all_),
        ),
        frame(
            "replay_kernel",
            *(
                {"replay_id": k[0], "iteration": k[1], "kernel_id": n}
                for n, k in enumerate(kernels)
            ),
        ),
        frame(
            "kernel",
            *({"kernel_id": n, "start_ns": k[2], "dur_ns": k[3]} for n, k in enumerate(kernels)),
        ),
        frame("annotation", *_ranges(calls)),
        device_type=device_type,
    )
    assert filled["replay_id"].to_list() == [r["replay_id"] for r in records]
    return filled.select(FIGURES).rows()


def _ranges(calls: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    named = [{"name": f"cb_replay:{i}:{n}", "dur_ns": wall} for i, n, wall in calls]
    rows = [{"layer": layer} | row for row in named for layer in ("user", "gpu")]
    return [
        *rows,
        {"layer": "user", "name": "cb_replay:x:1", "dur_ns": 5},
        {"layer": "user", "name": "cb:a", "dur_ns": 5},
    ]


def test_means_over_profiled_calls() -> None:
    # 10 + 10 overlapping by 4 in one call, 5 in another, none in the third
    kernels = [(3, 0, 0, 10), (3, 0, 6, 10), (3, 1, 100, 5)]
    calls = [(3, 0, 900), (3, 1, 900), (3, 2, 900)]
    assert figures([record(3)], {3: [700]}, calls, kernels) == [(700, 700, 700, 1, 8, 7)]


def test_on_a_cpu_device_time_is_scaled_by_bare_over_profiled_wall() -> None:
    kernels = [(0, 0, 0, 300), (0, 1, 1000, 500)]
    calls = [(0, 0, 400), (0, 1, 600)]
    assert figures([record(0)], {0: [100]}, calls, kernels, "cpu") == [(100, 100, 100, 1, 80, 80)]


def test_a_shared_measurement_lends_its_figures() -> None:
    records = [record(0), record(1, measured_id=0), record(2, measured_id=0, skipped="no inputs")]
    assert figures(records, {0: [7]}, [(0, 0, 9)], [(0, 0, 0, 4)]) == [
        (7, 7, 7, 1, 4, 4),
        (7, 7, 7, 1, 4, 4),
        (None,) * 6,
    ]


def test_what_was_not_measured_stays_null() -> None:
    records = [record(0), record(1), record(2)]
    # 0: not profiled; 1: profiled, launches nothing; 2: nothing at all
    assert figures(records, {0: [7], 1: [9]}, [(1, 0, 50)], []) == [
        (7, 7, 7, 1, None, None),
        (9, 9, 9, 1, 0, 0),
        (None,) * 6,
    ]


def test_on_a_cpu_without_a_bare_time_device_time_is_unknown() -> None:
    assert figures([record(0)], {}, [(0, 0, 50)], [(0, 0, 0, 4)], "cpu") == [(None,) * 6]


def test_filling_twice_changes_nothing() -> None:
    annotation = frame("annotation", *_ranges([(0, 0, 5)]))
    empty = {name: frame(name) for name in ("replay_kernel", "kernel")}
    sample = frame("replay_sample", {"replay_id": 0, "ns": 5}, {"replay_id": 0, "ns": 9})
    once = frame("replay", record(0))
    frames: list[pl.DataFrame] = [once]
    for _ in range(2):
        frames.append(
            replay_figures(
                frames[-1],
                sample,
                empty["replay_kernel"],
                empty["kernel"],
                annotation,
                device_type="cuda",
            )
        )
    assert frames[1].equals(frames[2])
    assert frames[1]["median_ns"].to_list() == [7]


def test_modules_that_are_called_another_number_of_times_than_captured() -> None:
    """0 is called once, 1 three times when captured, then once, 2 calls itself, 3 is compiled."""
    replay = frame(
        "replay",
        record(0, module_id=0),
        record(1, module_id=1, calls=2),
        record(2, module_id=1),
        record(3, module_id=2),
        record(4, module_id=3),
        record(5, module_id=0, condition="cold"),
        record(6, module_id=0, phase="backward"),
    )
    rows = []
    for step in (0, 1):
        at = step * 10
        rows += [
            (at, None, 0, step), (at + 1, at, 1, step),
            (at + 2, at, 2, step), (at + 3, at + 2, 0, step), (at + 4, at + 3, 2, step),
        ]  # fmt: skip
    names = ("call_id", "parent_call_id", "module_id", "step")
    calls = [dict(zip(names, row, strict=True), phase="forward") for row in rows]
    calls.append({"call_id": 90, "module_id": 3, "step": None, "phase": "forward"})
    found = other_calls(replay, frame("module_call", *calls))
    assert found.rows() == [(1, 3, 1.0)]
    assert other_calls(replay, frame("module_call")).rows() == []


def test_modules_that_only_some_steps_call_are_told() -> None:
    """Of three steps 0 is in all, 1 (captured) in two, 2 (not captured) in one."""
    replay = frame("replay", record(0, module_id=0), record(1, module_id=1))
    names = ("call_id", "parent_call_id", "module_id", "step")
    rows = [
        (0, None, 0, 0), (1, 0, 1, 0), (2, None, 0, 1), (3, 2, 2, 1), (4, None, 0, 2), (5, 4, 1, 2),
    ]  # fmt: skip
    calls = [dict(zip(names, row, strict=True), phase="forward") for row in rows]
    found = other_calls(replay, frame("module_call", *calls))
    assert found.rows() == [(1, 1, 2 / 3), (2, 0, 1 / 3)]
    assert other_calls(frame("replay"), frame("module_call", *calls)).rows() == []


def test_a_module_that_calls_a_shared_one_has_no_figures_alone() -> None:
    """``b`` calls ``a.lin``, which ``a`` holds first: the step books it there, alone it is in b."""
    paths = {0: ("", None), 1: ("a", 0), 2: ("a.lin", 1), 3: ("b", 0), 4: ("c", 0)}
    module = frame(
        "module",
        *({"module_id": n, "path": path, "parent_id": up} for n, (path, up) in paths.items()),
    )
    nested = [(0, None, 0), (1, 0, 1), (2, 1, 2), (3, 0, 3), (4, 3, 2), (5, 0, 4)]
    names = ("call_id", "parent_call_id", "module_id")
    calls = [dict(zip(names, row, strict=True), phase="forward") for row in nested]
    rows = [record(n, module_id=n, median_ns=100 + n, samples=3) for n in range(4)]
    rows.append(record(4, module_id=4, skipped="no inputs were captured"))
    found = without_elsewhere(frame("replay", *rows), frame("module_call", *calls), module)
    assert found.select("module_id", "median_ns", "samples", "skipped").rows() == [
        (0, 100, 3, None), (1, 101, 3, None), (2, 102, 3, None),
        (3, None, None, "it calls a.lin, which stands elsewhere in the tree"),
        (4, None, None, "no inputs were captured"),
    ]  # fmt: skip
