"""The step partition: every instant of the bare step has one owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from cb_trace.analysis.stats import BareStep
from cb_trace.bundle import Deployment

Overlap = Literal["first", "equal"]


def step_partition(  # noqa: PLR0917 - one frame a table, in the order they are made
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module_call: pl.DataFrame,
    step: pl.DataFrame,
    launch: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
    bare: Mapping[Deployment, BareStep],
    device_type: str | None,
    overlap: Overlap = "first",
) -> pl.DataFrame:
    """Split the bare step over modules, exclusive of children: a ``partition`` frame.

    The frames are those of ONE trace of role context or foreign (``module``: of the run). ``bare``
    holds the median bare step of each deployment; empty: one deployment ``eager``, unscaled.
    The ``ns`` of one deployment sum to its bare median exactly.
    """
    raise NotImplementedError
