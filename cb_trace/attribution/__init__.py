"""Which module every kernel belongs to, and by what evidence: pure functions on frames.

One file a mechanism: ``ranges`` (our own hooks), ``slices`` (``nn.Module:`` frames), ``autograd``
(backward and recompute), ``optimizer``; ``combine`` weighs them and gives every kernel its rows.
"""

from __future__ import annotations

from cb_trace.attribution.combine import attribute
from cb_trace.attribution.events import Attributed, TraceEvents
from cb_trace.attribution.foreign import foreign_modules
from cb_trace.attribution.replays import link_replays
from cb_trace.attribution.shares import split_by_shares

__all__ = [
    "Attributed",
    "TraceEvents",
    "attribute",
    "foreign_modules",
    "link_replays",
    "split_by_shares",
]
