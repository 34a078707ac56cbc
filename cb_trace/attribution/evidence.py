"""What a recording knows beside the events of the trace at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from cb_trace.bundle import CompiledGraph, ParameterRecord


@dataclass(frozen=True, slots=True)
class Reference:
    """The run that a CUDA graph was captured from, attributed: see :func:`graphs.reference`.

    ``kernel`` has the columns of table ``kernel``; ``graph_id`` tells several captures apart.
    """

    kernel: pl.DataFrame
    kernel_module: pl.DataFrame
    on_streams: bool = False  # the graph may have run on several: graphs.paired_on_streams


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it may be missing; then what it would tell keeps its reason.

    ``graphs`` is None where nobody collected them: compiled code is then its caller's.
    """

    parameters: Sequence[ParameterRecord] = ()
    graphs: Sequence[CompiledGraph] | None = None
    reference: Reference | None = None
