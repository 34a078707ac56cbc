"""Figures from attributed events: frames of :mod:`cb_trace.columns` in, frames out; no I/O.

Definitions: DESIGN, section 5. Every function is pure and deterministic. Names are imported when
first used: a trace of others needs a third of them.
"""

from typing import TYPE_CHECKING

from cb_trace.imports import lazily

if TYPE_CHECKING:
    from cb_trace.analysis.context import module_context
    from cb_trace.analysis.costs import cost_bounds
    from cb_trace.analysis.error_terms import terms
    from cb_trace.analysis.graph_runs import GraphSteps, graph_steps
    from cb_trace.analysis.marginal import marginal_costs, with_together
    from cb_trace.analysis.overheads import host_overheads
    from cb_trace.analysis.partition import (
        idle_stretches,
        scaled_partition,
        step_partition,
        step_parts,
    )
    from cb_trace.analysis.parts import Measured, Parts, isolated_parts
    from cb_trace.analysis.program import Program, StepEvents, programs
    from cb_trace.analysis.replays import other_calls, replay_figures, without_elsewhere
    from cb_trace.analysis.sequence import beside_others, times_alone
    from cb_trace.analysis.stats import BareStep, Interval, interval_stats
    from cb_trace.analysis.verdicts import Figures, verdict

__all__ = [
    "BareStep",
    "Figures",
    "GraphSteps",
    "Interval",
    "Measured",
    "Parts",
    "Program",
    "StepEvents",
    "beside_others",
    "cost_bounds",
    "graph_steps",
    "host_overheads",
    "idle_stretches",
    "interval_stats",
    "isolated_parts",
    "marginal_costs",
    "module_context",
    "other_calls",
    "programs",
    "replay_figures",
    "scaled_partition",
    "step_partition",
    "step_parts",
    "terms",
    "times_alone",
    "verdict",
    "with_together",
    "without_elsewhere",
]

_HOMES = {
    "context": ("module_context",),
    "costs": ("cost_bounds",),
    "error_terms": ("terms",),
    "graph_runs": ("GraphSteps", "graph_steps"),
    "marginal": ("marginal_costs", "with_together"),
    "overheads": ("host_overheads",),
    "partition": ("idle_stretches", "scaled_partition", "step_partition", "step_parts"),
    "parts": ("Measured", "Parts", "isolated_parts"),
    "program": ("Program", "StepEvents", "programs"),
    "replays": ("other_calls", "replay_figures", "without_elsewhere"),
    "sequence": ("beside_others", "times_alone"),
    "stats": ("BareStep", "Interval", "interval_stats"),
    "verdicts": ("Figures", "verdict"),
}
__getattr__ = lazily(
    __name__,
    {name: f"{__name__}.{home}.{name}" for home, names in _HOMES.items() for name in names},
)
