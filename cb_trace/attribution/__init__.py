"""Which module every kernel belongs to, and by what evidence: pure functions on frames.

One file a mechanism: ``ranges`` (our own hooks), ``slices`` (``nn.Module:`` frames), ``autograd``
(backward and recompute), ``parameters`` and ``optimizer``, ``inductor`` (compiled code; ``fusion``
says which module has which part of a kernel), ``graphs`` (replayed CUDA graphs); ``combine`` weighs
them and gives every kernel its rows.
"""

from __future__ import annotations

from cb_trace.attribution.autograd import Backward, backward
from cb_trace.attribution.combine import attribute
from cb_trace.attribution.events import Attributed, TraceEvents
from cb_trace.attribution.evidence import Evidence, Reference
from cb_trace.attribution.foreign import capture_modules, foreign_modules
from cb_trace.attribution.graphs import captured, reference
from cb_trace.attribution.replays import link_replays
from cb_trace.attribution.serial import graph_times, sequence_times, serial
from cb_trace.attribution.shares import split_by_shares

__all__ = [
    "Attributed",
    "Backward",
    "Evidence",
    "Reference",
    "TraceEvents",
    "attribute",
    "backward",
    "capture_modules",
    "captured",
    "foreign_modules",
    "graph_times",
    "link_replays",
    "reference",
    "sequence_times",
    "serial",
    "split_by_shares",
]
