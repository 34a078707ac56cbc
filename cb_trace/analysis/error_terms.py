"""Why the isolated figure of a module differs from its cost in the step."""

from __future__ import annotations

import polars as pl


def terms(
    *,
    partition: pl.DataFrame,
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    op: pl.DataFrame,
    step: pl.DataFrame,
    module: pl.DataFrame,
    replay: pl.DataFrame,
    replay_kernel: pl.DataFrame,
    isolated_kernel: pl.DataFrame,
    isolated_op: pl.DataFrame,
    run_id: str,
    device_type: str | None,
) -> pl.DataFrame:
    """The error terms of every module with a hot replay: a ``term`` frame.

    ``partition`` comes from :func:`step_partition`, ``replay`` from :func:`replay_figures`;
    ``kernel``, ``kernel_module``, ``op``, ``step`` are of the context trace, ``isolated_*`` of the
    isolated traces together. Per module, phase and deployment the terms sum to
    Σ calls × median of the hot replays − Σ partition (children included), exactly.
    """
    raise NotImplementedError
