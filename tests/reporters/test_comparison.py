"""What compare reads from a profile: the tree, its order, noise, and what is not in it."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cb_trace.errors import CbTraceError
from cb_trace.reporters.comparison import Comparison, ModuleRow, Part, Selection, read_comparison
from cb_trace.reporters.table import NO_MODULES, error_text, footer_lines, print_comparison
from cb_trace.store import append, create, open_profile
from tests.frames import frame
from tests.reporters.profiles import RUN, run_row, write_profile


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_profile(tmp_path_factory.mktemp("profile") / "small.duckdb")


def read(profile: Path, selection: Selection | None = None) -> Comparison:
    with open_profile(profile) as connection:
        return read_comparison(connection, selection or Selection())


def tree(comparison: Comparison) -> list[tuple[int, str]]:
    return [(row.depth, row.path) for row in comparison.rows]


def row(comparison: Comparison, path: str) -> ModuleRow:
    return next(row for row in comparison.rows if row.path == path)


def test_siblings_by_cost_parents_first(profile: Path) -> None:
    assert tree(read(profile)) == [
        (0, ""),
        (1, "h"),
        (2, "h.0"),
        (3, "h.0.mlp"),
        (3, "h.0.attn"),
        (1, "head"),
    ]


def test_other_orders(profile: Path) -> None:
    by_isolated = [path for _, path in tree(read(profile, Selection(sort="isolated")))]
    assert by_isolated == ["", "h", "h.0", "h.0.attn", "h.0.mlp", "head"]  # unmeasured last
    by_error = [path for _, path in tree(read(profile, Selection(sort="error", module="h.0")))]
    assert by_error == ["h.0", "h.0.attn", "h.0.mlp"]


def test_paths_sort_by_number(tmp_path: Path) -> None:
    more = [
        {"module_id": 6 + n, "run_id": RUN, "path": f"h.{n}", "parent_id": 1, "ordinal": 6 + n}
        for n in (2, 10)
    ]
    parts = [
        {
            "run_id": RUN, "module_id": m["module_id"], "phase": "forward", "deployment": "eager",
            "kind": "busy", "ns": 5,
        }
        for m in more
    ]  # fmt: skip
    file = write_profile(tmp_path / "p.duckdb", module=more, partition=parts)
    found = tree(read(file, Selection(sort="path", module="h", depth=1)))
    assert found == [(0, "h"), (1, "h.0"), (1, "h.2"), (1, "h.10")]


def test_subtree_and_depth(profile: Path) -> None:
    assert tree(read(profile, Selection(module="h.0", depth=0))) == [(0, "h.0")]
    assert tree(read(profile, Selection(depth=1))) == [(0, ""), (1, "h"), (1, "head")]


def test_figures_of_a_row(profile: Path) -> None:
    attention = row(read(profile), "h.0.attn")
    assert (attention.cost_us, attention.share) == (300.0, 0.3)
    assert (attention.isolated_us, attention.error_ratio) == (600.0, 1.0)
    assert attention.spread == pytest.approx(20 / 600)
    # 590 µs over 300 µs × 1.01, 610 µs over 300 µs × 0.99
    assert attention.error_low == pytest.approx(590 / 303 - 1)
    assert attention.error_high == pytest.approx(610 / 297 - 1)
    assert attention.exceeds(0.9)
    assert not attention.exceeds(0.97)  # above it, but the interval reaches below


def test_a_difference_inside_the_noise(profile: Path) -> None:
    comparison = read(profile)
    assert row(comparison, "h.0.mlp").within_noise
    assert not row(comparison, "h.0.mlp").exceeds(0.0)
    assert not row(comparison, "").within_noise
    assert row(comparison, "").exceeds(0.04)  # isolated is the smaller one here


def test_a_module_that_was_skipped(profile: Path) -> None:
    comparison = read(profile)
    head = row(comparison, "head")
    assert (head.isolated_us, head.skipped) == (None, "RuntimeError: boom")
    assert not head.exceeds(0.0)
    assert [(s.path, s.reason) for s in comparison.skipped] == [("head", "RuntimeError: boom")]


def test_a_container_sums_its_children_and_links_to_the_first(profile: Path) -> None:
    container = row(read(profile), "h")
    assert container.cost_us == 720.0
    assert container.isolated_us == 1000.0
    assert container.record["ts_ns"] == 2000
    assert "ts=2000&dur=500" in container.record["perfetto_url"]


def test_parts_sum_to_the_step(profile: Path) -> None:
    parts = read(profile).parts
    assert parts == [
        Part("modules", 800_000, 0.8),
        Part("glue", 70_000, 0.07),
        Part("idle_host", 100_000, 0.1),
        Part("unattributed", 30_000, 0.03),
    ]
    assert sum(part.ns for part in parts) == 1_000_000


def test_partial_sum_is_no_error(tmp_path: Path) -> None:
    """A parent whose sum leaves a child out must not look cheap alone."""
    extra = [
        {
            "run_id": RUN, "module_id": 2, "phase": "forward", "condition": "hot", "replay_id": 20,
            "measured_id": 20, "call_index": 1, "calls": 1, "skipped": "budget",
        },
        {
            "run_id": RUN, "module_id": 3, "phase": "forward", "condition": "hot", "replay_id": 21,
            "measured_id": 21, "call_index": 1, "calls": 1, "skipped": "budget",
        },
    ]  # fmt: skip
    comparison = read(write_profile(tmp_path / "p.duckdb", replay=extra))
    block = row(comparison, "h.0")
    assert block.partial
    assert not block.exceeds(0.0)
    assert "budget" in {skipped.reason for skipped in comparison.skipped}


def test_a_module_without_a_graph_alone_was_still_measured_alone(tmp_path: Path) -> None:
    extra = [
        {
            "run_id": RUN, "module_id": 3, "phase": "forward", "condition": "graph",
            "replay_id": 30, "measured_id": 30, "call_index": 0, "calls": 1, "skipped": "no graph",
        },
    ]  # fmt: skip
    comparison = read(write_profile(tmp_path / "p.duckdb", replay=extra))
    assert [skipped.path for skipped in comparison.skipped] == ["head"]


def test_the_lowest_rank_is_shown_and_another_on_request(tmp_path: Path) -> None:
    runs = [run_row(run_id="b", workload="second"), run_row(run_id="a", workload="first")]
    traces = [
        {"trace_id": 1, "run_id": "b", "role": "foreign", "rank": 1},
        {"trace_id": 2, "run_id": "a", "role": "foreign", "rank": 0},
    ]
    file = write_profile(tmp_path / "p.duckdb", run=runs, trace=traces)
    assert read(file).run.workload == "first"
    assert read(file, Selection(rank=1)).run.workload == "second"
    assert "1 other rank in this profile: see --rank N" in footer_lines(read(file))
    with pytest.raises(CbTraceError, match="no rank 7"):
        read(file, Selection(rank=7))


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(module="h.0.atn"), "no module 'h.0.atn'.*did you mean h.0.attn"),
        (Selection(module="attn"), "did you mean h.0.attn"),
        (Selection(deployment="graph"), "no deployment 'graph'.*eager"),
        (Selection(phase="backward"), "no phase 'backward'.*forward"),
    ],
)
def test_what_is_not_there(profile: Path, selection: Selection, message: str) -> None:
    with pytest.raises(CbTraceError, match=message):
        read(profile, selection)


@pytest.fixture
def two_ways(tmp_path: Path) -> Path:
    """The profile with a second deployment, in which the whole step takes 600 µs."""
    part = {"run_id": RUN, "phase": "forward", "deployment": "graph", "module_id": 3}
    samples = [590_000] * 5 + [600_000] * 90 + [660_000] * 5
    return write_profile(
        tmp_path / "two.duckdb",
        partition=[part | {"kind": "busy", "ns": 600_000}],
        step_sample=[
            {"run_id": RUN, "kind": "bare", "deployment": "graph", "sample": n, "ns": ns}
            for n, ns in enumerate(samples)
        ],
        verdict=[part | {"text": "alone 600 µs, all is well"}],
        note=[
            {"run_id": RUN, "reason": "grad mode", "detail": "no_grad", "count": 1},
            {"run_id": RUN, "reason": "unsteady step", "detail": "faster later", "count": 1},
            {"run_id": RUN, "reason": "clock and temperature", "detail": "SM clock 1980 MHz",
             "count": 1},
        ],
        kernel=[{"kernel_id": 1, "trace_id": 0, "kind": "kernel", "start_ns": 0, "dur_ns": 7_000}],
        kernel_module=[{"kernel_id": 1, "share": 1.0, "ns": 7_000, "method": "none",
                        "reason": "outside every step"}],
    )  # fmt: skip


def test_each_deployment_has_its_own_step(two_ways: Path) -> None:
    eager, graph = read(two_ways), read(two_ways, Selection(deployment="graph"))
    assert footer_lines(eager)[:2] == [
        "step: 1,000.0 µs bare (990.0 to 1,010.0), ×1.20 under the profiler",
        "the same step as a CUDA graph: 600.0 µs bare; see --deployment graph",
    ]
    assert footer_lines(graph)[:2] == [
        "step: 600.0 µs bare (600.0 to 600.0)",
        "the same step run eagerly: 1,000.0 µs bare; see --deployment eager",
    ]
    compiled = replace(graph, run=replace(graph.run, mode="compile"))
    assert footer_lines(compiled)[1].startswith("the same step launched by the host: 1,000.0 µs")
    attention = row(graph, "h.0.attn")
    assert (attention.share, attention.error_ratio) == (1.0, 0.0)
    assert attention.error_low == pytest.approx(590 / 600 - 1)  # the graph's step is sure, not 1 %


@pytest.mark.parametrize(
    ("one_stream_ns", "saved"),
    [(650_000, "saves 50.0 µs"), (600_000, "saves ~0 µs"), (580_000, "costs 20.0 µs")],
)
def test_what_streams_save_stands_below_the_step(
    tmp_path: Path, one_stream_ns: int, saved: str
) -> None:
    part = {"run_id": RUN, "phase": "forward", "deployment": "graph", "module_id": 3}
    samples = {"bare": [598_000, 600_000, 602_000] * 30, "bare_one_stream": [one_stream_ns] * 40}
    profile = write_profile(
        tmp_path / "streams.duckdb",
        partition=[part | {"kind": "busy", "ns": 600_000}],
        step_sample=[
            {"run_id": RUN, "kind": kind, "deployment": "graph", "sample": n, "ns": ns}
            for kind, taken in samples.items()
            for n, ns in enumerate(taken)
        ],
    )
    lines = footer_lines(read(profile, Selection(deployment="graph")))
    bare = f"{one_stream_ns / 1000:.1f}"
    assert lines[1] == f"on one stream: {bare} µs bare; running at once {saved}"
    assert not [line for line in footer_lines(read(profile)) if "one stream" in line]


def test_the_step_from_its_parts_stands_beside_the_bare_one(tmp_path: Path) -> None:
    whole = {"run_id": RUN, "deployment": "eager"}
    profile = write_profile(
        tmp_path / "parts.duckdb",
        marginal=[
            whole | {"kind": kind, "ns": ns}
            for kind, ns in (
                ("predicted", 980_000), ("kernel_sum", 250_000), ("isolation_sum", 3_000_000)
            )
        ],
    )  # fmt: skip
    assert footer_lines(read(profile))[1:3] == [
        "predicted from its parts: 980.0 µs (-2.0%)",
        "plain sums instead: durations of all kernels 250.0 µs (-75.0%), "
        "isolated of all innermost modules 3,000.0 µs (+200.0%)",
    ]


def test_the_footer_says_what_a_reader_can_use(two_ways: Path) -> None:
    lines = footer_lines(read(two_ways))
    assert "outside the recorded steps: 1 kernel, 7.0 µs in all, in no figure above" in lines
    assert "note: unsteady step: faster later" in lines
    assert "note: clock and temperature: SM clock 1980 MHz" in lines
    assert not [line for line in lines if "grad mode" in line]


def test_phases_that_were_measured_alone_are_named(profile: Path) -> None:
    found = read(profile)
    assert found.phases_alone == ["forward"]
    other = replace(found, rows=[replace(r, isolated_us=None, skipped=None) for r in found.rows])
    line = "isolated: modules were measured alone by phase; see --phase forward"
    assert line in footer_lines(other)
    nowhere = "isolated: nothing was measured alone in this recording"
    assert nowhere in footer_lines(replace(other, phases_alone=[]))


def test_a_clock_that_nobody_knows_is_no_news(tmp_path: Path) -> None:
    detail = "SM clock unknown, temperature unknown, after each of 9 blocks of samples"
    note = {"run_id": RUN, "reason": "clock and temperature", "detail": detail, "count": 1}
    comparison = read(write_profile(tmp_path / "cpu.duckdb", note=[note]))
    assert [n.detail for n in comparison.notes] == [detail]
    assert not [line for line in footer_lines(comparison) if "SM clock" in line]


def test_a_module_that_is_asked_for_gets_its_verdict(two_ways: Path) -> None:
    asked = read(two_ways, Selection(deployment="graph", module="h.0.attn"))
    assert footer_lines(asked)[0] == "h.0.attn: alone 600 µs, all is well"
    assert read(two_ways).verdict is None


def test_a_small_error_beyond_noise_is_not_printed_as_none(profile: Path) -> None:
    one = replace(row(read(profile), "h.0.attn"), error_low=0.001, error_high=0.006)
    assert error_text(replace(one, error_ratio=0.004)) == "+0.4%"
    assert error_text(replace(one, error_ratio=0.0096)) == "+1%"


def test_a_trace_without_modules_says_how_to_have_them(tmp_path: Path) -> None:
    file = tmp_path / "empty.duckdb"
    with create(file) as draft:
        append(draft.connection, "run", frame("run", run_row(step_bare_ns=None)))
    comparison = read(file)
    assert comparison.rows == []
    assert NO_MODULES in footer_lines(comparison)
    text = StringIO()
    print_comparison(comparison, Console(file=text, width=100))
    assert "class" not in text.getvalue()  # no table without rows
    assert NO_MODULES in text.getvalue()


def test_a_module_that_did_nothing_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    spare = {"module_id": 9, "run_id": RUN, "path": "spare", "parent_id": 0, "ordinal": 9}
    file = write_profile(tmp_path / "p.duckdb", module=[spare])
    with pytest.raises(CbTraceError, match="module 'spare' did nothing in the phase forward"):
        read(file, Selection(module="spare"))
    with pytest.raises(CbTraceError, match="no module 'spar' in this profile"):
        read(file, Selection(module="spar"))
