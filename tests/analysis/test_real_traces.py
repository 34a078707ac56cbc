"""Real traces: U of all kernels is the busy column of the traces' README, and the parts sum up."""

from pathlib import Path

import polars as pl
import pytest

from cb_trace import attribution, store
from cb_trace.analysis import module_context, step_partition
from cb_trace.trace import load_trace
from tests.frames import frame

EVENTS = ("kernel", "launch", "op", "annotation", "python_module", "step")


def load(file: Path, folder: Path) -> attribution.TraceEvents:
    with store.create(folder / "x.duckdb", force=False) as draft:
        load_trace(draft.connection, file, trace_id=0, run_id="r", role="foreign", path="x")
        return attribution.TraceEvents(
            **{name: pl.DataFrame(draft.connection.table(name)) for name in EVENTS}
        )


@pytest.mark.parametrize(
    ("name", "total_ns", "busy_ns"),
    [
        ("h200/gpt4_train_stack", 9_993_876, 9_993_619),
        ("h200/dlrm_overlap_graph", 8_302_784, 7_581_342),
        ("h200/gpt_eager_hooks", 17_255_377, 17_255_377),
        ("public/b200_eager_pdl", 11_665_760, 11_596_482),
        ("public/a100_training_nccl", 501_567_000, 388_587_000),
        ("public/v100_dlrm_8ranks/worker0", 6_851_000, 6_590_000),
    ],
)
def test_busy_time_and_partition(
    name: str, total_ns: int, busy_ns: int, shared_traces: Path, tmp_path: Path
) -> None:
    events = load(shared_traces / f"{name}.json.gz", tmp_path)
    one = frame("module", {"module_id": 0, "run_id": "r"})
    everything = events.kernel.select(
        "kernel_id",
        module_id=pl.lit(0, pl.Int32),
        phase=pl.lit("forward"),
        share=pl.lit(1.0),
        ns="dur_ns",
    )
    whole = module_context(
        events.kernel, everything, frame("module_call"), frame("step"), one, run_id="r"
    )
    figures = whole.select("kernel_ns", "busy_ns", "exposed_ns").rows()
    assert figures == [(total_ns, busy_ns, busy_ns)]

    module = attribution.foreign_modules(events, run_id="r")
    found = attribution.attribute(events, module)
    shared = (events.kernel, found.kernel_module, found.module_call)
    partition = step_partition(
        *shared, frame("step"), events.launch, module, run_id="r", bare={}, device_type=None
    )
    busy = pl.col("kind").is_in(["busy", "unattributed"])
    assert partition.filter(busy)["ns"].sum() == busy_ns
    context = module_context(*shared, events.step, module, run_id="r")
    bounds = (pl.col("exposed_ns") > pl.col("busy_ns")) | (pl.col("busy_ns") > pl.col("kernel_ns"))
    assert context.filter(bounds).is_empty()
