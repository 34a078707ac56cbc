"""The grid of workloads that figures are held to the truth on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from cb_trace.capture.options import Dtype
    from cb_trace.providers import Setting

BATCHES = (512, 1024, 2048, 4096)
# The tables of the MLPerf shape are cut here, as the papers' 12 to 32 GB cards must have cut them:
# 28 GB instead of 105. No table that matters comes near the cache either way.
CRITEO_CAP = 10_000_000
MOST_KNOCKED_OUT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One workload of the grid."""

    name: str
    provider: str
    preset: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    dtype: Dtype = "fp32"
    overlap: bool = False  # two streams

    @property
    def workload(self) -> str:
        """What it has in common with points of other sizes."""
        return f"{self.provider} {self.preset}"

    def knocked_out(self, modules: Mapping[str, nn.Module]) -> list[str]:
        """Paths of the modules to take out of the step: of like ones, the first and the last.

        Like ones have the same path but for numbers, and print alike. Dropout in evaluation and
        lists of modules do nothing. Where there are many, of like ones the first only.
        """
        kinds: dict[tuple[str, str], list[str]] = {}
        for path, module in modules.items():
            if path and type(module).__name__ not in ("ModuleList", "ModuleDict", "Dropout"):
                sort = re.sub(r"t_\d+|\bh\.\d+", "#", path)
                kinds.setdefault((sort, type(module).__name__), []).append(path)
        both = [path for paths in kinds.values() for path in dict.fromkeys((paths[0], paths[-1]))]
        first = [paths[0] for paths in kinds.values()]
        return both if len(both) <= MOST_KNOCKED_OUT else first


def _dlrm(preset: str, batch: int, *, overlap: bool = False) -> Point:
    settings: dict[str, Setting] = {"batch": batch}
    if preset == "mlperf":
        settings["rows_cap"] = CRITEO_CAP
    if overlap:
        settings["overlap"] = True
    name = f"dlrm_{preset}_{batch}" + ("_overlap" if overlap else "")
    return Point(name=name, provider="dlrm", preset=preset, settings=settings, overlap=overlap)


def _grid() -> Iterator[Point]:
    for preset in ("default", "mlperf", "ddp"):
        for batch in BATCHES:
            yield _dlrm(preset, batch)
    yield Point(name="deepfm_paper", provider="deepfm", preset="paper")
    for batch, seq in ((8, 1024), (1, 64)):
        yield Point(
            name=f"gpt2_b{batch}_s{seq}",
            provider="nanogpt",
            preset="gpt2",
            settings={"batch": batch, "seq": seq},
            dtype="bf16",
        )
    for batch in BATCHES:
        yield _dlrm("mlperf", batch, overlap=True)
    yield _dlrm("default", 4096, overlap=True)


GRID = tuple(_grid())
TINY = (
    Point(name="dlrm_tiny", provider="dlrm", preset="tiny"),
    Point(name="dlrm_tiny_overlap", provider="dlrm", preset="tiny", settings={"overlap": True},
          overlap=True),
    Point(name="nanogpt_tiny", provider="nanogpt", preset="tiny"),
)  # fmt: skip
