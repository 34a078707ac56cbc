"""Any trace, however odd: every kernel exactly once, nanoseconds kept."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from cb_trace.attribution import Evidence, attribute, captured, foreign_modules, reference
from cb_trace.bundle import ParameterRecord
from tests.attribution.kineto_reader import events_of
from tests.attribution.outcomes import check, tree
from tests.attribution.test_fusion import graph, node
from tests.kineto import Event, annotation, event, kernel, launch, module_slice, op

AT, DUR, ID, TID = st.integers(0, 40), st.integers(0, 15), st.integers(0, 5), st.integers(1, 2)
MARKS = st.fixed_dictionaries(
    {"tid": TID},
    optional={"Sequence number": st.integers(-1, 3), "Fwd thread id": st.integers(0, 2)},
)
RANGES = st.sampled_from([
    "cb:<root>", "cb:a", "cb:a.b", "cb:c", "ProfilerStep#0", "Optimizer.step#SGD.step", "other",
    "## Call CompiledFxGraph key ##", "cb_grad:a.weight",
])  # fmt: skip
OPS = st.sampled_from([
    "aten::mm", "k", "autograd::engine::evaluate_function: X", "Optimizer.step#A",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
])  # fmt: skip
MODULES = tree("", "a", "a.b")
PARTS = [node("mul", "a", 3), node("add", "a.b", 5, phase="backward"), node("lost", None, 2)]
KNOWN = Evidence(
    parameters=[
        ParameterRecord(name=f"{path}.weight", path=path, numel=n, bytes=n, trainable=True)
        for n, path in enumerate(("a", "a.b", ""), start=1)
    ],
    graphs=[graph(("k", PARTS), ("extern_kernels.mm", PARTS[:1]), ("k", PARTS[1:]), key="key")],
)
LAUNCHES = st.sampled_from(["cudaLaunchKernel", "cudaGraphLaunch"])
ANY_EVENT: st.SearchStrategy[Event] = st.one_of(
    st.builds(lambda n, t, d, i: annotation(n, t, d, tid=i), RANGES, AT, DUR, TID),
    st.builds(lambda n, t, d, m: op(n, t, d, **m), OPS, AT, DUR, MARKS),
    st.builds(lambda n, t, c, i: launch(t, 1, c, tid=i) | {"name": n}, LAUNCHES, AT, ID, TID),
    st.builds(
        kernel, st.sampled_from(["k", "ncclDev"]), AT, DUR, ID
    ),
    st.builds(
        module_slice,
        st.sampled_from(["A_0", "B_0"]), AT, DUR, ID, st.none() | ID,
    ),
    st.builds(lambda t: event("overhead", "lazy", t, 1), AT),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY_EVENT, max_size=20))
def test_every_kernel_exactly_once(slices: list[Event]) -> None:
    events = events_of(slices)
    check(events, attribute(events, foreign_modules(events, run_id="r"), root_glue=False))
    check(events, attribute(events, tree("", "a", "a.b"), first_call_id=7))


@settings(max_examples=25, deadline=None)
@given(st.lists(ANY_EVENT, max_size=20), st.lists(ANY_EVENT, max_size=20))
def test_every_kernel_exactly_once_by_all_evidence(first: list[Event], second: list[Event]) -> None:
    run, context = events_of(first), events_of(second)
    for events in (run, captured(run)):
        attributed = attribute(events, MODULES, evidence=KNOWN)
        check(events, attributed)
        source = reference(events, attributed)
        known = replace(KNOWN, reference=source)
        check(context, attribute(context, MODULES, evidence=known))


@settings(max_examples=25, deadline=None)
@given(st.lists(ANY_EVENT, max_size=20))
def test_calls_are_a_forest_with_unique_indices(slices: list[Event]) -> None:
    events = events_of(slices)
    for module in (tree("", "a", "a.b"), foreign_modules(events, run_id="r")):
        _check_calls(attribute(events, module).module_call)


def _check_calls(calls: pl.DataFrame) -> None:
    assert calls["call_id"].n_unique() == calls.height
    assert calls.select("module_id", "step", "phase", "call_index").is_unique().all()
    assert calls.filter(calls["parent_call_id"] >= calls["call_id"]).is_empty()
    assert (calls["dur_ns"] >= 0).all()
