"""A hand-made bundle: one Linear in a Net, three steps, and the Linear replayed alone.

In each step of 100 µs the Linear runs a matmul of 30 µs and the Net an addition of 20 µs of its
own. Alone the Linear takes 50 µs by the wall and its matmul 25 µs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cb_trace.bundle import (
    Manifest,
    ModuleRecord,
    ReplayRecord,
    RunRecord,
    StepSamples,
    TraceRecord,
    file_sha256,
    write_bundle,
)
from cb_trace.range_names import range_name, replay_range
from tests.kineto import STREAM, Event, annotation, event, kernel, launch, op, write_trace

STEPS = 3


def run_record(**more: Any) -> RunRecord:
    given: dict[str, Any] = {
        "run_id": "r1", "created_at": "2026-11-29T12:00:00+02:00", "workload": "net",
        "provider": None, "settings": {"batch": 4}, "mode": "eager", "phases": ["forward"],
        "dtype": "fp32", "seed": 0, "device_type": "cuda", "device_name": "NVIDIA H200",
        "tool_version": "0.1.0", "torch_version": "2.11.0", "python_version": "3.11.7",
    }  # fmt: skip
    return RunRecord(**given | more)


def module_record(path: str, class_name: str, parent: str | None, ordinal: int) -> ModuleRecord:
    return ModuleRecord(
        path=path, class_name=class_name, parent=parent, depth=ordinal, ordinal=ordinal,
        parameters=8, parameter_bytes=32, buffer_bytes=0, signature=class_name,
    )  # fmt: skip


def step_events(
    number: int,
    *,
    gemm_us: float = 30,
    second: tuple[float, float] = (20, 5),
    add: tuple[float, float] = (40, 20),
    add_stream: int = STREAM,
) -> list[Event]:
    """One step from ``number`` × 200 µs on; its correlation ids start at ``number`` × 10.

    :param second: where the second operator begins, and how long its launch takes.
    :param add: where its kernel begins, and how long that takes.
    """
    at, first = 1000.0 + 200 * number, 10 * number + 1
    return [
        annotation(f"ProfilerStep#{number}", at, 100),
        annotation("cb:<root>", at, 40),
        annotation(range_name("fc"), at + 1, 15),
        op("aten::mm", at + 2, 12),
        launch(at + 3, 5, first),
        kernel("gemm", at + 10, gemm_us, first),
        op("aten::add", at + second[0], 12),
        launch(at + second[0] + 1, second[1], first + 1),
        kernel("add", at + add[0], add[1], first + 1, stream=add_stream),
    ]


def sequence_events(
    number: int, step_us: float, gemm_us: float, add: tuple[float, float]
) -> list[Event]:
    """A replay of the graph on one stream; ``add``: where the second kernel begins, how long."""
    at, correlation = 9000.0 + 200 * number, 500 + number
    return [
        annotation(f"ProfilerStep#{number}", at, step_us),
        event("cuda_runtime", "cudaGraphLaunch", at + 1, 5, correlation=correlation),
        kernel("gemm", at + 10, gemm_us, correlation),
        kernel("add", at + add[0], add[1], correlation),
    ]


def replay_events(iteration: int) -> list[Event]:
    at, correlation = 5000.0 + 100 * iteration, 100 + iteration
    return [
        annotation(replay_range(0, iteration), at, 60),
        op("aten::mm", at + 2, 12),
        launch(at + 3, 5, correlation),
        kernel("gemm", at + 10, 25, correlation),
    ]


def write_net_bundle(folder: Path, **changes: Any) -> Path:
    """Write the bundle; ``changes`` replace fields of the manifest."""
    folder.mkdir()
    context = [event for number in range(STEPS) for event in step_events(number)]
    alone = [event for iteration in range(2) for event in replay_events(iteration)]
    traces = []
    for role, events in (("context", context), ("isolated", alone)):
        file = write_trace(folder / f"{role}.json.gz", events, baseTimeNanoseconds=0)
        traces.append(TraceRecord(file=file.name, role=role, sha256=file_sha256(file)))  # type: ignore[arg-type]
    given: dict[str, Any] = {
        "run": run_record(),
        "modules": [module_record("", "Net", None, 0), module_record("fc", "Linear", "", 1)],
        "traces": traces,
        "step_samples": [
            StepSamples(kind="bare", deployment="eager", ns=[80_000] * 5),
            StepSamples(kind="bare_after", deployment="eager", ns=[90_000] * 5),
            StepSamples(kind="profiled", deployment="eager", ns=[100_000] * 3),
        ],
        "replays": [
            ReplayRecord(replay_id=0, path="fc", phase="forward", condition="hot", call_index=0,
                         calls=1, measured_id=0, samples_ns=[50_000] * 5, calls_per_sample=10,
                         profiled_calls=2),
        ],
    }  # fmt: skip
    write_bundle(folder, Manifest(**given | changes))
    return folder
