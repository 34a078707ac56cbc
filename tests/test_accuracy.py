"""The accuracy tables: what counts as met is what the definitions say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from benchmarks.accuracy_figures import Deployed, Figures, ModuleFigures, summed
from benchmarks.accuracy_grid import GRID, Point
from benchmarks.accuracy_table import document, page
from cb_trace.bundle import KnockoutRecord, StepSamples
from cb_trace.providers import provider
from tests.bundles import write_net_bundle


def module(path: str, marginal: float, knockout: float, low: float, high: float) -> ModuleFigures:
    return ModuleFigures(path, knockout, marginal, 0.04 * knockout, knockout, low, high, 1000.0)


def point() -> Figures:
    graph = [
        module("a", 104.0, 100.0, 98.0, 102.0),  # 4 % off
        module("b", 19.8, 20.0, 19.0, 21.0),  # 1 % off
        module("c", 16.0, 9.0, 8.0, 10.0),  # under 1 % of the step, and within it
    ]
    eager = [
        module("a", 104.0, 100.0, 98.0, 106.0),
        module("b", 30.0, 20.0, 19.0, 21.0),  # outside
        module("c", 30.0, 40.0, -1.0, 80.0),  # cannot be told from nothing
    ]
    whole = {"predicted": 1050.0, "kernel_sum": 500.0, "isolation_sum": 2000.0}
    return Figures(
        "p", "H200",
        {"eager": Deployed("eager", 1000.0, whole, eager),
         "graph": Deployed("graph", 1000.0, whole | {"predicted": 980.0}, graph)},
        [("d", "eager", "never called in the step")], [],
    )  # fmt: skip


def rows(text: str, begins: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {begins}")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_targets_are_judged_by_what_was_measured() -> None:
    text = page([point()], None, GRID)
    found = {row[0]: row[2:] for row in rows(text, "marginal cost against")}
    assert found["marginal cost against knock-out, graph: mean"] == ["2.50%", "2", "yes"]
    assert found["marginal cost against knock-out, graph: geometric mean"] == ["2.00%", "2", "yes"]
    assert rows(text, "smaller modules within")[0][2:] == ["100.0%", "1", "yes"]
    assert rows(text, "marginal cost inside")[0][2:] == ["50.0%", "2", "**no**"]
    steps = [row[2:] for row in rows(text, "step predicted from its parts:")]
    assert steps == [["3.16%", "2", "yes"], ["3.50%", "2", "yes"], ["5.00%", "2", "yes"]]
    assert rows(text, "modules with a residual")[0][2:] == ["100.0%", "5", "yes"]


def test_modules_that_may_be_smaller_are_told_apart() -> None:
    given = point()
    graph = given.deployments["graph"]
    unsure = module("e", 15.0, 12.0, 8.0, 16.0)  # 25 % off, and perhaps under 1 % of the step
    given.deployments["graph"] = replace(graph, modules=[*graph.modules, unsure])
    found = {row[0]: row[2:] for row in rows(page([given], None, GRID), "marginal cost against")}
    assert found["marginal cost against knock-out, graph: mean"] == ["10.00%", "3", "**no**"]
    sure = "marginal cost against knock-out, graph, whole interval above 1% of the step: mean"
    assert found[sure] == ["2.50%", "2", ""]


def test_points_of_an_unsteady_host_are_judged_apart() -> None:
    moving = point()
    moving.deployments["eager"] = replace(moving.deployments["eager"], swing=0.7)
    text = page([moving], None, GRID)
    inside = {row[0].rpartition(", ")[2]: row[2:] for row in rows(text, "marginal cost inside")}
    assert inside == {"eager": ["50.0%", "2", "**no**"], "steady host": ["not measured", "0", ""]}
    assert rows(text, "step predicted from its parts, steady host: worst")[0][2:4] == ["2.00%", "1"]
    assert rows(text, "p | eager | 1000.0")[0][-1] == "blocks of bare steps 1.70 × apart"


def test_tables_name_what_is_off_and_what_was_not_run() -> None:
    text = page([point()], None, GRID)
    off = text.partition("## Modules that are off")[2].partition("## Not run")[0]
    assert rows(off, "p |") == [
        ["p", "eager", "`b`", "30.0", "20.0", "19.0 to 21.0", "+50.0%"],
    ]
    assert rows(text, "p | 1000.0 | 2 | 50%")[0][-1] == "c"
    assert "dlrm_default_512, dlrm_default_1024" in text.partition("## Not run")[2]
    assert ["p", "eager", "d", "never called in the step"] in rows(text, "p | eager | d")
    assert "| p | graph | 1000.0 | 980.0 (-2.0%) | – | 2000.0 (+100.0%) | 500.0 (-50.0%) |" in text


def test_geometric_means_are_not_made_of_lucky_zeros() -> None:
    found = summed([0.0, -0.01, None])
    assert found is not None
    assert (found.count, found.mean, found.worst) == (2, 0.005, 0.01)
    assert found.geomean == pytest.approx(0.001)
    assert summed([None]) is None


def test_of_like_modules_the_first_and_the_last_are_knocked_out() -> None:
    one = Point(name="x", provider="nanogpt", preset="tiny")
    first = nn.ModuleDict({"fc": nn.Linear(2, 2), "drop": nn.Dropout()})
    others = [nn.ModuleDict({"fc": nn.Linear(2, 2)}) for _ in range(2)]
    model = nn.ModuleDict({"h": nn.ModuleList([first, *others])})
    assert one.knocked_out(dict(model.named_modules())) == ["h.0.fc", "h.2.fc"]


def test_the_grid_is_the_one_of_the_papers() -> None:
    names = [p.name for p in GRID]
    assert len(names) == len(set(names))
    shapes = {p.preset for p in GRID if p.provider == "dlrm"}
    assert shapes == {"default", "mlperf", "ddp"}
    for preset in shapes:
        batches = [p.settings["batch"] for p in GRID if p.preset == preset and not p.overlap]
        assert batches == [512, 1024, 2048, 4096]
    assert any(p.overlap for p in GRID)
    assert all(p.preset in provider(p.provider).presets for p in GRID)


def test_a_page_from_bundles(tmp_path: Path) -> None:
    samples = [StepSamples(kind="bare", deployment="eager", ns=[80_000] * 5)]
    knockouts = [
        KnockoutRecord(path="fc", phase="forward", deployment="eager", base_ns=[80_000] * 9,
                       knocked_ns=[59_000] * 9),
    ]  # fmt: skip
    for name in ("one", "other"):
        write_net_bundle(tmp_path / name, step_samples=samples, knockouts=knockouts)
    grid = [Point(name=name, provider="own", preset=name) for name in ("one", "other", "third")]
    text = document([tmp_path / "one", tmp_path / "other"], None, grid)
    (row,) = rows(text, "one | eager | 80.0 |")
    assert row[3] != "–"  # predicted
    assert row[4] != "–"  # with the overheads of the other
    assert rows(text, "one | 80.0 | 1 |")[0][3] == "0%"  # 20.7 against 21 ± 0
    assert text.rstrip().endswith("third")
