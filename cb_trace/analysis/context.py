"""K, U and X of every module in the full pass."""

from __future__ import annotations

import polars as pl


def module_context(
    kernel: pl.DataFrame,
    kernel_module: pl.DataFrame,
    module_call: pl.DataFrame,
    step: pl.DataFrame,
    module: pl.DataFrame,
    *,
    run_id: str,
) -> pl.DataFrame:
    """Per module and phase, children included, means per profiled step: a ``module_context`` frame.

    The frames are those of ONE trace of role context or foreign (``module``: of the run).
    """
    raise NotImplementedError
