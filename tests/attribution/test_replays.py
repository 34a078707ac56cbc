from __future__ import annotations

from typing import Any

from cb_trace.attribution import link_replays
from cb_trace.columns import polars_schema
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import work
from tests.frames import frame
from tests.kineto import annotation, kernel, launch

REPLAYS: list[dict[str, Any]] = [
    {"replay_id": 3, "measured_id": 3},
    {"replay_id": 4, "measured_id": 4},
]


def test_kernels_go_to_the_range_their_launch_is_in_by_order_of_start() -> None:
    events = events_of([
        *work("flush", 5, 1),
        annotation("cb_replay:3:0", 10, 10), launch(11, 1, 2), launch(13, 1, 3),
        kernel("second", 120, 5, 2), kernel("first", 110, 5, 3),
        annotation("cb_replay:3:1", 30, 10), *work("again", 31, 4),
        annotation("cb_replay:4:0", 50, 10), *work("backward", 55, 5, tid=300),
        annotation("cb_replay:9:0", 70, 10), *work("of nobody", 71, 6),
        annotation("cb_replay:3:x", 90, 10), *work("no replay", 91, 7),
    ])  # fmt: skip
    linked = link_replays(events, frame("replay", *REPLAYS))
    assert linked.schema == polars_schema("replay_kernel")
    named = linked.join(events.kernel.select("kernel_id", "name"), on="kernel_id")
    assert named.sort("replay_id", "iteration", "position").drop("kernel_id").rows() == [
        (3, 0, 0, "first"), (3, 0, 1, "second"), (3, 1, 0, "again"), (4, 0, 0, "backward"),
    ]  # fmt: skip


def test_a_trace_without_replays() -> None:
    assert link_replays(events_of([*work("k", 1, 1)]), frame("replay", *REPLAYS)).is_empty()
