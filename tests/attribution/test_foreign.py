"""Module trees of traces that came without one."""

from __future__ import annotations

import json

import polars as pl

from cb_trace.attribution import foreign_modules
from cb_trace.attribution.autograd import EVALUATION
from cb_trace.attribution.slices import MOST_DEEP
from cb_trace.columns import polars_schema
from cb_trace.range_names import range_name
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import outcomes, work
from tests.kineto import Event, annotation, module_slice, op


def modules(*slices: Event, first: int = 0) -> pl.DataFrame:
    return foreign_modules(events_of(list(slices)), run_id="r", first_module_id=first)


def test_slices_make_paths_of_instances() -> None:
    found = modules(
        module_slice("GPT_0", 0, 100, 1, None),
        module_slice("Block_0", 10, 30, 2, 1),
        module_slice("Linear_0", 20, 5, 3, 2),
        module_slice("Block_1", 50, 30, 4, 1),
        module_slice("Linear_1", 60, 5, 5, 4),
        module_slice("Linear_1", 70, 5, 6, 4),
        first=5,
    )
    assert found.schema == polars_schema("module")
    assert found.select("module_id", "path", "class", "parent_id", "depth").rows() == [
        (5, "", "(trace)", None, 0),
        (6, "GPT_0", "GPT", 5, 1),
        (7, "GPT_0.Block_0", "Block", 6, 2),
        (8, "GPT_0.Block_0.Linear_0", "Linear", 7, 3),
        (9, "GPT_0.Block_1", "Block", 6, 2),
        (10, "GPT_0.Block_1.Linear_1", "Linear", 9, 3),
    ]


def shared() -> list[Event]:
    """``Norm_0`` is called by two modules and by the script; it calls a ``Linear_0`` of its own."""
    return [
        module_slice("A_0", 0, 10, 1, None),
        module_slice("Norm_0", 1, 8, 2, 1), module_slice("Linear_0", 2, 6, 3, 2),
        *work("in a", 3, 1),
        module_slice("B_0", 20, 10, 4, None),
        module_slice("Norm_0", 21, 8, 5, 4), module_slice("Linear_0", 22, 3, 6, 5),
        *work("in b", 23, 2), *work("norm of b", 27, 3),
        module_slice("Norm_0", 40, 8, 7, None), *work("of the script", 42, 4),
    ]  # fmt: skip


def test_an_instance_of_several_callers_is_a_module_under_each() -> None:
    found = modules(*shared())
    assert found.select("module_id", "path", "parent_id", "depth", "signature").rows() == [
        (0, "", None, 0, None),
        (1, "A_0", 0, 1, "nn.Module: A_0"),
        (2, "A_0.Norm_0", 1, 2, "nn.Module: Norm_0"),
        (3, "A_0.Norm_0.Linear_0", 2, 3, "nn.Module: Linear_0"),
        (4, "B_0", 0, 1, "nn.Module: B_0"),
        (5, "B_0.Norm_0", 4, 2, "nn.Module: Norm_0"),
        (6, "B_0.Norm_0.Linear_0", 5, 3, "nn.Module: Linear_0"),
        (7, "Norm_0", 0, 1, "nn.Module: Norm_0"),
    ]
    aliases = {path: json.loads(text) for path, text in found.select("path", "aliases").rows()}
    assert aliases["A_0.Norm_0"] == ["B_0.Norm_0", "Norm_0"]
    assert aliases["Norm_0"] == ["A_0.Norm_0", "B_0.Norm_0"]
    assert aliases["A_0"] == []


def test_each_caller_has_the_time_it_called_for() -> None:
    assert outcomes(events_of(shared())) == {
        "in a": ("A_0.Norm_0.Linear_0", "forward", "python"),
        "in b": ("B_0.Norm_0.Linear_0", "forward", "python"),
        "norm of b": ("B_0.Norm_0", "forward", "python"),
        "of the script": ("Norm_0", "forward", "python"),
    }


def test_a_module_that_calls_itself_is_below_itself() -> None:
    """A tree of the same instance, as recursive networks have it."""
    events = events_of([
        module_slice("A_0", 0, 20, 1, None), module_slice("A_0", 1, 10, 2, 1),
        module_slice("A_0", 12, 2, 3, 1), *work("inner", 2, 1), *work("outer", 15, 2),
    ])  # fmt: skip
    assert {name: path for name, (path, *_) in outcomes(events).items()} == {
        "inner": "A_0.A_0", "outer": "A_0",
    }  # fmt: skip


def node(at: float, dur: float, number: int) -> Event:
    marks = {"Sequence number": number, "Fwd thread id": 1, "tid": 300}
    return op(f"{EVALUATION}: MmBackward0", at, dur, **marks)


def test_a_recomputed_module_is_the_one_that_ran_forward_there() -> None:
    """The autograd thread's frames have no module above them (torch.md section 5)."""
    forward = {"Fwd thread id": 0}
    events = events_of([
        module_slice("A_0", 0, 10, 1, None), module_slice("Block_0", 1, 8, 2, 1),
        module_slice("Fc_0", 2, 6, 3, 2), op("aten::mm", 3, 1, **{"Sequence number": 5, **forward}),
        module_slice("B_0", 20, 10, 4, None),
        op("CheckpointFunction", 20.5, 9, **{"Sequence number": 9, **forward}),
        module_slice("Block_0", 21, 8, 5, 4), module_slice("Fc_0", 22, 3, 6, 5),
        node(50, 20, 9),  # reentrant: the node is of the caller
        module_slice("Block_0", 52, 8, 7, None, tid=300),
        module_slice("Fc_0", 53, 3, 8, 7, tid=300), *work("again in b", 54, 1, tid=300),
        node(80, 20, 5),  # else of an operator inside
        module_slice("Block_0", 82, 8, 9, None, tid=300),
        module_slice("Fc_0", 83, 3, 10, 9, tid=300), *work("again in a", 84, 2, tid=300),
    ])  # fmt: skip
    assert foreign_modules(events, run_id="r")["path"].to_list() == [
        "", "A_0", "A_0.Block_0", "A_0.Block_0.Fc_0", "B_0", "B_0.Block_0", "B_0.Block_0.Fc_0",
    ]  # fmt: skip
    assert outcomes(events) == {
        "again in a": ("A_0.Block_0.Fc_0", "recompute", "python"),
        "again in b": ("B_0.Block_0.Fc_0", "recompute", "python"),
    }


def test_row_44_wrappers_do_not_show_in_the_paths_below_them() -> None:
    found = modules(
        module_slice("DistributedDataParallel_0", 0, 100, 1, None),
        module_slice("OptimizedModule_0", 1, 90, 2, 1),
        module_slice("Net_0", 2, 80, 3, 2),
        module_slice("Linear_0", 3, 5, 4, 3),
    )
    assert found["path"].to_list() == [
        "", "DistributedDataParallel_0", "OptimizedModule_0", "Net_0", "Net_0.Linear_0",
    ]  # fmt: skip
    assert found["parent_id"].to_list() == [None, 0, 1, 2, 3]


def test_wrapped_and_bare_in_one_trace_are_told_apart() -> None:
    found = modules(
        module_slice("Net_0", 0, 10, 1, None),
        module_slice("OptimizedModule_0", 20, 20, 2, None), module_slice("Net_0", 22, 10, 3, 2),
        module_slice("OptimizedModule_1", 40, 20, 4, None), module_slice("Net_0", 42, 10, 5, 4),
    )  # fmt: skip
    assert found["path"].to_list() == [
        "", "Net_0", "OptimizedModule_0", "OptimizedModule_0.Net_0",
        "OptimizedModule_1", "OptimizedModule_1.Net_0",
    ]  # fmt: skip
    assert found["path"].is_unique().all()


def test_ranges_give_their_paths_and_the_containers_between() -> None:
    names = ["", "h.1.mlp", "h.1", "odd.näme"]
    ranges = [annotation(range_name(p), at * 10, 5) for at, p in enumerate(names)]
    found = modules(*ranges, module_slice("Ignored_0", 0, 1, 1, None))
    assert found["path"].to_list() == ["", "h", "h.1", "h.1.mlp", "odd", "odd.näme"]
    assert found["parent_id"].to_list() == [None, 0, 1, 2, 0, 4]
    assert found["class"].to_list() == ["(trace)", None, None, None, None, None]


def test_no_names_no_modules() -> None:
    assert modules(annotation("forward", 0, 5)).is_empty()


def test_a_hostile_tree_stays_small() -> None:
    deep = [module_slice(f"M_{n}", n, 5000 - 2 * n, n, n - 1 or None) for n in range(1, 400)]
    assert modules(*deep)["depth"].max() == MOST_DEEP
    assert modules(annotation("cb:" + "a." * 5000, 0, 5))["depth"].max() == MOST_DEEP
    ring = [module_slice("A_0", 0, 9, 1, 2), module_slice("B_0", 1, 5, 2, 1)]
    assert modules(*ring)["path"].to_list() == ["", "A_0", "A_0.B_0"]
