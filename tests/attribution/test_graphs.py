"""Replayed CUDA graphs against the run that was captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from cb_trace.attribution import (
    Evidence,
    Reference,
    TraceEvents,
    attribute,
    capture_modules,
    captured,
    foreign_modules,
    reference,
)
from cb_trace.attribution.graphs import paired
from tests.attribution.kineto_reader import events_of, read
from tests.attribution.outcomes import check, parts, tree, work
from tests.attribution.test_fusion import graph, node
from tests.frames import frame
from tests.kineto import Event, annotation, event, kernel, launch, module_slice, op

TREE = tree("", "a", "b")
Found = dict[str, list[tuple[str | None, str, str, int]]]


def eager(*calls: tuple[str, list[str]]) -> TraceEvents:
    """One step: each module in turn launches its kernels, all on stream 7."""
    events = [annotation("ProfilerStep#0", 0, 9000)]
    number = 0
    for place, (path, names) in enumerate(calls):
        events.append(annotation(f"cb:{path}", 100 * place + 10, 90))
        for name in names:
            number += 1
            events += work(name, 100 * place + 10 + number, number)
    return events_of(events)


def replayed(*streams: list[str], step: int = 0) -> list[Event]:
    """One graph launch; kernels of 10 µs in order on each stream, the streams side by side."""
    at, correlation = 10_000.0 * step, 1000 + step
    made = launch(at + 50, 1, correlation) | {"name": "cudaGraphLaunch"}
    events = [annotation(f"ProfilerStep#{step}", at, 9000), made]
    for stream, names in enumerate(streams):
        events += [
            kernel(name, at + 100 + 20 * place + stream, 10, correlation, stream=20 + stream)
            for place, name in enumerate(names)
        ]
    return events


def of(events: TraceEvents, module: pl.DataFrame = TREE, **more: Any) -> Reference:
    return reference(events, attribute(events, module, evidence=Evidence(**more)))


def found(context: list[Event], source: Reference, module: pl.DataFrame = TREE) -> Found:
    return parts(events_of(context), module, Evidence(reference=source))


def one(path: str | None, how: str = "graph_order") -> list[tuple[str | None, str, str, int]]:
    return [(path, "forward", how, 10_000)]


NO_MATCH = one(None, "graph, no match")


def test_kernels_of_a_graph_have_the_modules_of_the_run_that_was_captured() -> None:
    source = of(eager(("a", ["gemm", "gelu"]), ("b", ["gemm"])))
    context = [*replayed(["gemm", "gelu", "gemm"]), *replayed(["gemm", "gelu", "gemm"], step=1)]
    rows = found([*context, *work("copy input", 20, 5)], source)
    assert rows["gelu"] == one("a") * 2
    assert rows["gemm"] == one("a") * 2 + one("b") * 2
    assert rows["copy input"] == one("", "step")


def test_a_memset_that_only_the_run_had_does_not_lose_the_rest() -> None:
    source = of(eager(("a", ["gemm", "memset", "gelu"]), ("b", ["norm"])))
    assert found(replayed(["gemm", "gelu", "norm"]), source) == {
        "gemm": one("a"), "gelu": one("a"), "norm": one("b"),
    }  # fmt: skip


def test_a_kernel_that_the_run_did_not_have_is_not_guessed() -> None:
    source = of(eager(("a", ["gemm"]), ("b", ["norm"])))
    assert found(replayed(["gemm", "new", "norm"]), source) == {
        "gemm": one("a"), "new": NO_MATCH, "norm": one("b"),
    }  # fmt: skip


def test_one_of_two_equal_kernels_is_known_only_if_both_are_of_one_module() -> None:
    apart = of(eager(("a", ["gemm"]), ("b", ["gemm"])))
    together = of(eager(("a", ["gemm", "gemm"]), ("b", ["norm"])))
    assert found(replayed(["gemm"]), apart) == {"gemm": NO_MATCH}
    assert found(replayed(["gemm", "norm"]), together) == {"gemm": one("a"), "norm": one("b")}


def test_two_calls_of_one_module_leave_the_module_certain_and_the_call_not() -> None:
    source = of(eager(("a", ["gemm"]), ("a", ["gemm"])))
    rows = attribute(events_of(replayed(["gemm"])), TREE, evidence=Evidence(reference=source))
    assert rows.kernel_module.select("module_id", "call_id", "method").rows() == [
        (1, None, "graph_order")
    ]
    both = attribute(
        events_of(replayed(["gemm", "gemm"])), TREE, evidence=Evidence(reference=source)
    )
    assert both.kernel_module["call_id"].to_list() == [0, 1]


def test_the_same_name_with_another_grid_or_block_is_another_kernel() -> None:
    size = {"grid": [8, 1, 1], "block": [128, 1, 1]}
    run = eager(("a", ["gemm"]))
    first = run.kernel.with_columns(grid=pl.lit("8,1,1"), block=pl.lit("128,1,1"))
    source = Reference(first, of(run).kernel_module)

    def sized(**changes: list[int]) -> Found:
        context = replayed(["gemm"])
        context[-1]["args"] |= size | changes
        return found(context, source)

    assert sized() == {"gemm": one("a")}
    assert sized(grid=[9, 1, 1]) == sized(block=[64, 1, 1]) == {"gemm": NO_MATCH}
    assert found(replayed(["gemm"]), source) == {"gemm": one("a")}  # HIP graphs tell no grid


def test_streams_are_matched_by_what_runs_on_them() -> None:
    run = eager(("a", ["gemm", "gelu", "sum"]), ("b", ["norm", "sum"]))
    on_two = pl.when(pl.col("start_ns") >= 1_080_000).then(9).otherwise(7)
    source = Reference(run.kernel.with_columns(stream=on_two.cast(pl.Int64)), of(run).kernel_module)
    rows = found(replayed(["norm", "sum"], ["gemm", "gelu", "sum"]), source)
    assert rows["norm"] == one("b")
    assert rows["sum"] == [*one("a"), *one("b")]


def test_a_branch_that_left_the_stream_is_found_in_what_remains() -> None:
    source = of(eager(("a", ["gemm", "memset", "gelu"]), ("b", ["norm"])))
    rows = found(replayed(["gemm", "gelu", "norm"], ["memset"]), source)
    assert rows["memset"] == one("a")


def test_equal_towers_on_two_streams_cannot_be_told_apart() -> None:
    run = eager(("a", ["gemm", "gelu"]), ("b", ["gemm", "gelu"]))
    on_two = pl.when(pl.col("start_ns") >= 1_060_000).then(9).otherwise(7)
    source = Reference(run.kernel.with_columns(stream=on_two.cast(pl.Int64)), of(run).kernel_module)
    rows = found(replayed(["gemm", "gelu"], ["gemm", "gelu"]), source)
    assert rows == {"gemm": NO_MATCH * 2, "gelu": NO_MATCH * 2}


def test_node_ids_come_before_order() -> None:
    run = eager(("a", ["gemm"]), ("b", ["gemm"]))
    ids = pl.Series([11, 12], dtype=pl.Int64)
    source = Reference(run.kernel.with_columns(graph_node_id=ids), of(run).kernel_module)
    context = replayed(["gemm"])
    context[-1]["args"]["graph node id"] = 12
    assert found(context, source) == {"gemm": one("b", "graph_node")}
    context[-1]["name"] = "another"
    assert found(context, source) == {"another": NO_MATCH}


def test_shares_phases_and_reasons_are_taken_over() -> None:
    mark = annotation("## Call CompiledFxGraph key ##", 10, 80)
    nodes = [node("add", "a", 30, phase="backward"), node("mul", "b", 10, phase="recompute")]
    code = graph(("triton_0", nodes), key="key")
    run = events_of([
        annotation("ProfilerStep#0", 0, 900), mark, *work("triton_0", 20, 1), *work("odd", 30, 2),
        op("Optimizer.step#SGD", 200, 50), *work("sgd", 210, 3),
    ])  # fmt: skip
    assert found(replayed(["triton_0", "odd", "sgd"]), of(run, graphs=[code])) == {
        "triton_0": [("a", "backward", "graph_order", 7500),
                     ("b", "recompute", "graph_order", 2500)],
        "odd": one(None, "compiled, no match"),
        "sgd": [(None, "optimizer", "optimizer", 10_000)],
    }  # fmt: skip


def test_without_a_reference_the_module_is_unknown() -> None:
    rows = parts(events_of(replayed(["gemm"])), TREE, Evidence())
    assert rows == {"gemm": one(None, "graph replay, module unknown")}
    nothing = Reference(frame("kernel"), frame("kernel_module"))
    assert found(replayed(["gemm"]), nothing) == {"gemm": NO_MATCH}


def test_the_reference_is_the_last_step_that_ran_kernels() -> None:
    run = events_of([
        annotation("ProfilerStep#0", 0, 90), annotation("cb:a", 10, 50), *work("set up", 20, 1),
        annotation("ProfilerStep#1", 100, 90), annotation("cb:b", 110, 50), *work("gemm", 120, 2),
        annotation("ProfilerStep#2", 200, 90), *work("after", 400, 3),
    ])  # fmt: skip
    assert of(run).kernel["name"].to_list() == ["gemm"]


# --- captures of serving engines: launched, never run -------------------------------------------


def hip(name: str, at: float, correlation: int) -> Event:
    size = {"grid": [4, 1, 1], "block": [64, 1, 1]}
    return launch(at, 1, correlation, kernel=name, **size) | {"name": "hipLaunchKernel"}


def call(name: str, at: float) -> Event:
    return event("cuda_runtime", name, at, 1)


CAPTURE = [
    module_slice("Net_0", 0, 500, 1, None), module_slice("Linear_0", 100, 50, 2, 1),
    module_slice("Norm_0", 200, 50, 3, 1),
    hip("warm up", 20, 1), kernel("warm up", 30, 5, 1),
    call("hipStreamBeginCapture", 90), hip("gemm", 110, 2), hip("norm", 210, 3),
    call("hipStreamEndCapture", 300), hip("late", 310, 4),
]  # fmt: skip


def test_launches_under_capture_that_did_not_run_are_its_kernels() -> None:
    kernels = captured(events_of(CAPTURE)).kernel
    assert kernels.select("name", "grid", "block", "graph_id").rows() == [
        ("gemm", "4,1,1", "64,1,1", 1), ("norm", "4,1,1", "64,1,1", 1),
    ]  # fmt: skip
    unbounded = events_of([e for e in CAPTURE if "Capture" not in e["name"]])
    assert captured(unbounded).kernel["name"].to_list() == ["gemm", "norm", "late"]


def test_of_several_captures_the_one_that_fits_counts() -> None:
    second = [
        module_slice("Other_0", 600, 500, 4, None),
        call("hipStreamBeginCapture", 690), hip("gemm", 710, 12), hip("gelu", 720, 13),
        hip("norm", 730, 14), call("hipStreamEndCapture", 800),
    ]  # fmt: skip
    events = captured(events_of([*CAPTURE, *second]))
    module = foreign_modules(events, run_id="r")
    source = reference(events, attribute(events, module, root_glue=False))
    short = found(replayed(["gemm", "norm"]), source, module)
    assert short["gemm"] == NO_MATCH  # either capture has both
    full = found(replayed(["gemm", "gelu", "norm"]), source, module)
    assert [rows[0][0] for rows in full.values()] == ["Other_0"] * 3
    in_turn = found(replayed(["gemm", "norm", "gemm", "gelu", "norm"]), source, module)
    assert in_turn["norm"] == [*one("Net_0.Norm_0"), *one("Other_0")]


def test_the_modules_of_a_capture_join_those_of_the_trace() -> None:
    own = foreign_modules(events_of([module_slice("Sampler_0", 0, 9, 1, None)]), run_id="r")
    theirs = foreign_modules(events_of(CAPTURE), run_id="r", first_module_id=2)
    added = capture_modules(own, theirs)
    assert added.select("module_id", "parent_id", "path").rows() == [
        (3, 0, "Net_0"), (4, 3, "Net_0.Linear_0"), (5, 3, "Net_0.Norm_0"),
    ]  # fmt: skip
    assert capture_modules(own.clear(), theirs).equals(theirs)
    again = capture_modules(foreign_modules(events_of(CAPTURE), run_id="r"), theirs)
    assert again["path"].to_list() == [
        "(capture).Net_0", "(capture).Net_0.Linear_0", "(capture).Net_0.Norm_0",
    ]  # fmt: skip


# --- real traces --------------------------------------------------------------------------------


def test_a_real_decode_graph_has_the_modules_of_its_capture(shared_traces: Path) -> None:
    """All 544 kernels; the check beside names is the shape of the model: 36 equal layers."""
    capture = captured(read(shared_traces / "public/mi300_sglang_decode_capture.json.gz"))
    context = read(shared_traces / "public/mi300_sglang_decode_graph.json.gz")
    module = foreign_modules(capture, run_id="r")
    source = reference(capture, attribute(capture, module, root_glue=False))
    result = attribute(context, module, root_glue=False, evidence=Evidence(reference=source))
    check(context, result)
    rows = result.kernel_module.filter(pl.col("method") == "graph_order").join(
        module.select("module_id", "path"), on="module_id"
    )
    assert rows.height == 544
    layer = pl.col("path").str.extract(r"Qwen3DecoderLayer_(\d+)")
    kinds = pl.col("path").str.extract_all(r"\.([A-Za-z]+)").list.join("")
    layers = rows.with_columns(layer=layer).drop_nulls("layer").sort("kernel_id")
    shapes = layers.filter(~pl.col("path").str.contains("RotaryEmbedding")).group_by("layer").agg(
        kinds.alias("kinds")
    )  # fmt: skip
    assert shapes.height == 36
    assert shapes["kinds"].n_unique() == 1


def test_a_real_graph_of_compiled_code_is_that_codes_run(shared_traces: Path) -> None:
    """Both of one model: each kernel of the graph is paired with the run's of the same place."""
    run = read(shared_traces / "h200/gpt_compiled.json.gz")
    context = read(shared_traces / "h200/gpt_cudagraph.json.gz")
    place = pl.int_range(pl.len(), dtype=pl.Int32)
    step = run.kernel.filter(pl.col("step") == 1).sort("start_ns")
    rows = step.select("kernel_id", module_id=place, share=pl.lit(1.0))
    empty = frame("kernel_module")
    source = Reference(step, pl.concat([empty, rows], how="diagonal_relaxed"))
    graphs = context.launch.filter(pl.col("name") == "cudaGraphLaunch")
    kernels = context.kernel.join(graphs, on="launch_id", how="semi").sort("start_ns")
    found = kernels.select("kernel_id", "step").join(
        paired(kernels, source), on="kernel_id", maintain_order="left"
    )
    assert found.height == kernels.height == 2 * step.height == 464
    for number in (0, 1):
        assert found.filter(pl.col("step") == number)["from_id"].equals(step["kernel_id"])
