"""Real traces: the counts of ../shared/traces/README.md and the shares of traces.md M9, exactly."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cb_trace.attribution import TraceEvents, attribute, foreign_modules
from tests.attribution.brute import innermost
from tests.attribution.kineto_reader import read
from tests.attribution.outcomes import check

IN_MODULE = {  # "in module" of the README; None: no module slices in the file
    "h200/gpt_eager_stack": 570,
    "h200/gpt_eager_hooks": None,
    "h200/gpt_train_hooks": None,
    "h200/gpt4_train_stack": 194,
    "h200/gpt_compiled": None,
    "h200/gpt_cudagraph": None,
    "h200/dlrm_overlap_graph": None,
    "public/h100_owlv2_eager": 5090,
    "public/h100_transformer_3steps": 48,
    "public/b200_eager_pdl": 909,
    "public/mi300_resnet18_train": 1030,
    "public/mi300_sglang_decode_graph": 1,
    "public/mi300_sglang_decode_capture": 0,
    "public/a100_sam_compiled": None,
    "public/a100_training_nccl": None,
    "public/v100_resnet50_2021_format": None,
    "public/v100_dlrm_8ranks/worker0": None,
    "public/v100_dlrm_8ranks/worker1": None,
}


def attributed(events: TraceEvents) -> pl.DataFrame:
    """Kernel rows of a foreign trace with their module's path, invariants checked."""
    module = foreign_modules(events, run_id="r")
    result = attribute(events, module, root_glue=False)
    check(events, result)
    assert inclusive(module, result.kernel_module) == events.kernel["dur_ns"].sum()
    return result.kernel_module.join(
        module.select("module_id", "path"), on="module_id", how="left", maintain_order="left"
    )


def inclusive(module: pl.DataFrame, rows: pl.DataFrame) -> int:
    """What the tree's root holds with all that is below it, and what is unattributed."""
    sums = dict(rows.group_by("module_id").agg(pl.col("ns").sum()).rows())
    for number, parent_id in module.select("module_id", "parent_id").reverse().rows():
        if parent_id is not None:
            sums[parent_id] = sums.get(parent_id, 0) + sums.get(number, 0)
    return int(sums.get(None, 0) + sums.get(0, 0))


def time(rows: pl.DataFrame) -> int:
    return int(rows["ns"].sum())


@pytest.fixture(scope="module")
def train_hooks(shared_traces: Path) -> pl.DataFrame:
    return attributed(read(shared_traces / "h200/gpt_train_hooks.json.gz"))


@pytest.mark.parametrize("name", IN_MODULE)
def test_every_kernel_once_and_as_many_in_modules(shared_traces: Path, name: str) -> None:
    rows = attributed(read(shared_traces / f"{name}.json.gz"))
    assert rows.filter(pl.col("method") == "python").height == (IN_MODULE[name] or 0)


def test_m9_shares_of_a_training_step(train_hooks: pl.DataFrame) -> None:
    """Measured by hand before there was code; "outside" there counts the root as no submodule."""
    parts = {
        "forward in a module": (pl.col("phase") == "forward") & (pl.col("path") != ""),
        "backward of a module": (pl.col("phase") == "backward") & (pl.col("path") != ""),
        "backward outside": (pl.col("phase") == "backward") & (pl.col("path").fill_null("") == ""),
        "forward outside": (pl.col("phase") == "forward") & (pl.col("path").fill_null("") == ""),
        "optimizer": pl.col("phase") == "optimizer",
    }
    total = time(train_hooks)
    share = {n: round(100 * time(train_hooks.filter(p)) / total, 1) for n, p in parts.items()}
    assert share == {
        "forward in a module": 24.8,
        "backward of a module": 54.6,
        "backward outside": 7.2,
        "forward outside": 7.6,
        "optimizer": 5.9,
    }


def test_m9_no_backward_kernel_is_left_without_a_forward_operator(
    train_hooks: pl.DataFrame,
) -> None:
    assert train_hooks.filter(pl.col("reason") == "backward, module unknown").is_empty()


@pytest.mark.parametrize(
    ("name", "least"), [("public/mi300_resnet18_train", 0.97), ("h200/gpt4_train_stack", 0.64)]
)
def test_training_is_covered(shared_traces: Path, name: str, least: float) -> None:
    """Of gpt4, 35 % is the loss and its backward: outside every module, and linked all the same."""
    rows = attributed(read(shared_traces / f"{name}.json.gz"))
    known = rows.filter(pl.col("module_id").is_not_null() | (pl.col("reason") == "optimizer"))
    assert time(known) >= least * time(rows)
    assert "backward, module unknown" not in rows["reason"]


def test_backward_of_a_block_is_like_the_next_ones(train_hooks: pl.DataFrame) -> None:
    """Twelve equal blocks: the same number of backward kernels, whichever way they were linked."""
    block = pl.col("path").str.extract(r"^h\.(\d+)").alias("block")
    backward = train_hooks.filter(pl.col("phase") == "backward").with_columns(block)
    counts = backward.drop_nulls("block").group_by("block").len()
    assert counts.height == 12
    assert counts["len"].n_unique() == 1


def test_kernels_launched_before_the_window_have_no_launch(shared_traces: Path) -> None:
    rows = attributed(read(shared_traces / "public/v100_dlrm_8ranks/worker1.json.gz"))
    unlinked = rows.filter(pl.col("reason") == "no launch in file")
    assert (unlinked.height, unlinked["ns"].sum()) == (64, 203_000)


def test_a_decode_graph_is_not_guessed(shared_traces: Path) -> None:
    rows = attributed(read(shared_traces / "public/mi300_sglang_decode_graph.json.gz"))
    assert rows.filter(pl.col("reason") == "graph replay, module unknown").height == 544


def stated(events: TraceEvents, kernel_ids: set[int]) -> dict[int, tuple[str, ...]]:
    """Kernel id → the instances around its launch, outermost first, by the stated parents alone."""
    slices = {row["python_id"]: row for row in events.python_module.to_dicts()}
    wanted = events.kernel.filter(pl.col("kernel_id").is_in(kernel_ids))
    launched = wanted.select("launch_id", "kernel_id")
    launches = events.launch.join(launched, on="launch_id").to_dicts()
    rows = list(slices.values())
    chains: dict[int, tuple[str, ...]] = {}
    for launch, at in zip(launches, innermost(launches, rows), strict=True):
        chain: list[str] = []
        number = None if at is None else rows[at]["python_id"]
        while number is not None:
            chain.insert(0, slices[number]["name"])
            number = slices[number]["parent_python_id"]
        chains[launch["kernel_id"]] = tuple(chain)
    return chains


WITH_SLICES = [name for name, count in IN_MODULE.items() if count]


@pytest.mark.parametrize("name", WITH_SLICES)
def test_every_caller_holds_what_it_called(shared_traces: Path, name: str) -> None:
    """The chain of modules above each kernel is the chain of slices above its launch.

    So the inclusive sums over the tree are those over the slices, whoever shares an instance.
    """
    events = read(shared_traces / f"{name}.json.gz")
    module = foreign_modules(events, run_id="r")
    assert module["path"].is_unique().all()
    above = dict(module.select("module_id", "parent_id").rows())
    instance = dict(module.select("module_id", pl.col("signature").str.slice(11)).rows())
    rows = attribute(events, module, root_glue=False).kernel_module
    found = dict(rows.filter(pl.col("method") == "python").select("kernel_id", "module_id").rows())
    assert len(found) == IN_MODULE[name]
    for kernel_id, chain in stated(events, set(found)).items():
        number = found[kernel_id]
        upwards: list[str] = []
        while above[number] is not None:
            upwards.insert(0, instance[number])
            number = above[number]
        assert tuple(upwards) == chain
