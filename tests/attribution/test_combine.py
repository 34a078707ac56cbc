"""Every mechanism but autograd, on traces small enough to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from cb_trace.attribution import TraceEvents, attribute
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import outcomes, tree, work
from tests.frames import frame
from tests.kineto import Event, annotation, event, kernel, launch, module_slice, op


def recording(*extra: Event) -> TraceEvents:
    """One step: the root calls ``a``, which calls ``a.b``; other work around them."""
    return events_of([
        annotation("ProfilerStep#0", 10, 80),
        annotation("cb:<root>", 20, 40),
        annotation("cb:a", 22, 20),
        annotation("cb:a.b", 25, 10),
        *work("in b", 26, 1),
        *work("after b", 36, 2),
        *work("in root", 50, 3),
        *work("loss", 70, 4),
        *work("warm-up", 5, 5),
        *extra,
    ])  # fmt: skip


TREE = ("", "a", "a.b")


def test_ranges_and_glue_of_our_own_recording() -> None:
    assert outcomes(recording(), tree(*TREE)) == {
        "in b": ("a.b", "forward", "range"),
        "after b": ("a", "forward", "range"),
        "in root": ("", "forward", "range"),
        "loss": ("", "forward", "step"),
        "warm-up": (None, "forward", "outside every step"),
    }


def test_a_foreign_trace_has_no_glue_and_needs_no_step() -> None:
    events = recording(annotation("cb:a", 2, 5))
    found = outcomes(events)
    assert found["loss"] == (None, "forward", "outside any module")
    assert found["warm-up"] == ("a", "forward", "range")


def test_without_steps_all_of_our_recording_counts() -> None:
    events = events_of([annotation("cb:<root>", 0, 5), *work("before", 1, 1), *work("after", 9, 2)])
    assert outcomes(events, tree("")) == {
        "before": ("", "forward", "range"),
        "after": ("", "forward", "step"),
    }


def test_a_range_of_an_unknown_module_is_passed_over() -> None:
    assert outcomes(recording(), tree("", "a"))["in b"] == ("a", "forward", "range")


def test_a_further_path_of_a_shared_module_names_it() -> None:
    shared = tree("", "x").with_columns(aliases=pl.Series([None, '["a"]']))
    assert outcomes(recording(), shared)["after b"] == ("x", "forward", "range")


def test_the_same_instant_on_another_thread_is_not_in_the_module() -> None:
    events = recording(*work("loader", 26, 6, tid=200))
    assert outcomes(events, tree(*TREE))["loader"] == ("", "forward", "step")


def test_calls_have_parents_indices_and_steps() -> None:
    events = events_of([
        annotation("ProfilerStep#7", 10, 20),
        annotation("cb:<root>", 11, 10),
        annotation("cb:a", 12, 2),
        annotation("cb:a", 15, 2),
        annotation("ProfilerStep#8", 30, 20),
        annotation("cb:a", 31, 2),
        annotation("cb:a", 2, 2),
    ])  # fmt: skip
    calls = attribute(events, tree("", "a"), first_call_id=40).module_call
    columns = ["call_id", "module_id", "parent_call_id", "step", "call_index", "start_ns", "dur_ns"]
    assert calls.select(columns).rows() == [
        (40, 1, None, None, 0, 2000, 2000),
        (41, 0, None, 0, 0, 11000, 10000),
        (42, 1, 41, 0, 0, 12000, 2000),
        (43, 1, 41, 0, 1, 15000, 2000),
        (44, 1, None, 1, 0, 31000, 2000),
    ]
    assert calls["phase"].unique().to_list() == ["forward"]


def test_module_slices_go_by_their_stated_parents() -> None:
    events = events_of([
        module_slice("Net_0", 0, 100, 1, None),
        event("python_function", "forward", 1, 90, **{"Python id": 2, "Python parent id": 1}),
        module_slice("Linear_0", 10, 20, 3, 2),
        *work("linear", 15, 1),
        *work("glue", 50, 2),
        *work("outside", 200, 3),
    ])  # fmt: skip
    assert outcomes(events) == {
        "linear": ("Net_0.Linear_0", "forward", "python"),
        "glue": ("Net_0", "forward", "python"),
        "outside": (None, "forward", "outside any module"),
    }


def test_row_23_a_frame_without_return_ends_with_its_stated_parent() -> None:
    events = events_of([
        module_slice("Net_0", 0, 50, 1, None),
        module_slice("Linear_0", 10, 500, 2, 1),
        module_slice("Loss_0", 60, 10, 3, None),
        *work("linear", 15, 1), *work("loss", 65, 2), *work("outside", 55, 3),
    ])  # fmt: skip
    found = outcomes(events)
    assert found["linear"][0] == "Net_0.Linear_0"
    assert found["loss"][0] == "Loss_0"
    assert found["outside"][0] is None


def test_row_21_an_annotation_is_never_clipped_to_a_python_frame() -> None:
    """The builtin frame around ``record_function`` ends inside the annotation (M1)."""
    events = events_of([
        event("python_function", "_record_function_enter_new", 9, 3, **{"Python id": 1}),
        module_slice("Net_0", 9, 3, 2, 1),
        annotation("cb:<root>", 10, 50),
        *work("late", 40, 1),
    ])  # fmt: skip
    assert outcomes(events) == {"late": ("", "forward", "range")}


def test_row_27_any_launch_name_counts_and_row_28_a_graph_launch_does_not() -> None:
    graph = launch(30, 1, 8) | {"name": "hipGraphLaunch"}
    driver = launch(31, 1, 9) | {"name": "cuLaunchKernelEx", "cat": "cuda_driver"}
    events = recording(graph, kernel("g1", 2000, 5, 8), kernel("g2", 2010, 5, 8),
                       driver, kernel("driver", 2020, 5, 9))  # fmt: skip
    found = outcomes(events, tree(*TREE))
    assert found["g1"] == found["g2"] == (None, "forward", "graph replay, module unknown")
    assert found["driver"] == ("a.b", "forward", "range")


def test_row_33_no_correlation_is_no_link() -> None:
    events = recording(launch(26, 1, 0), kernel("zero", 2000, 5, 0), kernel("lost", 2010, 5, 77))
    found = outcomes(events, tree(*TREE))
    assert found["zero"] == found["lost"] == (None, "forward", "no launch in file")


def test_row_16_lost_timing_comes_before_everything() -> None:
    events = recording()
    flawed = pl.when(pl.col("name") == "in b").then(pl.lit("lost timing")).alias("flaw")
    events = replace(events, kernel=events.kernel.with_columns(flawed))
    assert outcomes(events, tree(*TREE))["in b"] == (None, "forward", "lost timing")


def test_collectives_belong_to_the_module_around_them_else_to_communication() -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    inside = outcomes(recording(*work(name, 26, 6)), tree(*TREE))
    outside = outcomes(recording(*work(name, 70, 6)), tree(*TREE))
    assert inside[name] == ("a.b", "forward", "range")
    assert outside[name] == (None, "forward", "communication")


@pytest.mark.parametrize("begin", [0, -1000])
def test_a_kernel_without_a_launch_comes_after_no_backward(begin: float) -> None:
    """Nothing tells when it was set off, wherever the trace's own clock begins."""
    events = events_of([
        op("aten::mm", begin + 10, 5, **{"Sequence number": 1}),
        op("MmBackward0", begin + 30, 10, **{"Sequence number": 1, "Fwd thread id": 1}),
        kernel("lost", begin + 50, 1, 99),
    ])  # fmt: skip
    assert outcomes(events) == {"lost": (None, "forward", "no launch in file")}


def test_the_optimizer_is_its_own_phase() -> None:
    events = recording(
        annotation("Optimizer.step#AdamW.step", 75, 10),
        *work("adam", 76, 6),
        op("Optimizer.zero_grad#AdamW.zero_grad", 86, 2),
        *work("zero", 87, 7),
    )
    found = outcomes(events, tree(*TREE))
    assert found["adam"] == found["zero"] == (None, "optimizer", "optimizer")


def test_a_closure_run_by_the_optimizer_keeps_its_modules() -> None:
    events = events_of([
        annotation("Optimizer.step#LBFGS.step", 0, 100),
        annotation("cb:<root>", 10, 20),
        *work("forward", 15, 1),
        *work("update", 50, 2),
    ])  # fmt: skip
    assert outcomes(events, tree("")) == {
        "forward": ("", "forward", "range"),
        "update": (None, "optimizer", "optimizer"),
    }


def test_cpu_work_goes_by_its_own_start_on_its_own_thread() -> None:
    rows: list[dict[str, Any]] = [
        {"kernel_id": 1, "kind": "cpu", "name": "mm", "thread": 0, "start_ns": 26_000, "dur_ns": 5,
         "step": 0},
        {"kernel_id": 2, "kind": "cpu", "name": "copy", "thread": 9, "start_ns": 26_000,
         "dur_ns": 5, "step": 0},
    ]  # fmt: skip
    events = replace(recording(), kernel=frame("kernel", *rows))
    assert outcomes(events, tree(*TREE)) == {
        "mm": ("a.b", "forward", "range"),
        "copy": ("", "forward", "step"),
    }


def test_an_empty_trace_gives_empty_tables() -> None:
    attributed = attribute(events_of([]), tree(""))
    assert attributed.kernel_module.is_empty()
    assert attributed.module_call.is_empty()
