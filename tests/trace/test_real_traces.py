"""The counts and sums of the real traces, as an independent brute-force reader found them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.trace.conftest import Loader

# file, slices, device events, kernels, their duration in ns, linked, nn.Module slices, streams,
# graph launches
FIGURES = [
    ("h200/gpt_eager_stack", 7301, 570, 496, 11_560_137, 570, 274, 1, 0),
    ("h200/gpt_eager_hooks", 7167, 855, 744, 17_255_377, 855, 0, 1, 0),
    ("h200/gpt_train_hooks", 7479, 861, 741, 23_748_900, 861, 0, 1, 0),
    ("h200/gpt4_train_stack", 7116, 630, 558, 9_993_876, 630, 98, 1, 0),
    ("h200/gpt_compiled", 1529, 464, 390, 9_595_135, 464, 0, 1, 0),
    ("h200/gpt_cudagraph", 493, 466, 392, 9_503_199, 466, 0, 1, 2),
    ("h200/dlrm_overlap_graph", 169, 159, 153, 8_302_784, 159, 0, 2, 3),
    ("public/h100_owlv2_eager", 104_159, 5165, 4330, 566_759_477, 5165, 2345, 1, 0),
    ("public/h100_transformer_3steps", 1201, 48, 48, 393_000, 48, 33, 1, 0),
    ("public/b200_eager_pdl", 22_355, 929, 768, 11_665_760, 929, 436, 1, 0),
    ("public/mi300_resnet18_train", 20_802, 2375, 2360, 358_940_397, 2375, 380, 1, 0),
    ("public/mi300_sglang_decode_graph", 1471, 558, 555, 9_778_614, 558, 1, 2, 1),
    ("public/mi300_sglang_decode_capture", 59_135, 2, 2, 11_015, 2, 508, 1, 0),
    ("public/a100_sam_compiled", 15_379, 2613, 2338, 515_047_000, 2613, 0, 1, 0),
    ("public/a100_training_nccl", 74_937, 9450, 8568, 501_567_000, 9450, 0, 4, 0),
    ("public/v100_resnet50_2021_format", 41_906, 9258, 8868, 614_413_000, 9258, 0, 1, 0),
    ("public/v100_dlrm_8ranks/worker0", 2460, 261, 245, 6_851_000, 261, 0, 4, 0),
    ("public/v100_dlrm_8ranks/worker1", 2527, 326, 310, 12_601_000, 262, 0, 4, 0),
]


@pytest.mark.parametrize("figures", FIGURES, ids=lambda figures: str(figures[0]))
def test_counts_and_sums_are_exact(
    figures: tuple[str, int, int, int, int, int, int, int, int],
    shared_traces: Path,
    profile: duckdb.DuckDBPyConnection,
    load: Loader,
) -> None:
    name, *expected = figures
    report = load(shared_traces / f"{name}.json.gz")
    found = profile.execute(
        """
        SELECT (SELECT slices FROM trace), count(*), count(*) FILTER (kind = 'kernel'), sum(dur_ns),
               count(launch_id), (SELECT count(*) FROM python_module),
               count(DISTINCT (device, stream)),
               (SELECT count(*) FROM launch WHERE contains(name, 'GraphLaunch'))
        FROM kernel
        """
    ).fetchone()
    assert found == tuple(expected)
    assert report.kernels_without_launch == expected[1] - expected[4]
    assert (report.repaired, report.dropped, report.truncated) == (0, 0, False)
    assert profile.execute("SELECT count(*) FROM kernel WHERE flaw IS NOT NULL").fetchone() == (0,)
