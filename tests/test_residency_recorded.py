"""What modules touch of their parameters, from a real recording to the analysis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from cb_trace.analysis.residency import residency
from cb_trace.capture.record import record
from cb_trace.conduct import ingest
from cb_trace.providers.workload import Workload
from cb_trace.store import open_profile
from tests.capture.test_record import QUICK
from tests.frames import frame


class Tied(nn.Module):
    """A table that its head multiplies by, and an attention whose output layer is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        out: Tensor = self.head(self.mix(x, x, x, need_weights=False)[0])
        return out


def test_a_tied_table_is_in_the_cache_once_and_an_attention_reads_its_output_layer(
    tmp_path: Path,
) -> None:
    (tmp_path / "b").mkdir()
    workload = Workload("tied", Tied(), (torch.tensor([[3, 9, 9, 1]]),))
    options = replace(QUICK, replay=False, compare_plain=False)
    manifest = record(workload, tmp_path / "b", options)
    shared = {p.name: p.shared_with for p in manifest.parameters if p.shared_with}
    assert shared == {"table.weight": ["head"]}
    report = ingest(tmp_path / "b", tmp_path / "p.duckdb")
    with open_profile(report.profile) as profile:
        sql = "SELECT name, path, bytes FROM parameter JOIN module USING (module_id) ORDER BY ALL"
        assert profile.execute(sql).fetchall() == [
            ("mix.in_proj_bias", "mix", 48 * 4),
            ("mix.in_proj_weight", "mix", 48 * 16 * 4),
            ("mix.out_proj.bias", "mix.out_proj", 16 * 4),
            ("mix.out_proj.weight", "mix.out_proj", 16 * 16 * 4),
            ("table.weight", "head", 50 * 16 * 4),
            ("table.weight", "table", 50 * 16 * 4),
        ]
        module, cost, memory, parameter = (
            profile.sql(f"FROM {name}").pl() for name in ("module", "cost", "memory", "parameter")
        )
    found = residency(1 << 30, frame("replay"), module, cost, memory, parameter=parameter)
    assert found is not None
    ids = dict(module.select("path", "module_id").iter_rows())
    rows, places = 3 * 16 * 4, 4 * 8  # distinct rows, and what names them
    assert found.tied == ({ids["table"]: rows + places, ids["head"]: 50 * 16 * 4},)
    without = residency(1 << 30, frame("replay"), module, cost, memory, parameter=parameter.clear())
    assert without is not None
    held = memory.filter(module_id=ids["mix"], scope="context")["peak_bytes"].max()
    assert found.brings_bytes[ids["mix"]] == (48 + 48 * 16 + 16 + 16 * 16) * 4 + held
    assert without.brings_bytes[ids["mix"]] == found.brings_bytes[ids["mix"]]
