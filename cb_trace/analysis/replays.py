"""Figures of each module replayed alone."""

from __future__ import annotations

import polars as pl


def replay_figures(
    replay: pl.DataFrame,
    replay_sample: pl.DataFrame,
    replay_kernel: pl.DataFrame,
    kernel: pl.DataFrame,
    annotation: pl.DataFrame,
    *,
    device_type: str | None,
) -> pl.DataFrame:
    """The ``replay`` frame with median, bounds, samples, ``kernel_ns`` and ``busy_ns`` filled in.

    ``kernel`` and ``annotation`` are those of the traces of role isolated, all together.
    """
    raise NotImplementedError
