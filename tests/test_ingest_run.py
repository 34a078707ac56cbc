"""What the ingest of one run passes on."""

from __future__ import annotations

from cb_trace.attribution import Attributed, TraceEvents
from cb_trace.ingest_run import Context
from tests.frames import frame


def context(call_id: int | None, source: Context | None = None) -> Context:
    calls = [] if call_id is None else [{"call_id": call_id}]
    events = TraceEvents(**{name: frame(name) for name in TraceEvents.__dataclass_fields__})
    found = Attributed(frame("module_call", *calls), frame("kernel_module"))
    return Context("r", frame("module"), events, found, source)


def test_the_calls_of_a_graph_are_those_of_the_run_it_was_captured_from() -> None:
    eager = context(7)
    assert eager.calls["call_id"].to_list() == [7]
    assert context(None, source=eager).calls["call_id"].to_list() == [7]
