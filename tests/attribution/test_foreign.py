"""Module trees of traces that came without one."""

from __future__ import annotations

import json

import polars as pl

from cb_trace.attribution import foreign_modules
from cb_trace.attribution.foreign import MOST_DEEP
from cb_trace.bundle import range_name
from cb_trace.columns import polars_schema
from tests.attribution.kineto_reader import events_of
from tests.kineto import Event, annotation, module_slice


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


def test_an_instance_of_several_callers_has_its_first_path_and_aliases() -> None:
    found = modules(
        module_slice("A_0", 0, 10, 1, None),
        module_slice("Norm_0", 1, 2, 2, 1),
        module_slice("B_0", 20, 10, 3, None),
        module_slice("Norm_0", 21, 2, 4, 3),
    )
    norm = found.filter(pl.col("class") == "Norm")
    assert norm["path"].to_list() == ["A_0.Norm_0"]
    assert json.loads(norm["aliases"][0]) == ["B_0.Norm_0"]


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
