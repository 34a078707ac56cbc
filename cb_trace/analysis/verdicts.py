"""One plain sentence a module: which number to believe, and what the isolated one leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from cb_trace.analysis.stats import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a verdict is made from, all per step."""

    deployment: str
    cost: Interval
    isolated: Interval | None = None  # bare wall, hot
    skipped: str | None = None  # why it was not replayed
    terms: Mapping[str, Interval] = field(default_factory=dict)  # those measured


def verdict(figures: Figures) -> str:
    """One sentence."""
    raise NotImplementedError


def verdicts(
    partition: pl.DataFrame,
    term: pl.DataFrame,
    replay: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
) -> pl.DataFrame:
    """A ``verdict`` row for every module, phase and deployment of the partition, children in."""
    raise NotImplementedError
